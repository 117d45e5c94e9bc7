"""The directory of a run: its paths, its lock, and atomic writes."""

import contextlib
import dataclasses
import datetime
import fcntl
import glob
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_tunix.atomic_files import make_directory, write_atomically
from agent_tunix.config.schema import Config
from agent_tunix.errors import RunDirectoryError
from agent_tunix.file_locks import has_no_locks
from agent_tunix.policy.files.teacher import has_teacher_model

# A process that checks if a run is active, as the service often does, holds the lock for a few microseconds.
_ATTEMPTS, _PAUSE_S = 10, 0.02

# Sources whose `path` names a dataset on a hub, not a file.
_HUBS = ("huggingface", "tfds", "kaggle")


@dataclass(frozen=True)
class RunPaths:
    """Paths of a run's files."""

    root: Path  # the run's directory, which is Hydra's
    checkpoints: Path  # `training.checkpoint_dir`, or `checkpoints/`
    tensorboard: Path  # `training.log_dir`, or `tensorboard/`

    @property
    def config(self) -> Path:
        """Path of the configuration that the run was started with."""
        return self.root / "config.yaml"

    @property
    def metrics(self) -> Path:
        """Path of the metrics: one JSON object for each step."""
        return self.root / "metrics.jsonl"

    @property
    def findings(self) -> Path:
        """Path of the findings of the diagnosis: one JSON object for each."""
        return self.root / "findings.jsonl"

    @property
    def log(self) -> Path:
        """Path of the log of the first process."""
        return self.root / "train.log"

    def log_of(self, index: int) -> Path:
        """Return the path of the log of a process other than the first."""
        return self.root / f"train.process{index}.log"

    @property
    def environment(self) -> Path:
        """Path of the description of versions, devices, model and reward."""
        return self.root / "environment.json"

    def evaluation(self, step: int) -> Path:
        """Return the directory of what evaluation harnesses write after a step."""
        return self.root / "evaluation" / f"step_{step}"

    @property
    def rewards(self) -> Path:
        """Directory of the files of uploaded rewards."""
        return self.root / "rewards"

    @property
    def timings(self) -> Path:
        """Path of the wall times by phase and the counts of compiled programs."""
        return self.root / "timings.json"

    @property
    def rollouts(self) -> Path:
        """Directory of the stored completions, in Parquet."""
        return self.root / "rollouts"

    @property
    def profile(self) -> Path:
        """Directory of profiler traces, with `profile=true`."""
        return self.root / "profile"


def locate(config: Config, root: Path) -> RunPaths:
    """Return the paths of a run."""
    training = config.training
    return RunPaths(
        root=root,
        checkpoints=Path(training.checkpoint_dir) if training.checkpoint_dir else root / "checkpoints",
        tensorboard=Path(training.log_dir) if training.log_dir else root / "tensorboard",
    )


def with_absolute_places(config: Config) -> Config:
    """Return the configuration with absolute paths, which a later `evaluate.py` can use from any directory."""
    training, data, model, grpo = config.training, config.data, config.model, config.grpo
    training = dataclasses.replace(
        training,
        checkpoint_dir=_absolute(training.checkpoint_dir),
        log_dir=_absolute(training.log_dir),
        continue_from=_absolute(training.continue_from),
        train_data_dir=_absolute_where_it_is(training.train_data_dir),
        test_data_dir=_absolute_where_it_is(training.test_data_dir),
    )
    data = dataclasses.replace(
        data,
        path=_absolute_data(data.path, data.source),
        mixture={name: _absolute_set(one, data.source) for name, one in data.mixture.items()},
    )
    model = dataclasses.replace(model, path=_absolute_where_it_is(model.path))
    if has_teacher_model(config):
        grpo = dataclasses.replace(grpo, teacher=_absolute_where_it_is(grpo.teacher))
    return dataclasses.replace(config, training=training, data=data, model=model, grpo=grpo)


def _absolute(path: str | None) -> str | None:
    return str(Path(path).absolute()) if path else None


def _absolute_where_it_is(path: str | None) -> str | None:
    """Return the absolute form of a path or pattern that matches something on disk.

    Anything else, such as a name on a hub, is returned unchanged.
    """
    found = os.path.expanduser(path or "")
    return os.path.abspath(found) if path and (os.path.exists(found) or glob.glob(found)) else path


