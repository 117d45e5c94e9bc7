"""The real client of MLflow, with its store in a file."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.schema import Config, TrackingConfig
from agent_tunix.errors import ConfigError
from agent_tunix.tracking.mlflow_tracker import flatten
from agent_tunix.tracking.trackers import open_trackers
from tests.raising import raises

needs_mlflow = pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None, reason='MLflow is not installed; pip install "agent_tunix[mlflow]"'
)

LOG = """
import pathlib, sys
from agent_tunix.config.schema import Config, TrackingConfig
from agent_tunix.tracking.mlflow_tracker import attach_files
from agent_tunix.tracking.trackers import open_trackers
run_dir = pathlib.Path(sys.argv[1])
config = Config(project_name="mine", tracking=TrackingConfig(tensorboard=False, mlflow=True, mlflow_uri=sys.argv[2]))
config.optimizer.learning_rate = 0.25
(tracker,) = open_trackers(config, run_dir, run_dir)
histogram = {"counts": [3, 1], "edges": [0.0, 0.5, 1.0]}
for step in range(*map(int, sys.argv[3:5])):
    tracker.log(step, {"rewards/total/mean": step / 2, "rewards/total/histogram": histogram, "x": None, "a(b)": 1})
tracker.flush()
tracker.close(failed=len(sys.argv) > 5)
report = run_dir / "report.html"
report.write_text("a report")
attach_files(config, run_dir, [report])
"""

READ = """
import json, pathlib, sys
from mlflow import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[2])
(experiment,) = client.search_experiments(filter_string="name = 'mine'")
runs = client.search_runs([experiment.experiment_id])
print(json.dumps([{
    "id": run.info.run_id,
    "status": run.info.status,
    "params": run.data.params,
    "metrics": run.data.metrics,
    "history": [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "rewards/total/mean")],
    "files": [file.path for file in client.list_artifacts(run.info.run_id)],
} for run in runs]))
"""


def run_program(program: str, run_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: MLflow starts threads, and SQLAlchemy warns of MLflow's use of it."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(run_dir), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=run_dir,
    )


def read_back(run_dir: Path, store: str) -> list[dict[str, Any]]:
    done = run_program(READ, run_dir, store)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@needs_mlflow
def test_metrics_parameters_and_files_are_in_the_store_also_of_a_resumed_run(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    assert run_program(LOG, tmp_path, store, "0", "2", "failed").returncode == 0
    assert [run["status"] for run in read_back(tmp_path, store)] == ["FAILED"]
    done = run_program(LOG, tmp_path, store, "2", "4")
    assert done.returncode == 0, done.stderr
    assert "failed and is disabled" not in done.stderr
    (run,) = read_back(tmp_path, store)
    assert run["id"] == (tmp_path / "mlflow_run_id").read_text()
    assert run["status"] == "FINISHED"
    assert run["history"] == [[0, 0.0], [1, 0.5], [2, 1.0], [3, 1.5]]
    assert run["metrics"].keys() == {"rewards/total/mean", "a_b_"}
    assert run["params"]["optimizer.learning_rate"] == "0.25"
    assert run["params"]["grpo.num_generations"] == "8"
    assert run["files"] == ["report.html"]


@pytest.mark.slow
@needs_mlflow
def test_a_store_that_cannot_be_opened_says_what_to_do(tmp_path: Path) -> None:
    done = run_program(LOG, tmp_path, "http://127.0.0.1:9", "0", "1")
    assert "ConfigError: MLflow cannot open a run in http://127.0.0.1:9" in done.stderr
    assert "set tracking.mlflow_uri to an existing store" in done.stderr


def test_mlflow_that_is_not_installed_is_a_configuration_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with raises(ConfigError, "missing_package"):
        open_trackers(Config(tracking=TrackingConfig(tensorboard=False, mlflow=True)), tmp_path, tmp_path)


def test_nested_configuration_becomes_dotted_parameters() -> None:
    values = {"seed": 0, "reward": {"components": {}}, "rewards": {"args": {"a b?": {"x": [1, 2]}}}}
    assert dict(flatten(values)) == {"seed": 0, "reward.components": {}, "rewards.args.a b_.x": [1, 2]}
