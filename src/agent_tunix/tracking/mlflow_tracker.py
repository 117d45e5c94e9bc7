"""MLflow as a tracker: metrics, the configuration as parameters, and the report as an artefact of the run.

MLflow's own background thread sends the metrics, so a slow store does not slow the run. MLflow's telemetry is switched
off: data leaves the machine only if the store's address is remote.
"""

import contextlib
import dataclasses
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError
from agent_tunix.tracking.metrics_file import is_number, to_plain
from agent_tunix.tracking.samples import ShownSample

RUN_ID_FILE = "mlflow_run_id"

# Longest wait for an unresponsive store at the end of a run.
_CLOSE_TIMEOUT_S = 60.0
# MLflow's limits on parameters per call and on the length of a value.
_PARAMETERS_A_CALL, _PARAMETER_LENGTH = 100, 500
_NOT_IN_A_NAME = re.compile(r"[^\w./: -]")


class MlflowTracker:
    """A tracker that sends the numbers of each step to an MLflow store, by default a local file.

    A resumed run continues the same MLflow run, whose id is in `mlflow_run_id` of the run's directory.

    Args:
        config: The run's configuration, logged as parameters.
        run_dir: Directory of the run; its last two parts become the name of the MLflow run.

    Raises:
        ConfigError: The package is missing, or the store cannot be opened.
    """

    def __init__(self, config: Config, run_dir: Path) -> None:
        with _explained(config):
            self._client = _open_client(config)
            self._run_id = self._open_run(config, run_dir)
        self._pending: Any = None

    def _open_run(self, config: Config, run_dir: Path) -> str:
        id_file = run_dir / RUN_ID_FILE
        if id_file.exists():
            run_id = id_file.read_text(encoding="utf-8").strip()
            self._client.update_run(run_id, status="RUNNING")
            return run_id
        from mlflow.entities import Param

        experiment = self._client.get_experiment_by_name(config.project_name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(config.project_name)
        run_id = str(self._client.create_run(number, run_name="/".join(run_dir.parts[-2:])).info.run_id)
        # Log parameters only once: MLflow refuses to change one, and a resumed run has training.resume=true.
        parameters = [Param(name, _shorten(value)) for name, value in flatten(dataclasses.asdict(config))]
        for start in range(0, len(parameters), _PARAMETERS_A_CALL):
            self._client.log_batch(run_id, params=parameters[start : start + _PARAMETERS_A_CALL])
        id_file.write_text(run_id, encoding="utf-8")
        return run_id

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Send the numbers of a step; other values are left out."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        values = [
            Metric(_NOT_IN_A_NAME.sub("_", name), float(value), now, step)
            for name, value in to_plain(metrics).items()
            if is_number(value)
        ]
        self._pending = self._client.log_batch(self._run_id, metrics=values, synchronous=False)

    def log_samples(self, step: int, samples: Sequence[ShownSample]) -> None:
        """Do nothing: MLflow has no place for texts of a step."""

    def flush(self) -> None:
        """Do nothing: waiting for the store would slow the run."""

    def close(self, failed: bool = False) -> None:
        """Wait at most a minute until everything is sent, and record how the run ended."""
        if self._pending is not None:
            _wait(self._pending)
        self._client.set_terminated(self._run_id, "FAILED" if failed else "FINISHED")


def attach_files(config: Config, run_dir: Path, files: Iterable[Path]) -> None:
    """Attach files to the MLflow run named in a run's directory; do nothing if there is none."""
    id_file = run_dir / RUN_ID_FILE
    if not id_file.exists():
        return
    client, run_id = _open_client(config), id_file.read_text(encoding="utf-8").strip()
    for path in files:
        client.log_artifact(run_id, str(path))


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and values of nested mappings; an empty mapping is a value."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield _NOT_IN_A_NAME.sub("_", f"{prefix}{name}"), value


def _shorten(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _PARAMETER_LENGTH else f"{text[: _PARAMETER_LENGTH - 1]}…"


def _open_client(config: Config) -> Any:
    # By default MLflow retries for minutes and reports its use over the network.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise ConfigError(
            "tracking.mlflow=true requires the package mlflow-skinny, which is not installed; pip install"
            ' "agent_tunix[mlflow]"',
            code="missing_package",
        ) from error
    return MlflowClient(tracking_uri=_store_of(config))


def _store_of(config: Config) -> str:
    default = f"sqlite:///{Path.cwd() / 'mlflow.db'}"
    return config.tracking.mlflow_uri or os.environ.get("MLFLOW_TRACKING_URI") or default


@contextlib.contextmanager
def _explained(config: Config) -> Iterator[None]:
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # MLflow, SQLAlchemy and requests raise many types
        reason = (str(error).strip().splitlines() or ["no details"])[0][:300]
        raise ConfigError(
            f"MLflow cannot open a run in {_store_of(config)}: {type(error).__name__}: {reason}; set "
            "tracking.mlflow_uri to an existing store, for example sqlite:///mlflow.db, or tracking.mlflow=false",
            code="tracker_failed",
        ) from error


def _wait(pending: Any) -> None:
    """Wait until an asynchronous MLflow operation is done, and raise its error.

    Raises:
        TimeoutError: The operation was not done in time.
    """
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            pending.wait()
        except BaseException as error:
            failures.append(error)

    # A daemon thread: an operation that never ends must not keep the process alive.
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(_CLOSE_TIMEOUT_S)
    if thread.is_alive():
        raise TimeoutError(f"the store did not accept the metrics within {_CLOSE_TIMEOUT_S:.0f} s")
    if failures:
        raise failures[0]
