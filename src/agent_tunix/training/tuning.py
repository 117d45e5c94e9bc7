"""Hyperparameter search with Optuna: `agent-tunix tune`. Each trial is a run in its own process and directory.

    DIR/
      study.db         Optuna's storage, unless another is given
      trial_0000/      the run of the first trial, with its output in output.txt

An interrupted search continues where it stopped: the storage counts the trials, and a trial that was interrupted is
marked as failed. Importing this module loads neither Optuna nor JAX.
"""

import contextlib
import dataclasses
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from agent_tunix.config.checks import check
from agent_tunix.errors import AgentTunixError, ConfigError, RunDirectoryError
from agent_tunix.execution.workers.linux import die_with_parent
from agent_tunix.overrides import assign
from agent_tunix.runs.algorithm_setup import register_own_algorithm
from agent_tunix.runs.directory import hold
from agent_tunix.runs.weights.starting_run import compose_start
from agent_tunix.tracking.metrics_file import is_number, read_rows
from agent_tunix.tracking.summary import MEASURES

_LOGGER = logging.getLogger("agent_tunix.tune")
_POLL_S = 0.5
# Time that a stopping trial has to save its checkpoint.
_GRACE_S = 60.0
# Number of trials to complete before a later one can be pruned.
_TRIALS_BEFORE_PRUNING = 3


@dataclass(frozen=True)
class Choice:
    """A dimension with a list of values, written as in an override."""

    values: tuple[str, ...]

    def first(self) -> str:
        """Return a value with which to check the configuration."""
        return self.values[0]

    def suggest(self, trial: Any, key: str) -> str:
        """Return the value that a trial takes for this parameter."""
        return str(trial.suggest_categorical(key, list(self.values)))


