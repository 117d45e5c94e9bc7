"""MLflow as a tracker: metrics, the configuration as parameters, and the report as an artefact of the run.

MLflow's telemetry is switched off: data leaves the machine only if the store's address is remote.
"""

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_tunix.tracking.samples import ShownSample
from agent_tunix.tracking.trackers.protocol import TrackedRun, split

# MLflow's limits on parameters per call and on the length of a value.
_PARAMETERS_A_CALL, _PARAMETER_LENGTH = 100, 500
_NOT_IN_A_NAME = re.compile(r"[^\w./: -]")


class MlflowTracker:
    """A tracker that sends the numbers of each step to an MLflow store, by default a local file."""

    url: str | None = None

    def __init__(self, run: TrackedRun) -> None:
        self._client = _open_client(run.config["tracking"]["mlflow_uri"])
        if run.id is None:
            self.id = self._create(run)
        else:
            self.id = run.id
            self._client.update_run(run.id, status="RUNNING")

    def _create(self, run: TrackedRun) -> str:
        from mlflow.entities import Param

        experiment = self._client.get_experiment_by_name(run.project)
        number = experiment.experiment_id if experiment else self._client.create_experiment(run.project)
        run_id = str(self._client.create_run(number, run_name=run.name).info.run_id)
        # Log parameters only once: MLflow refuses to change one, and a resumed run has training.resume=true.
        parameters = [Param(_named(name), _shorten(value)) for name, value in run.parameters.items()]
        for start in range(0, len(parameters), _PARAMETERS_A_CALL):
            self._client.log_batch(run_id, params=parameters[start : start + _PARAMETERS_A_CALL])
        return run_id

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Send the numbers of a step."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        values = [Metric(_named(name), float(value), now, step) for name, value in split(metrics)[0].items()]
        self._client.log_batch(self.id, metrics=values)

    def log_samples(self, step: int, samples: Sequence[ShownSample]) -> None:
        """Do nothing: MLflow has no place for texts of a step."""

    def flush(self) -> None:
        """Do nothing: `log` returns when the store has the row."""

    def close(self, failed: bool = False) -> None:
        """Record how the run ended."""
        self._client.set_terminated(self.id, "FAILED" if failed else "FINISHED")


def attach_files(uri: str | None, run_dir: Path, files: Iterable[Path]) -> None:
    """Attach files to the MLflow run named in a run's directory; do nothing if there is none."""
    id_file = run_dir / "mlflow_run_id"
    if not id_file.exists():
        return
    client, run_id = _open_client(uri), id_file.read_text(encoding="utf-8").strip()
    for path in files:
        client.log_artifact(run_id, str(path))


def _open_client(uri: str | None) -> Any:
    # By default MLflow retries for minutes and reports its use over the network.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    default = f"sqlite:///{Path.cwd() / 'mlflow.db'}"
    return MlflowClient(tracking_uri=uri or os.environ.get("MLFLOW_TRACKING_URI") or default)


def _named(name: str) -> str:
    return _NOT_IN_A_NAME.sub("_", name)


def _shorten(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _PARAMETER_LENGTH else f"{text[: _PARAMETER_LENGTH - 1]}…"
