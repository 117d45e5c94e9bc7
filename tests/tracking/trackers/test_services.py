"""The real clients of services, offline: what they store of a run and of its continuation."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from agent_tunix.tracking.trackers import TrackedRun
from agent_tunix.tracking.trackers.trackio import TrackioTracker

LOG = """
import pathlib, sys
from agent_tunix.config.schema import Config, TrackingConfig, TrainingConfig
from agent_tunix.tracking.samples import ShownSample
from agent_tunix.tracking.trackers import attach_files, open_trackers
run_dir = pathlib.Path(sys.argv[1])
config = Config(project_name="mine", training=TrainingConfig(wandb_project="my_project"),
                tracking=TrackingConfig(tensorboard=False, trackers=[sys.argv[2]]))
config.optimizer.learning_rate = 0.25
(tracker,) = open_trackers(config, run_dir, run_dir)
histogram = {"counts": [3, 1], "edges": [0.0, 0.5, 1.0]}
shown = ShownSample("best", "1_0_0", "a prompt", "sixty-seven", "4", None, 0.5, {"math": 1.0, "tags": None},
                    "error", "why")
for step in range(*map(int, sys.argv[3:5])):
    tracker.log_samples(step, [shown])
    tracker.log(step, {"rewards/total/mean": step / 2, "rewards/total/histogram": histogram, "x": None, "a(b)": 1})
tracker.flush()
tracker.close(failed=len(sys.argv) > 5)
(run_dir / "config.yaml").write_text("a configuration")
attach_files(None, run_dir, [run_dir / "config.yaml"])
"""

MLFLOW = """
from mlflow import MlflowClient
client = MlflowClient(tracking_uri="sqlite:///mlflow.db")
(experiment,) = client.search_experiments(filter_string="name = 'mine'")
(run,) = client.search_runs([experiment.experiment_id])
history = [[m.step, m.value] for m in client.get_metric_history(run.info.run_id, "rewards/total/mean")]
assert run.info.status == "FINISHED"
assert run.data.metrics.keys() == {"rewards/total/mean", "a_b_"}
assert run.data.params["grpo.num_generations"] == "8"
assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["config.yaml"]
show(history, run.data.params["optimizer.learning_rate"])
"""

WANDB = """
import json, pathlib
stored = sorted(pathlib.Path().glob("wandb/offline-run-*/run-*.wandb"))
assert len({path.name for path in stored}) == 1
assert all(b"rewards/total/mean" in path.read_bytes() and b"my_project" in path.read_bytes() for path in stored)
tables = [json.loads(path.read_text()) for path in pathlib.Path().glob("wandb/offline-run-*/files/media/table/*.json")]
row = dict(zip(tables[0]["columns"], tables[0]["data"][0], strict=True))
assert (row["response"], row["total"], row["rewards/math"], row["rewards/tags"]) == ("sixty-seven", None, 1.0, None)
show(sorted([table["data"][0][0], table["data"][0][0] / 2] for table in tables), 0.25)
"""

TRACKIO = """
import pathlib
from trackio.sqlite_storage import SQLiteStorage
(run,) = SQLiteStorage.get_runs("mine")
assert run == pathlib.Path("trackio_run_id").read_text()
rows = SQLiteStorage.get_logs("mine", run)
assert all(row["rewards/total/histogram"]["values"] == [3, 1] for row in rows if "a(b)" in row)
(first, *_) = (row["samples"]["_value"] for row in rows if "samples" in row)
assert first[0]["response"] == "sixty-seven"
mean = "rewards/total/mean"
show([[row["step"], row[mean]] for row in rows if mean in row],
     SQLiteStorage.get_run_config("mine", run)["optimizer"]["learning_rate"])