@dataclass(frozen=True)
class SearchRange:
    """A dimension of numbers from `low` to `high`, both included. If both are integers, the values are too."""

    low: float
    high: float
    log: bool = False
    step: float | None = None

    def first(self) -> str:
        """Return a value with which to check the configuration."""
        return repr(self.low)

    def suggest(self, trial: Any, key: str) -> str:
        """Return the value that a trial takes for this parameter."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            step = {} if self.step is None else {"step": int(self.step)}
            return repr(trial.suggest_int(key, self.low, self.high, log=self.log, **step))
        return repr(trial.suggest_float(key, self.low, self.high, log=self.log, step=self.step))


Dimension = Choice | SearchRange


@dataclass(frozen=True)
class Search:
    """The settings of a search."""

    fixed: Sequence[str]  # overrides of every trial
    space: Mapping[str, Dimension]  # key → its dimension
    # Metric of metrics.jsonl, whose last value is the value of a trial; None for the first of `MEASURES` in each row.
    metric: str | None
    direction: str  # "max" or "min"
    trials: int  # number of trials, including those of an interrupted search
    directory: Path
    storage: str | None = None  # URL of Optuna's storage; None for study.db in the directory
    prune: bool = False  # True to stop a trial that is worse at some step than the median of the earlier trials
    seed: int = 0  # seed of Optuna's sampler


@dataclass(frozen=True)
class Best:
    """The best completed trial."""

    number: int
    value: float
    overrides: Mapping[str, str]


class TrialError(AgentTunixError, RuntimeError):
    """A trial whose run failed or has no value of the metric."""


def tune(search: Search) -> Best | None:
    """Run trials up to the requested number, and return the best one; None if none was completed.

    Raises:
        ConfigError: Optuna is missing, the configuration is invalid, or the storage holds another search.
        RunDirectoryError: Another search runs in the directory.
    """
    optuna = _import_optuna()
    _check_first_trial(search)
    with _held(search.directory), _ended_by_signals():
        study = _open_study(optuna, search)
        while (number := len(study.trials)) < search.trials:
            _LOGGER.info("trial %d of %d", number + 1, search.trials)
            _take_trial(optuna, study, search)
        completed = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
        if not completed:
            return None
        best = study.best_trial
        return Best(best.number, float(best.value), dict(best.user_attrs["overrides"]))


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(
            'a search requires Optuna, which is not installed; pip install "agent_tunix[sweep]"', code="missing_package"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _check_first_trial(search: Search) -> None:
    """Refuse a search with an empty space or an invalid configuration, before any trial starts.

    Raises:
        ConfigError: The space is empty, or the first values give an invalid configuration.
    """
    if not search.space:
        raise ConfigError(
            "a search requires a key with more than one value, but there is none; add one, for example "
            "'grpo.beta=0,0.02' or 'optimizer.learning_rate=tag(log,interval(1e-5,1e-3))'",
            code="invalid_search",
        )
    config = compose_start([*search.fixed, *(f"{key}={value.first()}" for key, value in search.space.items())])
    check(config)
    register_own_algorithm(config, Path.cwd())


def _open_study(optuna: Any, search: Search) -> Any:
    """Open the study, and mark trials that an interrupted search left running as failed.

    Raises:
        ConfigError: The storage cannot be opened, or holds another search.
    """
    storage = search.storage or f"sqlite:///{search.directory / 'study.db'}"
    try:
        study = optuna.create_study(
            storage=storage,
            study_name="agent_tunix",
            direction={"max": "maximize", "min": "minimize"}[search.direction],
            pruner=optuna.pruners.MedianPruner(n_startup_trials=_TRIALS_BEFORE_PRUNING)
            if search.prune
            else optuna.pruners.NopPruner(),
            load_if_exists=True,
        )
    except Exception as error:  # SQLAlchemy raises many kinds
        raise ConfigError(
            f"Optuna cannot open {storage}: {type(error).__name__}: {error}; give another --storage",
            code="invalid_search",
        ) from error
    # The seed depends on the number of trials, so that a continued search does not draw the first values again.
    study.sampler = optuna.samplers.TPESampler(seed=search.seed + len(study.trials))
    description = {
        "metric": search.metric,
        "direction": search.direction,
        "fixed": list(search.fixed),
        "space": {key: dataclasses.asdict(value) for key, value in search.space.items()},
    }
    for name, value in description.items():
        value = json.loads(json.dumps(value))
        stored_value = study.user_attrs.get(name, value)
        if stored_value != value:
            raise ConfigError(
                f"{storage} contains a search whose {name} is {stored_value!r}, not {value!r}; continue with "
                f"{stored_value!r}, or choose another --directory",
                code="invalid_search",
            )
        study.set_user_attr(name, value)
    for trial in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return study


def _take_trial(optuna: Any, study: Any, search: Search) -> None:
    trial = study.ask()
    overrides = {key: dimension.suggest(trial, key) for key, dimension in search.space.items()}
    trial.set_user_attr("overrides", overrides)
    root = search.directory / f"trial_{trial.number:04d}"
    state, value = optuna.trial.TrialState, None
    try:
        value = _run_trial(trial, search, [f"{key}={value}" for key, value in overrides.items()], root)
        outcome = state.COMPLETE
    except optuna.TrialPruned:
        outcome = state.PRUNED
    except TrialError as error:
        _LOGGER.error("trial %d failed: %s", trial.number + 1, error)
        trial.set_user_attr("error", str(error))
        outcome = state.FAIL
    except BaseException:
        study.tell(trial, state=state.FAIL)
        raise
    study.tell(trial, value if outcome is state.COMPLETE else None, state=outcome)
    values = ", ".join(f"{key}={value}" for key, value in overrides.items())
    _LOGGER.info(
        "trial %d: %s with %s",
        trial.number + 1,
        f"{_measure(search)} {value:.4g}" if value is not None else outcome.name.lower(),
        values,
    )


def _run_trial(trial: Any, search: Search, overrides: Sequence[str], root: Path) -> float:
    """Run a trial in a process, and return the last value of the metric. The process has ended on return or error.

    Raises:
        TrialError: The run failed, or has no value of the metric.
        TrialPruned: Optuna pruned the trial.
    """
    import optuna

    root.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-P", "-m", "agent_tunix", "train", *search.fixed, *overrides]
    command.append(assign("hydra.run.dir", str(root)))
    reported = 0
    with (root / "output.txt").open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [*command, "tracking.progress=plain"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,  # ends the run if the search is killed
        )
        try:
            has_ended = False
            while not has_ended:
                # Checked first, so that rows written before the end are read below.
                has_ended = process.poll() is not None
                for step, value in _values(root, search, after=reported):
                    reported = step
                    trial.report(value, step)
                    if not has_ended and trial.should_prune():
                        raise optuna.TrialPruned
                if not has_ended:
                    time.sleep(_POLL_S)
        finally:
            _end(process)
    if process.returncode:
        lines = (root / "output.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise TrialError(f"its run exited with status {process.returncode}: {' '.join(lines[-3:])[-500:]}")
    values = [value for _, value in _values(root, search, after=0)]
    if not values:
        raise TrialError(f"no step of its run has a value of {_measure(search)}; see {root}")
    return values[-1]


def _measure(search: Search) -> str:
    return search.metric or " or ".join(MEASURES)


def _values(root: Path, search: Search, after: int) -> Iterator[tuple[int, float]]:
    """Yield step and value of the rows past a step that have the metric."""
    try:
        rows = read_rows(root / "metrics.jsonl")
    except RunDirectoryError:  # it does not exist yet
        return
    for row in rows:
        values = [row.get(name) for name in ([search.metric] if search.metric else MEASURES)]
        if row["step"] > after and (value := next(filter(is_number, values), None)) is not None:
            yield row["step"], float(value)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a run: ask it to stop, so that it saves a checkpoint, and kill it after `_GRACE_S` seconds."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    finally:  # a second Ctrl-C must not leave the run behind
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def _held(directory: Path) -> Iterator[None]:
    """Create and lock the directory, so that only one search uses it.

    Raises:
        RunDirectoryError: The directory cannot be written, or another search holds the lock.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirectoryError(
            f"{directory} cannot be written ({error}); choose another --directory", code="unwritable_directory"
        ) from error
    with hold(directory, name=".tune.lock", without_locks="choose another --directory"):
        yield


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Make SIGTERM act like Ctrl-C: end the running trial, then the search."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
