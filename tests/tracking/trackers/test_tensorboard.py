"""TensorBoard's files."""

import math
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tensorboardX.proto.event_pb2 import Event

from agent_tunix.config.schema import Config, TrackingConfig
from agent_tunix.errors import RunDirectoryError
from agent_tunix.tracking.samples import ShownSample
from agent_tunix.tracking.trackers import open_trackers
from agent_tunix.tracking.trackers.tensorboard import TensorBoardTracker
from tests.raising import raises

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
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "went on\n"
    assert done.stderr.count("TensorBoard failed and is disabled; the run continues") == 1
    assert "File too large" in done.stderr
