"""Opening of the trackers that a configuration names."""

import dataclasses
import importlib.metadata
import importlib.util
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agent_tunix.config.limits import suggest
from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError
from agent_tunix.tracking.samples import ShownSample
from agent_tunix.tracking.trackers.process import TrackerProcess
from agent_tunix.tracking.trackers.protocol import TrackedRun, Tracker
from agent_tunix.tracking.trackers.tensorboard import TensorBoardTracker

logger = logging.getLogger(__name__)

ENTRY_POINTS = "agent_tunix.trackers"


class _Own(NamedTuple):
    title: str
    package: str
    advice: str  # if no run can be opened
    in_process: bool = False  # the client has a process of its own, and callbacks of users expect it in theirs


# A checkout that was installed before a tracker was added has no entry point of it, so these need none.
_OWN = {
    "wandb": _Own(
        "Weights & Biases", "wandb", "run `wandb login`, or set WANDB_MODE=offline to send the metrics later", True
    ),
    "mlflow": _Own("MLflow", "mlflow", "set tracking.mlflow_uri to an existing store, for example sqlite:///mlflow.db"),
    "trackio": _Own("Trackio", "trackio", "unset TRACKIO_SPACE_ID and TRACKIO_SERVER_URL to write to this machine"),
    "swanlab": _Own("SwanLab", "swanlab", "run `swanlab login`, or set SWANLAB_MODE=offline to send the metrics later"),
    "clearml": _Own("ClearML", "clearml", "run `clearml-init`, or set CLEARML_OFFLINE_MODE=1 to import them later"),
    "comet": _Own("Comet", "comet_ml", "run `comet login`, or set COMET_START_ONLINE=0 to send the metrics later"),
}


class _Guarded:
    """A wrapper that logs the first failure of its tracker as an error, then switches the tracker off."""

    def __init__(self, tracker: Tracker, name: str) -> None:
        self._tracker: Tracker | None = tracker
        self._name = name
        self.id, self.url = tracker.id, tracker.url

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        self._attempt(lambda tracker: tracker.log(step, metrics))

    def log_samples(self, step: int, samples: Sequence[ShownSample]) -> None:
        self._attempt(lambda tracker: tracker.log_samples(step, samples))

    def flush(self) -> None:
        self._attempt(lambda tracker: tracker.flush())

    def close(self, failed: bool = False) -> None:
        self._attempt(lambda tracker: tracker.close(failed))
        self._tracker = None

    def _attempt(self, action: Callable[[Tracker], None]) -> None:
        if self._tracker is None:
            return
        try:
            action(self._tracker)
        except Exception as error:  # a tracker's client may raise anything, and must not stop the run
            self._tracker = None
            logger.error(
                "%s failed and is disabled; the run continues, and metrics.jsonl has every row (%s: %s)",
                self._name,
                type(error).__name__,
                error,
            )


def open_trackers(config: Config, log_dir: Path, run_dir: Path, resume_step: int | None = None) -> list[Tracker]:
    """Open the trackers that the configuration asks for.

    Args:
        config: Configuration with `tracking.tensorboard`, `tracking.trackers`, `tracking.mlflow` and `wandb_disabled`.
        log_dir: Directory for TensorBoard events.
        run_dir: Directory of the run.
        resume_step: Last step that a resumed run keeps; None for a new run.

    Raises:
        ConfigError: A tracker is unknown, or cannot be used.
        RunDirectoryError: The directory of the events cannot be written.
    """
    points = {name: _find(name) for name in chosen_trackers(config) if name != "tensorboard"}
    trackers: list[Tracker] = []
    if config.tracking.tensorboard or "tensorboard" in config.tracking.trackers:
        tensorboard = TensorBoardTracker(log_dir, config.training.flush_every_n_steps, resume_step)
        trackers.append(_Guarded(tensorboard, "TensorBoard"))
    try:
        for name, point in points.items():
            trackers.append(_Guarded(_open(point, config, run_dir), _OWN[name].title if name in _OWN else name))
    except BaseException:
        for tracker in trackers:
            tracker.close(failed=True)
        raise
    return trackers


def chosen_trackers(config: Config) -> list[str]:
    """Return the names of the trackers that the configuration asks for, each once."""
    older = ["wandb"] * (not config.wandb_disabled) + ["mlflow"] * config.tracking.mlflow
    return list(dict.fromkeys([*older, *config.tracking.trackers]))


def known_trackers() -> list[str]:
    """Return the names that `tracking.trackers` may hold."""
    installed = importlib.metadata.entry_points(group=ENTRY_POINTS)
    return sorted({"tensorboard", *_OWN, *(point.name for point in installed)})


def _find(name: str) -> importlib.metadata.EntryPoint:
    """Return the entry point of a tracker, whose package is installed.

    Raises:
        ConfigError: There is no such tracker, or no such package.
    """
    if name not in _OWN:
        for point in importlib.metadata.entry_points(group=ENTRY_POINTS, name=name):
            return point
        known = known_trackers()
        raise ConfigError(
            f"tracking.trackers: there is no tracker {name!r}{suggest(name, known)}; {', '.join(known)} exist, and a "
            f"package may add others by entry points of {ENTRY_POINTS}",
            code="unknown_tracker",
        )
    if importlib.util.find_spec(_OWN[name].package) is None:
        raise ConfigError(
            f"the tracker {name} requires the package {_OWN[name].package}, which is not installed;"
            f' pip install "agent_tunix[{name}]"',
            code="missing_package",
        )
    module = f"{__package__}.{name}:{name.capitalize()}Tracker"
    return importlib.metadata.EntryPoint(name, module, ENTRY_POINTS)


def _open(point: importlib.metadata.EntryPoint, config: Config, run_dir: Path) -> Tracker:
    """Open a tracker under the id of the file `NAME_run_id`, which it writes for a resumed run."""
    id_file = run_dir / f"{point.name}_run_id"
    known_id = id_file.read_text(encoding="utf-8").strip() if id_file.exists() else None
    name = "/".join(run_dir.parts[-2:])
    project = (config.training.wandb_project if point.name == "wandb" else None) or config.project_name
    run = TrackedRun(project, name, run_dir, dataclasses.asdict(config), known_id)
    own = _OWN.get(point.name, _Own(point.name, point.name, "see the page of its package"))
    try:
        tracker: Tracker = point.load()(run) if own.in_process else TrackerProcess(point, run)
    except Exception as error:  # a client may raise anything
        raise ConfigError(
            f"{own.title} cannot open a run: {error}; {own.advice}, or take {point.name} out of the configuration",
            code="tracker_failed",
        ) from error
    if tracker.id is not None:
        id_file.write_text(tracker.id, encoding="utf-8")
    logger.info("%s: run %s %s", point.name, tracker.id, tracker.url or "")
    return tracker
