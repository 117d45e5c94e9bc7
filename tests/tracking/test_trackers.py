"""TensorBoard's files and the real client of Weights & Biases."""

import importlib.util
import json
import math
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from agent_tunix.config.schema import Config, TrackingConfig
from agent_tunix.errors import ConfigError, RunDirectoryError
from agent_tunix.tracking.samples import ShownSample
from agent_tunix.tracking.trackers import TensorBoardTracker, open_trackers
from tests.raising import raises

needs_wandb = pytest.mark.skipif(
    importlib.util.find_spec("wandb") is None, reason='W&B is not installed; pip install "agent_tunix[wandb]"'
)

HISTOGRAM = {"counts": np.array([3, 1]), "edges": np.array([0.0, 0.5, 1.0])}


def read_events(log_dir: Path) -> Iterator[Any]:
    """The events of a directory, out of their length-prefixed records."""
    for path in sorted(log_dir.iterdir()):
        content = path.read_bytes()
        while content:
            (size,) = struct.unpack("<Q", content[:8])
            yield Event.FromString(content[12 : 12 + size])
            content = content[16 + size :]


def scalars(log_dir: Path) -> list[tuple[int, str, float]]:
    return [
        (event.step, value.tag, value.simple_value)
        for event in read_events(log_dir)
        for value in event.summary.value
        if value.WhichOneof("value") == "simple_value"
    ]


def test_numbers_become_scalars_and_unknown_ones_are_left_out(tmp_path: Path) -> None:
    tracker = TensorBoardTracker(tmp_path, flush_every_n_steps=10)
    tracker.log(1, {"rewards/total/mean": np.float32(0.5), "policy/kl": math.nan, "eval/accuracy": None, "name": "x"})
    tracker.log(2, {"rewards/total/mean": 1})
    tracker.close()
    assert scalars(tmp_path) == [(1, "rewards/total/mean", 0.5), (2, "rewards/total/mean", 1.0)]


def test_histogram_keeps_its_bins(tmp_path: Path) -> None:
    tracker = TensorBoardTracker(tmp_path, flush_every_n_steps=10)
    tracker.log(1, {"rewards/total/histogram": HISTOGRAM})
    tracker.close()
    (value,) = [value for event in read_events(tmp_path) for value in event.summary.value]
    assert value.tag == "rewards/total/histogram"
    assert list(value.histo.bucket) == [3, 1]
    assert list(value.histo.bucket_limit) == [0.5, 1.0]
    assert (value.histo.min, value.histo.max, value.histo.num) == (0.0, 1.0, 4)
    assert value.histo.sum == 3 * 0.25 + 0.75


SHOWN = [
    ShownSample("best", "3_0_1", "What is 2 + 2?", "4 <b>!</b>", "4", 1.0, 0.5, {"math": 1.0}, "scored", "exact"),
    ShownSample("worst", "3_0_2", "What is 2 + 2?", "five", "4", None, 0.0, {"math": None}, "error", "it broke"),
]


def test_completions_become_text_for_the_best_and_the_worst(tmp_path: Path) -> None:
    tracker = TensorBoardTracker(tmp_path, flush_every_n_steps=10)
    tracker.log_samples(3, SHOWN)
    tracker.close()
    values = [(event.step, value) for event in read_events(tmp_path) for value in event.summary.value]
    assert [(step, value.tag) for step, value in values] == [
        (3, "samples/best/text_summary"),
        (3, "samples/worst/text_summary"),
    ]
    assert {value.metadata.plugin_data.plugin_name for _, value in values} == {"text"}
    (text,) = values[0][1].tensor.string_val
    assert "response   4 <b>!</b>" in text.decode()
    assert "it broke" not in text.decode()


def test_events_reach_the_disk_every_so_many_steps_and_when_asked(tmp_path: Path) -> None:
    tracker = TensorBoardTracker(tmp_path, flush_every_n_steps=3)
    on_disk = []
    for step in range(1, 8):
        tracker.log(step, {"a": step})
        on_disk.append(len(scalars(tmp_path)))
    assert on_disk == [0, 0, 3, 3, 3, 6, 6]
    tracker.flush()
    assert len(scalars(tmp_path)) == 7
    tracker.close()


def test_resumed_run_hides_the_steps_it_takes_again(tmp_path: Path) -> None:
    for resume_step in (None, 5):
        tracker = TensorBoardTracker(tmp_path, flush_every_n_steps=1, resume_step=resume_step)
        tracker.close()
    starts = [event.step for event in read_events(tmp_path) if event.HasField("session_log")]
    assert starts == [6]
    assert len(list(tmp_path.iterdir())) == 2


