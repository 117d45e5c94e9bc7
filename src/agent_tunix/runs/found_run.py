"""A run on disk, found by its path. Importing this module does not load JAX."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from agent_tunix.config.compose import from_yaml
from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError

Step = int | Literal["best"] | None


@dataclass(frozen=True)
class FoundRun:
    """A run on disk."""

    root: Path
    config: Config  # configuration that the run was started with
    checkpoints: Path


def find_run(given: str | Path, key: str = "checkpoint_dir") -> FoundRun:
    """Return the run of a directory.

    Args:
        given: Directory of the run, or of its checkpoints.
        key: The option that gave the path, for the error message.

    Raises:
        ConfigError: There is no config.yaml, or it is damaged.
    """
    path = Path(given).expanduser().absolute()
    root = path if (path / "config.yaml").is_file() else path.parent
    if not (root / "config.yaml").is_file():
        is_model = key == "checkpoint_dir" and (path / "config.json").is_file()
        advice = f"; for the model in it, set model.path={given} in place of {key}" if is_model else ""
        raise ConfigError(
            f"{key}={path} must be the directory of a run, but it has no config.yaml{advice}", code="invalid_run_config"
        )
    config = _with_own_programs(from_yaml(root / "config.yaml"))
    checkpoints = config.training.checkpoint_dir
    return FoundRun(root, config, Path(checkpoints).expanduser() if checkpoints else root / "checkpoints")


def _with_own_programs(config: Config) -> Config:
    """Return the configuration with the user's own compilation cache, because cache entries are executable code."""
    cache = None if config.distributed.compilation_cache is None else "auto"
    return replace(config, distributed=replace(config.distributed, compilation_cache=cache))


def check_step(step: object, key: str = "step") -> Step:
    """Return a valid choice of checkpoint: the number of a step, `best`, or None for the latest.

    Args:
        step: The user's choice.
        key: The option that gave it, for the error message.

    Raises:
        ConfigError: The choice is none of these.
    """
    if step is None or step == "best":
        return step
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        raise ConfigError(
            f"{key} must be the step of a checkpoint, 0, best or null, not {step!r}", code="invalid_request"
        )
    return step