"""

SWANLAB = """
import pathlib, re
stored = sorted(pathlib.Path().glob("swanlog/run-*/run-*.swanlab"))
assert len({path.name for path in stored}) == 1
assert all(b"rewards/total/mean" in path.read_bytes() for path in stored)
texts = sorted(pathlib.Path().glob("swanlog/run-*/media/text/*.txt"))
assert all("sixty-seven" in path.read_text() for path in texts)
steps = [int(path.name[:3]) for path in texts]
config = stored[0].with_name("files") / "config.yaml"
(rate,) = re.findall(r"learning_rate:[^0-9]*([0-9.]+)", config.read_text())
show(sorted([step, step / 2] for step in steps), rate)
"""

CLEARML = """
import json, pathlib
values, tables = [], 0
for folder in pathlib.Path().glob(".clearml/cache/offline/offline-*/"):
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        for event in json.loads(line):
            if (event["metric"], event["variant"]) == ("rewards/total", "mean"):
                values.append([event["iter"], event["value"]])
            tables += "sixty-seven" in str(event)
    parameters = json.loads((folder / "task.json").read_text())["hyperparams"]["General"]
assert tables == 4
show(sorted(values), parameters["optimizer.learning_rate"]["value"])
"""

COMET = """
import json, pathlib, zipfile
values, names = [], set()
for path in pathlib.Path().glob("comet/*.zip"):
    names.add(path.name[:32])
    with zipfile.ZipFile(path) as archive:
        for line in archive.read("messages.json").decode().splitlines():
            payload = json.loads(line)["payload"]
            metric, param = payload.get("metric") or {}, payload.get("param") or {}
            if metric.get("metricName") == "rewards/total/mean":
                values.append([metric["step"], metric["metricValue"]])
            if param.get("paramName") == "optimizer.learning_rate":
                rate = param["paramValue"]
assert names == {pathlib.Path("comet_run_id").read_text()}
show(sorted(values), rate)
"""

SERVICES = {
    "mlflow": ("mlflow", MLFLOW),
    "wandb": ("wandb", WANDB),
    "trackio": ("trackio", TRACKIO),
    "swanlab": ("swanlab", SWANLAB),
    "clearml": ("clearml", CLEARML),
    "comet": ("comet_ml", COMET),
}
SHOW = "import json\ndef show(values, rate): print(json.dumps([values, float(rate)]))\n"
OFFLINE = {
    "WANDB_MODE": "offline",
    "SWANLAB_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "COMET_START_ONLINE": "0",
    "TRACKIO_AUTO_LOG_CPU": "0",
}


def run_program(program: str, run_dir: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a program in a fresh interpreter, whose home is the directory that it is given."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(run_dir), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=run_dir,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), "HOME": str(run_dir), **environment},
    )


def test_runs_in_directories_of_one_name_are_several_runs_of_trackio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = MagicMock()
    monkeypatch.setitem(sys.modules, "trackio", client)
    first, second = (TrackioTracker(TrackedRun("mine", "outputs/run", tmp_path, {})).id for _ in range(2))
    assert first != second
    assert TrackioTracker(TrackedRun("mine", "outputs/run", tmp_path, {}, first)).id == first
    assert [call.kwargs["name"] for call in client.init.call_args_list] == [first, second, first]


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVICES)
def test_a_run_and_its_continuation_are_one_run_of_the_service(name: str, tmp_path: Path) -> None:
    package, read = SERVICES[name]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    for arguments in (["0", "2", "failed"], ["2", "4"]):
        done = run_program(LOG, tmp_path, name, *arguments, **OFFLINE)
        assert done.returncode == 0, done.stderr
        assert "failed and is disabled" not in done.stderr
    done = run_program(SHOW + read, tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [[[0, 0.0], [1, 0.5], [2, 1.0], [3, 1.5]], 0.25]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_service_that_cannot_be_reached_says_what_to_do(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    nowhere = "http://127.0.0.1:9"
    done = run_program(LOG, tmp_path, name, "0", "1", MLFLOW_TRACKING_URI=nowhere, WANDB_BASE_URL=nowhere)
    assert "cannot open a run" in done.stderr
    assert ("tracking.mlflow_uri" if name == "mlflow" else "WANDB_MODE=offline") in done.stderr
