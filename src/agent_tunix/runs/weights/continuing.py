"""Continuing a run from a copy that is only read, such as yesterday's output, in a new directory.

The new directory gets the history of the other one: metrics, findings, rollouts, TensorBoard events, the run's names at
trackers, the newest intact checkpoint and the best one. After that it is a run like any other, and needs the other
directory no more.
"""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from agent_tunix.atomic_files import copy_files, sync_tree
from agent_tunix.config.schema import Config
from agent_tunix.errors import CheckpointError, ConfigError, ModelError, RunDirectoryError
from agent_tunix.runs.directory import RunPaths, locate
from agent_tunix.runs.found_run import find_run
from agent_tunix.tracking.outcome import RunStatus, read_outcome

_KEY = "training.continue_from"
_FILES = ("metrics.jsonl", "findings.jsonl", "*_run_id")


def find_continued(config: Config, root: Path) -> RunPaths | None:
    """Return the paths of the run that a new one continues; None if it continues none, or has done so before.

    Args:
        config: Configuration of the new run.
        root: Directory of the new run. If it holds a run already, that one is resumed.

    Raises:
        ConfigError: `training.continue_from` is no run, one that is running, or the new run itself.
    """
    given = config.training.continue_from
    if given is None or (config.training.resume and (root / "config.yaml").exists()):
        return None
    found = find_run(given, _KEY)
    if found.root.resolve() == root.resolve():
        raise ConfigError(
            f"{_KEY} must be another directory than that of the new run, {root}; set training.resume=true in its "
            "place, or choose another hydra.run.dir",
            code="invalid_request",
        )
    if read_outcome(found.root).status is RunStatus.RUNNING:
        raise ConfigError(
            f"{_KEY}={given} must be a run that has ended, but it is running; wait for it, or stop it",
            code="invalid_request",
        )
    return locate(found.config, found.root)


def earlier_directory(config: Config, root: Path) -> Path | None:
    """Return the directory that holds a run's history when it starts; None for a new run.

    Raises:
        ConfigError: `find_continued` refuses `training.continue_from`.
    """
    continued = find_continued(config, root)
    if continued is not None:
        return continued.root
    return root if config.training.resume else None


@contextlib.contextmanager
def naming_both(continued: RunPaths | None, root: Path) -> Iterator[None]:
    """Name both directories in an error about a run that another one continues."""
    try:
        yield
    except (CheckpointError, ModelError, RunDirectoryError) as error:
        if continued is None:
            raise
        raise type(error)(f"{root} cannot continue {continued.root}: {error}", code=error.code) from error


def copy_history(continued: RunPaths, to: RunPaths) -> None:
    """Copy the metrics, findings, rollouts and events of a run into the directory of the one that continues it.

    Those of steps after the checkpoint are removed from the copy later, as in any resumed run.

    Raises:
        RunDirectoryError: A file cannot be read or written.
    """
    try:
        for path in [path for pattern in _FILES for path in continued.root.glob(pattern)]:
            shutil.copyfile(path, to.root / path.name)
        copy_files(continued.rollouts, to.rollouts)
        copy_files(continued.tensorboard, to.tensorboard)
        sync_tree(to.root)
    except OSError as error:
        raise RunDirectoryError(
            f"the history of {continued.root} could not be copied to {to.root}: {error}; free some space, or choose "
            "another hydra.run.dir",
            code="unwritable_directory",
        ) from error
