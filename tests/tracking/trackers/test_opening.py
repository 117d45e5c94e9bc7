"""Trackers by name, and the process of each, with a tracker of an installed package."""

import contextlib
import importlib.metadata
import itertools
import logging
import pickle
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.schema import Config, TrackingConfig
from agent_tunix.errors import ConfigError
from agent_tunix.tracking.trackers import TrackedRun, Tracker, chosen_trackers, open_trackers, process
from tests.raising import raises

CODE = """
import sys, time

print("a line of the program")

class Diary:
    url = None

    def __init__(self, run):
        if run.project == "burnt":
            raise OSError("no paper")
        if run.project == "late":
            time.sleep(1000)
        self.id = run.id or "first"
        self.file = (run.directory / "diary.txt").open("a")
        self.write("open", self.id, run.project, run.parameters["optimizer.learning_rate"])

    def write(self, *words):
        print(*words, file=self.file, flush=True)

    def log(self, step, metrics):
        if step == 8:
            time.sleep(1000)
        if step == 9:
            raise OSError("no ink")
        self.write("log", step, metrics)

    def log_samples(self, step, samples):
        self.write("samples", step, samples)

    def flush(self):
        self.write("flush")

    def close(self, failed=False):
        self.write("close", failed)
"""


@pytest.fixture(autouse=True)
def diary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write what an installer leaves of a distribution with a tracker."""
    site = tmp_path_factory.mktemp("site")
    (site / "diary.py").write_text(CODE)
    info = site / "diary-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: diary\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[agent_tunix.trackers]\ndiary = diary:Diary\n")
    monkeypatch.syspath_prepend(site)


def open_one(run_dir: Path, name: str = "diary", project: str = "mine") -> Tracker:
    config = Config(project_name=project, tracking=TrackingConfig(tensorboard=False, trackers=[name]))
    config.optimizer.learning_rate = 0.25
    (tracker,) = open_trackers(config, run_dir, run_dir)
    return tracker


def lines(run_dir: Path) -> list[str]:
    return (run_dir / "diary.txt").read_text().splitlines()


def test_a_tracker_of_an_installed_package_gets_the_run_in_a_process_of_its_own(tmp_path: Path) -> None:
    tracker = open_one(tmp_path)
    tracker.log_samples(1, [])
    tracker.log(1, {"rewards/total/mean": 0.5, "policy/kl": None})
    tracker.flush()
    tracker.close()
    expected = ["samples 1 []", "log 1 {'rewards/total/mean': 0.5, 'policy/kl': None}", "flush", "close False"]
    assert lines(tmp_path)[1:] == expected
    assert "diary" not in sys.modules
    assert (tmp_path / "diary_tracker.log").read_text() == "a line of the program\n"


def test_a_resumed_run_continues_under_the_id_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "diary_run_id").write_text("earlier")
    tracker = open_one(tmp_path)
    tracker.close(failed=True)
    assert tracker.id == "earlier"
    assert lines(tmp_path) == ["open earlier mine 0.25", "close True"]


def test_a_tracker_that_fails_is_told_of_once_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = open_one(tmp_path)
    for step in (9, 10):
        tracker.log(step, {})
    tracker.close()
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert "OSError: no ink" in record.getMessage()
    assert len(lines(tmp_path)) == 1


def test_a_run_ends_although_its_tracker_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "CLOSE_TIMEOUT_S", 0.2)
    tracker = open_one(tmp_path)
    tracker.log(8, {})
    tracker.close()
    assert "no answer" in caplog.records[-1].getMessage()


KILLED = """
import os, pathlib, sys
from agent_tunix.config.schema import Config, TrackingConfig
from agent_tunix.tracking.trackers import open_trackers
run_dir = pathlib.Path(sys.argv[1])
(tracker,) = open_trackers(Config(tracking=TrackingConfig(tensorboard=False, trackers=["diary"])), run_dir, run_dir)
tracker.log(1, {"a": 1})
os.kill(os.getpid(), 9)
"""


def test_rows_of_a_run_that_was_killed_are_recorded(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=environment, check=False)
    assert done.returncode == -9
    for _ in itertools.takewhile(lambda _: "close True" not in lines(tmp_path), itertools.count()):
        time.sleep(0.05)
    assert lines(tmp_path)[1:] == ["log 1 {'a': 1}", "close True"]


WAITING = "import sys; from {0} import process as p; p.CLOSE_TIMEOUT_S = 0.1; p.serve(int(sys.argv[1]))"


def test_a_tracker_that_is_still_opened_ends_with_a_run_that_was_killed(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", WAITING.format(process.__package__), str(theirs.fileno())]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    with theirs, subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment) as child:
        with ours:
            point = importlib.metadata.EntryPoint("diary", "diary:Diary", "agent_tunix.trackers")
            ours.sendall(pickle.dumps((point, TrackedRun("late", "run", tmp_path, {}), [])))
        assert child.wait() == 1


def test_a_run_that_is_interrupted_while_it_opens_a_tracker_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[subprocess.Popen[bytes]] = []

    def interrupt(tracker: Any, timeout_s: float) -> None:
        begun.append(tracker._process)
        raise KeyboardInterrupt

    monkeypatch.setattr(process.TrackerProcess, "_receive", interrupt)
    with contextlib.suppress(KeyboardInterrupt):
        open_one(tmp_path, project="late")
    assert [one.returncode for one in begun] == [-9]


def test_a_tracker_that_cannot_be_opened_is_a_configuration_error(tmp_path: Path) -> None:
    with raises(ConfigError, "tracker_failed", "OSError: no paper"):
        open_one(tmp_path, project="burnt")


def test_an_unknown_name_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    with raises(ConfigError, "unknown_tracker", "did you mean swanlab?") as caught:
        open_one(tmp_path, "swan_lab")
    assert {"tensorboard", "wandb", "mlflow", "trackio", "clearml", "comet", "diary"} <= {
        word.strip(",; ") for word in str(caught.value).split()
    }


OWN = {
    "wandb": "wandb",
    "mlflow": "mlflow",
    "trackio": "trackio",
    "swanlab": "swanlab",
    "clearml": "clearml",
    "comet": "comet_ml",
}


@pytest.mark.parametrize("name", OWN)
def test_a_package_that_is_not_installed_is_an_error_with_its_extra(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, OWN[name], None)
    with raises(ConfigError, "missing_package", f"agent_tunix[{name}]"):
        open_one(tmp_path, name)


def test_older_keys_choose_the_same_trackers() -> None:
    assert chosen_trackers(Config()) == []
    config = Config(wandb_disabled=False, tracking=TrackingConfig(mlflow=True, trackers=["comet", "wandb"]))
    assert chosen_trackers(config) == ["wandb", "mlflow", "comet"]
