"""Record of a run's newest checkpoint, `checkpoints.json` in its directory.

It names the directories that the run has written checkpoints to. So a run that is resumed with another
`training.checkpoint_dir` finds its earlier checkpoints, and does not start from the beginning if they cannot be found.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from agent_tunix.config.compose import from_yaml
from agent_tunix.errors import ConfigError
from agent_tunix.runs.directory import RunPaths, write_json

_NAME = "checkpoints.json"


@dataclass(frozen=True)
class CheckpointRecord:
    """The newest checkpoint that a run has completed."""

    step: int | None  # its step; None if unknown
    directories: tuple[Path, ...]  # where the run has written checkpoints, the last one first


def read_record(paths: RunPaths) -> CheckpointRecord:
    """Return the record of a run. If it is missing or damaged, the stored configuration gives the directory."""
    try:
        stored = json.loads((paths.root / _NAME).read_bytes())
        # `/` keeps an absolute path. The others move with the run.
        return CheckpointRecord(int(stored["step"]), tuple(paths.root / str(one) for one in stored["directories"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return CheckpointRecord(None, _configured(paths))


def write_record(paths: RunPaths, step: int, earlier: CheckpointRecord) -> None:
    """Record a complete checkpoint in the run's present directory of checkpoints.

    Raises:
        RunDirectoryError: The disk is full, or the run's directory cannot be written.
    """
    directories = [str(_relative(one, paths.root)) for one in (paths.checkpoints, *earlier.directories)]
    write_json(paths.root / _NAME, {"step": step, "directories": list(dict.fromkeys(directories))})


def _configured(paths: RunPaths) -> tuple[Path, ...]:
    try:
        chosen = from_yaml(paths.config).training.checkpoint_dir if paths.config.exists() else None
    except ConfigError:  # a power cut may have damaged it
        chosen = None
    return (Path(chosen) if chosen else paths.root / "checkpoints",)


def _relative(path: Path, root: Path) -> Path:
    return path.relative_to(root) if path.is_relative_to(root) else path
