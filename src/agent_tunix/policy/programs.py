"""Compiled programs that a later run takes from the disk without tracing what they are made from.

JAX keeps what it has compiled by the text of a program, so that every start traces and lowers each function again to
have that text: seconds of Python in which a small model does nothing. Here the digest of the text is kept too, by what
the text follows from: the identity of the run (`identity`: sources, versions, configuration, architecture, devices),
the function's name, its static arguments, and paths, shapes, types and places of its arrays. Two runs of which that
differs may share a program, once it is traced.

A file that is damaged, or of another JAX, is a program that is compiled again.
"""

import concurrent.futures
import contextlib
import hashlib
import importlib.metadata
import json
import math
import os
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
from jax._src import config as jax_state  # the public `jax.config` sets it for all threads

from agent_tunix.policy.foreseen import Foreseen
from agent_tunix.policy.processor import num_processors, processor_kind
from agent_tunix.policy.program_files import SUFFIX, load, program_path, read_digest, store, write_whole

LOADED_EVENT = "/agent_tunix/program_loaded"
_NEVER_S = 1e8
# What may be held for speed alone, beside what a run needs.
_BESIDE_BYTES = 512 * 2**20
# What a CPU of a few cores computes in a fraction of a second.
_BRIEF_FLOPS = 5e10
_DISTRIBUTIONS = ("jax", "jaxlib", "flax", "optax", "google-tunix", "qwix", "numpy")
_ROOM = Path(__file__).parents[1]
# Those whose functions are traced, or decide what is.
_TRACED = ("config", "policy", "training")
_VARIABLES = ("JAX_", "XLA_", "LIBTPU_", "TPU_", "CUDA_", "NVIDIA_", "TF_XLA_")
# They say where compiled programs lie and what is told of them, and nothing of the programs.
_OTHERWISE = ("JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE", "JAX_TRACEBACK", "JAX_LOGGING")


def _read_sources() -> str:
    """A digest of the files as they are now."""
    digest = hashlib.sha256()
    for room in _TRACED:
        for path in sorted((_ROOM / room).rglob("*.py")):
            digest.update(f"{path.relative_to(_ROOM)}\0".encode())
            with contextlib.suppress(OSError):  # one that goes as it is looked at
                digest.update(path.read_bytes())
    return digest.hexdigest()


# Python traces one function at a time, however many threads ask; taking turns, the first is done, and being compiled,
# while the next is traced.
_TRACING = threading.Lock()

# Early, since a run that loads a large model is minutes old when it compiles: by then a file may be another than what
# was imported from it.
_IMPORTED = _read_sources()


@dataclass(frozen=True)
class Call:
    """A call of a jitted function.

    Attributes:
        name: Of the function, for people and for the file.
        function: As `jax.jit` gives it.
        args: Arrays, or trees of them; for `Programs.prepare` shapes will do.
        statics: Its static arguments, by name; each has a `repr` that says all of it.
        shapes: What tells two calls with the same statics apart in one process: the shapes that vary.
        is_small: Whether it is traced in no time, and so need not wait until larger ones are.
        num_iterations: Of its loop, at most.
    """

    name: str
    function: Any
    args: tuple[Any, ...]
    statics: Mapping[str, Hashable] = field(default_factory=dict)
    shapes: Hashable = ()
    is_small: bool = False
    num_iterations: int = 1

    @property
    def key(self) -> Hashable:
        """What its program is found by in one process."""
        return self.name, tuple(self.statics.items()), self.shapes