def _absolute_data(path: str | None, source: str) -> str | None:
    """Return the absolute path of local data.

    The name of a hub's dataset stays as it is, even if a local directory has the same name.
    """
    return path if source in _HUBS else _absolute_where_it_is(path)


def _absolute_set(keys: Any, source: str) -> Any:
    """Return the keys of one set of a mixture, with an absolute path."""
    if not isinstance(keys, dict) or not isinstance(keys.get("path"), str):
        return keys
    return {**keys, "path": _absolute_data(keys["path"], str(keys.get("source", source)))}


def claim(config: Config, root: Path) -> RunPaths:
    """Create the run's directories. Refuse a directory that holds a run, unless this run resumes it.

    Raises:
        RunDirectoryError: The directory holds a run, or cannot be written.
    """
    places = locate(config, root)
    if places.config.exists() and not config.training.resume:
        raise RunDirectoryError(
            f"{root} already contains a run; resume it with training.resume=true, or choose another hydra.run.dir "
            "(in Python, another directory=)",
            code="directory_taken",
        )
    if not config.training.resume and any(places.checkpoints.glob("step_*")):
        raise RunDirectoryError(
            f"{places.checkpoints} already contains checkpoints; resume from them with training.resume=true, or choose"
            f" another training.checkpoint_dir",
            code="directory_taken",
        )
    try:
        for directory in (root, places.checkpoints, places.tensorboard.parent):
            make_directory(directory)
            probe = directory / ".writable"
            probe.touch()
            probe.unlink()
    except OSError as error:
        raise RunDirectoryError(
            f"the run's directories cannot be written ({error}); choose others with hydra.run.dir=DIR,"
            " training.checkpoint_dir=DIR and training.log_dir=DIR",
            code="unwritable_directory",
        ) from error
    return places


@contextlib.contextmanager
def hold(
    root: Path,
    lock: bool = True,
    *,
    name: str = ".lock",
    without_locks: str = "set training.lock=false, and see to it that no other run uses the directory, or choose "
    "another hydra.run.dir",
) -> Iterator[None]:
    """Lock a run's directory. The operating system releases the lock when the process ends, even if it is killed.

    Args:
        root: Directory of the run.
        lock: False to do nothing, for a disk without locks.
        name: Name of the file to lock; created if it does not exist.
        without_locks: Remedy for a disk without locks, for the error message.

    Raises:
        RunDirectoryError: Another process holds the lock, the disk has no locks, or the file cannot be opened.
    """
    if not lock:
        yield
        return
    try:
        held = (root / name).open("ab")
    except OSError as error:
        raise RunDirectoryError(f"{root / name} cannot be locked: {error}", code="unwritable_directory") from error
    with held as file:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if has_no_locks(error):
                    raise RunDirectoryError(
                        f"{root} requires a disk with locks, but its disk has none ({error.strerror}); {without_locks}",
                        code="no_locks",
                    ) from error
                if attempt == _ATTEMPTS:
                    raise RunDirectoryError(
                        f"another process is using {root}; wait for it, or stop it", code="directory_in_use"
                    ) from error
                time.sleep(_PAUSE_S)
        yield


def describe_environment(
    reward: str,
    fingerprint: dict[str, Any],
    model: dict[str, str | None],
    tokenizer: str | None,
    devices: list[str],
    context: dict[str, Any],
) -> dict[str, Any]:
    """Return the content of `environment.json`.

    Args:
        reward: Description of the reward.
        fingerprint: Fingerprint of the reward.
        model: Path, directory and digest of the model.
        tokenizer: Fingerprint of the tokenizer; None if there is none.
        devices: Names of the devices.
        context: Facts about the run that its diagnosis needs.
    """
    packages = ("agent_tunix", "google-tunix", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "pyarrow")
    return {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "working_directory": os.getcwd(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "devices": devices,
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "reward": reward,
        "reward_fingerprint": fingerprint,
        "model": model,
        "tokenizer_fingerprint": tokenizer,
        "context": context,
    }


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically; raise RunDirectoryError if the disk is full or the directory cannot be written."""
    write_text(path, json.dumps(value, indent=1, default=str) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically; raise RunDirectoryError if the disk is full or the directory cannot be written."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically, and create its directory.

    Raises:
        RunDirectoryError: The disk is full or the directory cannot be written.
    """
    try:
        write_atomically(path, content)
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be written: {error}", code="unwritable_directory") from error
