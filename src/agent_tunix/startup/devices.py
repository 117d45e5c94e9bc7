"""What JAX is told before it is imported: which devices to use, and where to keep compiled programs.

Importing this loads no JAX; `prepare` must be called before anything does, as `require` does. A variable that the user
has set stays.
"""

import contextlib
import gc
import importlib.metadata
import importlib.util
import logging
import os
import pkgutil
from pathlib import Path

from agent_tunix.closing import Closing
from agent_tunix.config.schema import DistributedConfig
from agent_tunix.errors import ConfigError
from agent_tunix.startup.program_cache import prepare_cache

# Of the mappings of memory that a process may have.
_MANY = 0.25
_PLATFORMS = {"gpu": "cuda"}
# XLA removes, on CPU alone, the barriers with which JAX keeps a backward pass from reusing what it was told to compute
# again: remat would then take more memory, not less, and quantised weights would lie dequantised for a whole pass.
_KEEP_BARRIERS = "--xla_disable_hlo_passes=cse_barrier_expander"
# On a CPU a third of the time in which XLA compiles goes into what makes a step 3 % faster at most.
_COMPILE_LESS = (
    "--xla_backend_extra_options=xla_cpu_disable_loop_unrolling,xla_cpu_disable_tiled_emitter",
    "--xla_backend_optimization_level=1",
)


def prepare(distributed: DistributedConfig) -> None:
    """Set the environment variables that JAX reads when it is imported."""
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


def require(distributed: DistributedConfig) -> None:
    """Import JAX and find its devices, and let only that of Tunix be imported which is used.

    Raises:
        ConfigError: There is none of the platform asked for.
    """
    import jax

    logging.getLogger("jax").setLevel(logging.WARNING)  # it tells of each platform that is not there
    try:
        jax.devices()
    except RuntimeError as error:
        raise ConfigError(
            f"distributed.platform={distributed.platform} finds no device: {error}. Install the extra for it, such as"
            f" agent_tunix[cuda] or agent_tunix[tpu], or set distributed.platform=auto",
            code="no_device",
        ) from error
    make_room_for_programs()


def make_room_for_programs() -> bool:
    """Have JAX forget the programs of earlier runs in this process, where they are many; whether it did.

    A program for a CPU takes some ten mappings of memory for as long as JAX remembers it, and one for which no more
    can be had ends the process with a segmentation fault. Linux lets a process have 65,530 unless told otherwise.
    """
    try:
        limit = int(Path("/proc/sys/vm/max_map_count").read_text())
        with open("/proc/self/maps", "rb") as file:
            taken = sum(1 for _ in file)
    except (OSError, ValueError):  # another system
        return False
    if taken < limit * _MANY:
        return False
    import jax

    jax.clear_caches()  # type: ignore[no-untyped-call]
    gc.collect()
    return True


class Compilations(Closing):
    """Counts, from the moment it is made, the programs that JAX compiles, and those that it finds in its cache.

    Attributes:
        count: Programs made ready, one way or the other.
        from_cache: Those of them that were in the cache.
        seconds: What making them ready took in all threads, without tracing.
    """

    def __init__(self) -> None:
        import jax

        self.count = self.from_cache = 0
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._compiled)
        jax.monitoring.register_event_listener(self._happened)

    def close(self) -> None:
        """Count no more; another call does nothing."""
        import jax

        # Tunix's metrics logger, as it closes, takes away every listener that there is.
        with contextlib.suppress(AssertionError):
            jax.monitoring.unregister_event_duration_listener(self._compiled)
            jax.monitoring.unregister_event_listener(self._happened)

    def to_data(self) -> dict[str, float]:
        """Ready for JSON."""
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
    """Whether JAX will find nothing but the CPU."""
    if platforms := os.environ.get("JAX_PLATFORMS"):
        return platforms == "cpu"
    if importlib.util.find_spec("libtpu") or importlib.metadata.entry_points(group="jax_plugins"):
        return False
    plugins = importlib.util.find_spec("jax_plugins")
    return plugins is None or not any(pkgutil.iter_modules(plugins.submodule_search_locations))
