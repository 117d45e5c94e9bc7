"""Files of compiled programs: written whole or not at all, and read as what they are or as nothing.

As with JAX's own cache, whoever may write their directory may run code here.
"""

import contextlib
import logging
import os
import pickle
import re
import time
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable

_LOGGER = logging.getLogger("agent_tunix.run")
_DIGEST = re.compile(r"[0-9a-f]{64}")
# As JAX's own files, so that the least recently used of both go first.
SUFFIX = "-cache"


@dataclass(frozen=True)
class Loaded:
    """A program that was read from a file, called as the function is that it was made of.

    It knows the arrays it takes, and not the trees they come in, so that it can be read before those are known.

    Attributes:
        compiled: Takes the arrays one by one.
        seconds: What reading it took.
        is_brief: As `store` was told.
    """

    compiled: Any
    seconds: float
    is_brief: bool = False

    def __call__(self, *args: Any) -> Any:
        """What the function returns."""
        return self.compiled(*jax.tree.leaves(args))

    @property
    def out_info(self) -> Any:
        """Shapes and types of what it returns."""
        return self.compiled.out_info

    @property
    def output_shardings(self) -> Any:
        """Where what it returns lies."""
        return self.compiled.output_shardings

    def memory_analysis(self) -> Any:
        """What the compiler says of the memory it takes."""
        return self.compiled.memory_analysis()

    def rehearse(self) -> None:
        """Run it once, on zeros and for nothing.

        On a CPU a program sets up its matrix products as it first comes to them, in one thread: of a small one that is
        longer than all the rest of the run.
        """
        try:
            jax.block_until_ready(self.compiled(*map(_zeros, jax.tree.leaves(self.compiled.in_avals))))  # type: ignore[no-untyped-call]
        except Exception as error:  # its first run that is meant will say what is wrong with it
            _LOGGER.debug("a program was not rehearsed (%s: %s)", type(error).__name__, error)


def _zeros(aval: Any) -> Any:
    if not jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return np.zeros(aval.shape, aval.dtype)
    words: Any = np.zeros((*aval.shape, 2), np.uint32)
    return jax.random.wrap_key_data(words, impl="threefry2x32")  # as all keys here are


def program_path(directory: Path, text: str) -> Path:
    """The file of a program.

    Args:
        directory: Where programs are kept.
        text: The digest of its text.
    """
    return directory / f"agent_tunix_program-{text}{SUFFIX}"


def load(directory: Path, text: str, devices: Sequence[jax.Device]) -> Loaded | None:
    """The program of a text for some devices; None where there is none that can be used: that of another text cannot.

    XLA reads it without Python, so that a thread may wait for it beside others.
    """
    started = time.perf_counter()
    path = program_path(directory, text)
    try:
        content = path.read_bytes()
    except OSError:
        return None
    try:
        kept, program, num_arrays, out_tree, is_brief = pickle.loads(zlib.decompress(content))
        if kept != text:
            raise ValueError(f"it holds the program {kept}")
        compiled = serialize_executable.deserialize_and_load(
            program,
            jax.tree.structure((tuple(range(num_arrays)), {})),
            out_tree,
            backend=devices[0].client,
            execution_devices=devices,
        )
    except Exception as error:  # a file may hold anything; the program is compiled instead
        _LOGGER.debug("%s is of no use (%s: %s)", path, type(error).__name__, error)
        return None
    return Loaded(compiled, time.perf_counter() - started, is_brief)


def store(path: Path, text: str, compiled: Any, *, is_brief: bool) -> bool:
    """Keep a program; whether that was possible.

    Args:
        path: Of `program_path`.
        text: The digest of its text.
        compiled: The program.
        is_brief: Whether a run of it is a matter of a moment.
    """
    try:
        program, in_tree, out_tree = serialize_executable.serialize(compiled)
        content = zlib.compress(pickle.dumps((text, program, in_tree.num_leaves, out_tree, is_brief)), 1)
    except Exception as error:  # of the many that pickle and XLA raise, none is a reason to fail
        _LOGGER.debug("%s was not kept (%s: %s)", path, type(error).__name__, error)
        return False
    return write_whole(path, content)


def read_digest(path: Path) -> str | None:
    """The digest that a file holds."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return None
    return text if _DIGEST.fullmatch(text) else None


def read_digests(path: Path) -> list[str]:
    """The digests that a file holds, one a line; none where it holds anything else."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return lines if all(map(_DIGEST.fullmatch, lines)) else []


def write_whole(path: Path, content: bytes) -> bool:
    """Write a file whole or not at all; whether that was possible."""
    # Of another container, which may have the same process ids, or of another thread, it must not be the same.
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        _LOGGER.debug("%s was not written: %s", path, error)
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        return False
    return True
