"""Settings that JAX reads when it is imported: devices, XLA flags and the directory of compiled programs.

This module does not import JAX. Call `prepare` before anything imports JAX, and `require` afterwards. Environment
variables that the user has set keep their values.
"""

import contextlib
import gc
import importlib.metadata
import importlib.util
import logging
import os
import pkgutil
import resource
from collections.abc import Iterator
from pathlib import Path

from agent_tunix.closing import Closing
from agent_tunix.config.schema import DistributedConfig
from agent_tunix.errors import ConfigError, DeviceMemoryError
from agent_tunix.startup.program_cache import prepare_cache

# Compiled programs are cleared if a process uses more than this share of the memory mappings that it may have.
_MANY = 0.25
# Bytes of address space that importing JAX and Tunix takes, with some room for threads.
_LEAST_ADDRESS_SPACE = 2_500_000_000
_PLATFORMS = {"gpu": "cuda"}
# JAX uses barriers to make a backward pass recompute values instead of reusing them. On CPU only, XLA removes these
# barriers. Remat would then need more memory instead of less, and quantised weights would stay dequantised for a pass.
_KEEP_BARRIERS = "--xla_disable_hlo_passes=cse_barrier_expander"
# On a CPU these optimisations take a third of XLA's compile time and make a step at most 3 % faster.
_COMPILE_LESS = (
    "--xla_backend_extra_options=xla_cpu_disable_loop_unrolling,xla_cpu_disable_tiled_emitter",
    "--xla_backend_optimization_level=1",
)


def prepare(distributed: DistributedConfig) -> None:
    """Set the environment variables that JAX reads when it is imported.

    Raises:
        ConfigError: The process may not use the address space that importing JAX and Tunix takes.
    """
    limit = _address_space()
    if limit is not None and limit < _LEAST_ADDRESS_SPACE:
        raise ConfigError(
            f"JAX requires at least {_LEAST_ADDRESS_SPACE / 1e9:.1f} GB of address space, but this process may use"
            f" {limit / 1e9:.1f} GB; run `ulimit -v unlimited` first, and limit memory by a container or a cgroup",
            code="not_enough_memory",
        )
    if distributed.platform != "auto":
        os.environ["JAX_PLATFORMS"] = _PLATFORMS.get(distributed.platform, distributed.platform)
    if distributed.num_cpu_devices is not None:
        _add_flag(f"--xla_force_host_platform_device_count={distributed.num_cpu_devices}")
    if _runs_on_cpu():
        for flag in (_KEEP_BARRIERS, *_COMPILE_LESS):
            if flag.partition("=")[0] not in os.environ.get("XLA_FLAGS", ""):
                _add_flag(flag)
    if distributed.compilation_cache is not None:
        prepare_cache(distributed.compilation_cache)


@contextlib.contextmanager
def explained_memory() -> Iterator[None]:
    """Turn XLA's error for a lack of memory into one that names the settings that need less.

    Raises:
        DeviceMemoryError: A device ran out of memory in this block.
    """
    try:
        yield
    except RuntimeError as error:
        status, _, detail = str(error).partition(": ")
        if status != "RESOURCE_EXHAUSTED":
            raise
        limit = _address_space()
        raise DeviceMemoryError(
            f"the memory of a device is too small: {detail.splitlines()[0]}\n"
            "Lower training.micro_batch_size, generation.max_generation_steps, grpo.num_generations or "
            "evaluation.batch_size, or set model.remat=true, model.lora_rank=16 or model.quantization=nf4; "
            "`agent-tunix plan` with the same settings prints what each part needs and what would fit. On a GPU, JAX "
            "takes three quarters of the memory; XLA_PYTHON_CLIENT_MEM_FRACTION=0.95 gives it more."
            + ("" if limit is None else f" `ulimit -v` allows this process {limit / 1e9:.1f} GB of address space.")
        ) from error


def _address_space() -> int | None:
    """Return the bytes of address space that this process may use, as `ulimit -v` sets them; None: no limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def require(distributed: DistributedConfig) -> None:
    """Import JAX, find its devices, and forget the programs of earlier runs if there are many.

    Raises:
        ConfigError: The platform asked for has no device.
    """
    import jax

    logging.getLogger("jax").setLevel(logging.WARNING)  # at INFO, JAX logs each platform that is missing
    try:
        jax.devices()
    except RuntimeError as error:
        raise ConfigError(
            f"distributed.platform={distributed.platform} requires a device, but JAX finds none: {error}. Install "
            "its extra, such as agent_tunix[cuda] or agent_tunix[tpu], or set distributed.platform=auto",
            code="invalid_devices",
        ) from error
    make_room_for_programs()


def make_room_for_programs() -> bool:
    """Clear JAX's caches if compiled programs take many memory mappings; return True if they were cleared.

    A program compiled for a CPU takes about ten memory mappings for as long as JAX keeps it. A process that runs out of
    mappings ends with a segmentation fault. Linux allows 65,530 by default.
    """
    try:
        limit = int(Path("/proc/sys/vm/max_map_count").read_text())
        with open("/proc/self/maps", "rb") as file:
            num_mappings = sum(1 for _ in file)
    except (OSError, ValueError):  # not Linux
        return False
    if num_mappings < limit * _MANY:
        return False
    import jax

    jax.clear_caches()  # type: ignore[no-untyped-call]
    gc.collect()
    return True


class Compilations(Closing):
    """Counters of the programs that JAX compiles or reads from its cache, starting at construction.

    Attributes:
        count: Programs made ready, compiled or read from the cache.
        from_cache: Programs read from the cache.
        seconds: Time to make the programs ready, summed over all threads, without tracing.
    """

    def __init__(self) -> None:
        import jax

        self.count = self.from_cache = 0
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._compiled)
        jax.monitoring.register_event_listener(self._happened)

    def close(self) -> None:
        """Stop counting. A second call does nothing."""
        import jax

        # Tunix's metrics logger unregisters all listeners when it closes, so these may be gone.
        with contextlib.suppress(AssertionError):
            jax.monitoring.unregister_event_duration_listener(self._compiled)
            jax.monitoring.unregister_event_listener(self._happened)

    def to_data(self) -> dict[str, float]:
        """Return the counts as JSON-ready data."""
        compiled = self.count - self.from_cache
        return {"compiled": compiled, "from_cache": self.from_cache, "seconds": round(self.seconds, 3)}

    def _compiled(self, event: str, duration_secs: float, **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            self.count += 1
            self.seconds += duration_secs

    def _happened(self, event: str, **_: object) -> None:
        self.from_cache += event == "/jax/compilation_cache/cache_hits"


def _add_flag(flag: str) -> None:
    flags = os.environ.get("XLA_FLAGS", "").split()
    if flag not in flags:
        os.environ["XLA_FLAGS"] = " ".join([*flags, flag])


def _runs_on_cpu() -> bool:
    """Return True if JAX will find no device but the CPU."""
    if platforms := os.environ.get("JAX_PLATFORMS"):
        return platforms == "cpu"
    if importlib.util.find_spec("libtpu") or importlib.metadata.entry_points(group="jax_plugins"):
        return False
    plugins = importlib.util.find_spec("jax_plugins")
    return plugins is None or not any(pkgutil.iter_modules(plugins.submodule_search_locations))
