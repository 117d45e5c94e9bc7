"""What JAX is told before it is imported: which devices to use, and where to keep compiled programs.

Importing this loads no JAX; `prepare` must be called before anything does, as `require` does. A variable that the user
has set stays.
"""

import logging
import os
from pathlib import Path

from agent_tunix.config.schema import DistributedConfig
from agent_tunix.errors import ConfigError

_PLATFORMS = {"gpu": "cuda"}
# Shorter compilations are not worth a file.
_MIN_COMPILE_S = "0.2"


def prepare(distributed: DistributedConfig) -> None:
    """Set the environment variables that JAX reads when it is imported."""
    if distributed.platform != "auto":
        os.environ["JAX_PLATFORMS"] = _PLATFORMS.get(distributed.platform, distributed.platform)
    if distributed.num_cpu_devices is not None:
        flag = f"--xla_force_host_platform_device_count={distributed.num_cpu_devices}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
    if distributed.compilation_cache is not None:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_directory(distributed.compilation_cache)))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", _MIN_COMPILE_S)


def require(distributed: DistributedConfig) -> None:
    """Import JAX and find its devices.

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
            f" agent_tunix[cuda] or agent_tunix[tpu], or set distributed.platform=auto"
        ) from error


def cache_directory(setting: str) -> Path:
    """Where compiled programs are kept: the directory given, or for `auto` one in the user's cache directory."""
    if setting != "auto":
        return Path(setting).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "agent_tunix" / "jax"