def test_unwritable_directory_of_events_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with raises(RunDirectoryError, "unwritable_directory"):
        TensorBoardTracker(tmp_path / "file", flush_every_n_steps=1)


def test_configuration_decides_who_hears(tmp_path: Path) -> None:
    assert open_trackers(Config(tracking=TrackingConfig(tensorboard=False)), tmp_path / "events", tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    (tracker,) = open_trackers(Config(), tmp_path / "events", tmp_path)
    tracker.log(1, {"a": 1})
    tracker.close()
    assert scalars(tmp_path / "events") == [(1, "a", 1.0)]


FULL_DISK = """
import logging, pathlib, resource, sys
from agent_tunix.config.schema import Config, TrainingConfig
from agent_tunix.tracking.trackers import open_trackers
logging.basicConfig()
config = Config(training=TrainingConfig(flush_every_n_steps=1))
(tracker,) = open_trackers(config, pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
for step in range(50):
    tracker.log(step, {"a": step})
tracker.close()
print("went on")
"""


def test_full_disk_switches_tensorboard_off_and_the_run_goes_on(tmp_path: Path) -> None:
    done = run_program(FULL_DISK, tmp_path)
    assert done.stdout == "went on\n"
    assert done.stderr.count("TensorBoard failed and is disabled; the run continues") == 1
    assert "File too large" in done.stderr


def test_wandb_that_is_not_installed_is_a_configuration_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    config = Config(wandb_disabled=False, tracking=TrackingConfig(tensorboard=False))
    with raises(ConfigError, "missing_package"):
        open_trackers(config, tmp_path, tmp_path)


# Three steps through the real client, which starts a process of its own.
WANDB = """
import pathlib, sys
from agent_tunix.config.schema import Config, TrackingConfig, TrainingConfig
from agent_tunix.tracking.samples import ShownSample
from agent_tunix.tracking.trackers import open_trackers
config = Config(wandb_disabled=False, tracking=TrackingConfig(tensorboard=False),
                training=TrainingConfig(wandb_project="my_project"))
run_dir = pathlib.Path(sys.argv[1])
(tracker,) = open_trackers(config, run_dir, run_dir)
histogram = {"counts": [3, 1], "edges": [0.0, 0.5, 1.0]}
shown = ShownSample("best", "1_0_0", "a prompt", "sixty-seven", "4", None, 0.5, {"math": 1.0, "tags": None},
                    "error", "why")
for step in range(3):
    tracker.log_samples(step, [shown])
    tracker.log(step, {"rewards/total/mean": step / 2, "rewards/total/histogram": histogram, "x": None})
tracker.close()
"""


@pytest.mark.slow
@needs_wandb
def test_wandb_offline_keeps_metrics_on_disk_in_the_run_that_a_resumed_one_began(tmp_path: Path) -> None:
    (tmp_path / "wandb_run_id").write_text("earlier1")
    done = run_program(WANDB, tmp_path, WANDB_MODE="offline")
    assert done.returncode == 0, done.stderr
    (stored,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert stored.name == "run-earlier1.wandb"
    assert b"rewards/total/mean" in stored.read_bytes()
    assert b"my_project" in stored.read_bytes()
    tables = [json.loads(path.read_text()) for path in tmp_path.glob("wandb/offline-run-*/files/media/table/*.json")]
    assert sorted(table["data"][0][0] for table in tables) == [0, 1, 2]
    row = dict(zip(tables[0]["columns"], tables[0]["data"][0], strict=True))
    assert (row["response"], row["total"], row["rewards/math"], row["rewards/tags"]) == ("sixty-seven", None, 1.0, None)


@pytest.mark.slow
@needs_wandb
def test_wandb_without_a_key_says_what_to_do(tmp_path: Path) -> None:
    done = run_program(WANDB, tmp_path, WANDB_MODE="online", WANDB_BASE_URL="http://127.0.0.1:9")
    assert "ConfigError: Weights & Biases cannot open a run" in done.stderr
    assert "set WANDB_MODE=offline" in done.stderr


def run_program(program: str, run_dir: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter, whose home is the directory that it is given."""
    return subprocess.run(
        [sys.executable, "-c", program, str(run_dir)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), "HOME": str(run_dir), **environment},
    )
