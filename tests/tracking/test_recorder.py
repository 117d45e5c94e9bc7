"""Metrics on their way out of a run: in order, beside it, and with no error lost."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.schema import Config, TrackingConfig
from agent_tunix.errors import RunDirectoryError
from agent_tunix.tracking import Recorder, read_rows
from agent_tunix.tracking.metrics_file import MetricsFile
from tests.raising import raises


def open_recorder(root: Path) -> Recorder:
    config = Config(tracking=TrackingConfig(tensorboard=False, progress="none"))
    return Recorder(config, root / "metrics.jsonl", root / "tensorboard", root, 10, None)


def test_every_row_is_there_once_it_is_closed(tmp_path: Path) -> None:
    with open_recorder(tmp_path) as recorder:
        for step in range(30):
            recorder.record(step, {"loss": step / 2})
    assert read_rows(tmp_path / "metrics.jsonl") == [{"step": step, "loss": step / 2} for step in range(30)]


def test_recording_does_not_wait_for_the_disk_and_the_barrier_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    whole = MetricsFile.write

    def write(self: MetricsFile, step: int, metrics: Mapping[str, Any]) -> None:
        gate.wait()
        whole(self, step, metrics)

    monkeypatch.setattr(MetricsFile, "write", write)
    with open_recorder(tmp_path) as recorder:
        recorder.record(1, {"loss": 0.5})  # returns, although nothing can be written yet
        gate.set()
        recorder.barrier()()
        assert read_rows(tmp_path / "metrics.jsonl") == [{"step": 1, "loss": 0.5}]


def test_what_follows_a_row_comes_after_it(tmp_path: Path) -> None:
    seen: list[int] = []
    with open_recorder(tmp_path) as recorder:
        recorder.record(1, {"loss": 0.5}, also=lambda: seen.append(len(read_rows(tmp_path / "metrics.jsonl"))))
    assert seen == [1]


def test_a_row_that_cannot_be_written_is_the_error_of_the_next_and_no_later_one_hides_the_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = MetricsFile.write

    def write(self: MetricsFile, step: int, metrics: Mapping[str, Any]) -> None:
        if step == 2:
            raise RunDirectoryError("the disk is full", code="full_disk")
        whole(self, step, metrics)

    monkeypatch.setattr(MetricsFile, "write", write)

    def run() -> None:
        with open_recorder(tmp_path) as recorder:
            for step in (1, 2, 3):
                recorder.record(step, {"loss": 0.5})
            recorder.barrier()()

    with raises(RunDirectoryError, "full_disk"):
        run()
    assert [row["step"] for row in read_rows(tmp_path / "metrics.jsonl")] == [1]