class Programs:
    """The compiled programs of a process; may be used by several threads, of which no two should prepare one program.

    Args:
        directory: Where they are kept; None: they are JAX's own matter, as with several processes, which would have to
            find the same ones.
        identity: Of the run, as `identity` gives it.
        foreseen: Programs that are being loaded from there; it is told which are asked for.
    """

    def __init__(self, directory: Path | None = None, identity: str = "", foreseen: Foreseen | None = None) -> None:
        self._kept = None if directory is None else _Kept(directory, foreseen)
        self._identity = identity
        # Several of a call where its arrays lie elsewhere later on, as an optimiser's state after the first update.
        self._ready: dict[Hashable, list[Any]] = {}
        self._missed = threading.Lock()

    def run(self, call: Call) -> Any:
        """What the function returns."""
        if self._kept is None and call.key not in self._ready:
            return call.function(*call.args, **call.statics)
        known = list(self._ready.get(call.key, []))
        for compiled in reversed(known):
            # Of arrays that lie elsewhere, or are of another type, a program says so before it begins.
            with contextlib.suppress(TypeError, ValueError):
                return compiled(*call.args)
        with self._missed:
            made = self._make(call) if len(self._ready.get(call.key, [])) == len(known) else None
        # Of several threads that miss one program the first makes it.
        return self.run(call) if made is None else made(*call.args)

    def prepare(self, call: Call, traced: Callable[[], None] = lambda: None) -> Any:
        """Have a program ready, and do nothing else.

        Args:
            call: Of which.
            traced: Called once that needs Python no more, as far as is known.

        Returns:
            What the function would return, as shapes on their devices.
        """
        compiled = self._make(call, traced)
        return jax.tree.map(
            lambda shape, sharding: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding),  # type: ignore[no-untyped-call]
            compiled.out_info,
            compiled.output_shardings,
        )

    def flush(self) -> None:
        """Wait until what was compiled is kept; a process that ends waits as well."""
        if self._kept is not None:
            self._kept.flush()

    def num_at_once(self, call: Call) -> int:
        """How many runs of a program are done soonest in threads beside one another; 1 where it is not ready.

        On a CPU XLA divides single operations among the cores, of which those of a small program leave most idle.
        """
        ready = self._ready.get(call.key)
        if not ready or jax.default_backend() != "cpu" or len(_devices(call)) > 1:
            return 1
        return max(1, min(int(_BESIDE_BYTES // max(_held_bytes(ready[-1]), 1)), num_processors()))

    def _make(self, call: Call, traced: Callable[[], None] = lambda: None) -> Any:
        if self._kept is None:
            lowered = call.function.lower(*call.args, **call.statics)
            traced()
            compiled = lowered.compile()
        else:
            compiled = self._kept.find(call, self._identity, traced)
        self._ready.setdefault(call.key, []).append(compiled)
        return compiled


class _Kept:
    """The programs of a directory, by the digest of their text; and which text belongs to which call of which run."""

    def __init__(self, directory: Path, foreseen: Foreseen | None) -> None:
        self._directory = directory
        self._foreseen = foreseen
        self._machine = identity()
        # Where nothing is to be added, JAX is told of compile times that no program reaches.
        self._adds = float(jax.config.values["jax_persistent_cache_min_compile_time_secs"]) < _NEVER_S
        # Beside the run, which waits for programs and not for files.
        self._keeper = concurrent.futures.ThreadPoolExecutor(1, "keep")

    def find(self, call: Call, run: str, traced: Callable[[], None]) -> Any:
        """The program of a call: from the disk, or else compiled and kept; `traced` as in `Programs.prepare`."""
        place = self._directory / f"agent_tunix_{call.name}-{_digest_call(call, run)}{SUFFIX}"
        text = read_digest(place)
        if text is not None:
            traced()
            if (loaded := self._load(text, call)) is not None:
                return loaded
        with contextlib.nullcontext() if call.is_small else _TRACING:
            lowered = call.function.lower(*call.args, **call.statics)
            text = _digest_text(lowered, call, self._machine)
        traced()
        found = self._load(text, call)
        if found is None:
            # Kept once, by us: JAX would spend as long again on its own copy.
            with jax_state.persistent_cache_min_compile_time_secs(_NEVER_S):
                found = lowered.compile(compiler_options=_unheard_of())
            if self._adds:
                # Without its arrays, which would be held until then.
                self._keeper.submit(self._keep, text, found, replace(call, args=()), _devices(call), place)
        elif self._adds:
            self._keeper.submit(self._remember, text, place)
        return found

    def flush(self) -> None:
        """Wait until all is kept."""
        self._keeper.submit(lambda: None).result()

    def _keep(self, text: str, compiled: Any, call: Call, devices: list[jax.Device], place: Path) -> None:
        """Write a program, and what leads to it: to its text from its call, and to both from a run of this kind."""
        if store(program_path(self._directory, text), text, compiled, is_brief=_is_brief(call, compiled)):
            self._note(text, devices)
            self._remember(text, place)

    def _remember(self, text: str, place: Path) -> None:
        if _read_sources() == _IMPORTED:
            write_whole(place, text.encode())

    def _load(self, text: str, call: Call) -> Any:
        devices = _devices(call)
        loaded = self._foreseen.take(text, devices) if self._foreseen is not None else None
        loaded = loaded or load(self._directory, text, devices)
        if loaded is None:
            return None
        jax.monitoring.record_event_duration_secs(LOADED_EVENT, loaded.seconds)
        self._note(text, devices)
        return loaded

    def _note(self, text: str, devices: list[jax.Device]) -> None:
        if self._foreseen is not None and self._adds:
            self._foreseen.note(text, devices)


def _held_bytes(compiled: Any) -> float:
    """What a run of a program holds; infinite where the compiler does not say."""
    if (memory := compiled.memory_analysis()) is None:
        return math.inf
    return float(memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes)


def _is_brief(call: Call, compiled: Any) -> bool:
    """Whether a run on a CPU takes a moment and little memory, and its first one much longer."""
    if call.is_small or jax.default_backend() != "cpu" or _held_bytes(compiled) > _BESIDE_BYTES:
        return False
    flops = (compiled.cost_analysis() or {}).get("flops", math.inf)  # of a loop those of one iteration
    return bool(flops * call.num_iterations <= _BRIEF_FLOPS)


def _digest_call(call: Call, run: str) -> str:
    leaves, _ = jax.tree_util.tree_flatten_with_path(call.args)
    arrays = [
        (
            jax.tree_util.keystr(path),
            leaf.shape,
            str(leaf.dtype),
            getattr(leaf, "weak_type", False),
            _describe_place(getattr(leaf, "sharding", None)),
        )
        for path, leaf in leaves
    ]
    told = run, sorted(call.statics.items()), arrays, _ids(call)
    return hashlib.sha256(repr(told).encode()).hexdigest()


def _describe_place(sharding: jax.sharding.Sharding | None) -> str:
    """Where an array lies; on one device it is whole there, whatever axes of a mesh it is said to be divided over.

    What is said follows from what made the array: a checkpoint, another program, the host.
    """
    if sharding is None or sharding.num_devices > 1:
        return str(sharding)
    return f"whole, {sharding.memory_kind}"


def _digest_text(lowered: Any, call: Call, machine: str) -> str:
    """Of a program's text, and of what it leaves open: its arguments, what it gives its results as, and its devices.

    JAX leaves out arguments that nothing reads, and the text does not say which: that of `a + 1` is that of `b + 1`.
    """
    arguments = lowered._lowering.compile_args
    left_open = (
        sorted(arguments["kept_var_idx"]),
        arguments["global_in_avals"],
        arguments["global_out_avals"],
        str(lowered.out_tree),
        _ids(call),
    )
    return hashlib.sha256(f"{machine}\0{left_open!r}\0{lowered.as_text()}".encode()).hexdigest()


def identity(**facts: Any) -> str:
    """What programs follow from besides their arguments, as a digest.

    Args:
        facts: Of the run, ready for JSON: the configuration, the architecture, whatever else is traced as a constant.
    """
    told = {
        "versions": {name: importlib.metadata.version(name) for name in _DISTRIBUTIONS},
        "source": _IMPORTED,
        "devices": [(device.platform, device.device_kind, device.client.platform_version) for device in jax.devices()],
        "processor": processor_kind(),
        "processors": num_processors(),
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(_VARIABLES) and not name.startswith(_OTHERWISE)
        },
        "jax": {name: repr(value) for name, value in sorted(jax.config.values.items()) if "cache" not in name},
        **facts,
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=repr).encode()).hexdigest()


def kept_directory() -> Path | None:
    """Where compiled programs are kept, if they are, and one process is at work."""
    directory = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    wanted = directory and jax.config.values["jax_enable_compilation_cache"]
    return Path(directory) if directory and wanted and jax.process_count() == 1 else None


def _devices(call: Call) -> list[jax.Device]:
    """Those that a call's arrays lie on, in the order of its mesh, which need not have all that there are."""
    found = [leaf.sharding for leaf in jax.tree.leaves(call.args) if getattr(leaf, "sharding", None) is not None]
    for sharding in found:
        if isinstance(sharding, jax.sharding.NamedSharding):
            return list(sharding.mesh.devices.flat)
    return list(found[0].device_set) if found else jax.devices()[:1]


def _ids(call: Call) -> list[int]:
    return [device.id for device in _devices(call)]


def _unheard_of() -> dict[str, int]:
    """Options with which JAX takes what it compiles from nowhere.

    On a CPU XLA cannot write what it has read, since functions are missing from it then. So an option that has no
    meaning there is another each time.
    """
    return {"xla_gpu_redzone_padding_bytes": time.time_ns() % 2**31} if jax.default_backend() == "cpu" else {}
