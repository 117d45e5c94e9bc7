"""Work and metrics on their way out of a run: in order, bounded, beside it, and with no error lost."""

import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.schema import Config, TrackingConfig
from agent_tunix.errors import RunDirectoryError
from agent_tunix.tracking import Recorder, read_rows
from agent_tunix.tracking.background import Background
from agent_tunix.tracking.metrics_file import MetricsFile
from tests.raising import raises


def failing(error: Exception) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


def test_work_is_done_in_the_order_in_which_it_was_handed_over() -> None:
    done: list[int] = []
    with Background("test", 3) as background:
        for number in range(50):
            background.submit("piece", lambda number=number: done.append(number))  # type: ignore[misc]
    assert done == list(range(50))


def test_handing_over_waits_while_too_much_waits() -> None:
    """One piece is under way and two wait, so the fourth is taken only after the first is done."""
    done: list[int] = []
    gate, started = threading.Event(), threading.Event()

    def first() -> None:
        gate.wait()
        done.append(1)

    def hand_over() -> None:
        started.set()
        background.submit("piece", lambda: None)
        done.append(4)

    with Background("test", 2) as background:
        background.submit("piece", first)
        for _ in range(2):
            background.submit("piece", gate.wait)
        fourth = threading.Thread(target=hand_over)
        fourth.start()
        started.wait()
        gate.set()
        fourth.join()
    assert done == [1, 4]


def test_an_error_is_raised_by_the_next_call_and_nothing_after_it_is_done() -> None:
    done: list[str] = []
    background, gate = Background("test", 5), threading.Event()
    background.submit("wait", gate.wait)
    background.submit("fail", failing(ValueError("no space")))
    background.submit("later", lambda: done.append("later"))
    wait = background.barrier()
    gate.set()
    for call in (wait, background.flush, background.close):
        with pytest.raises(ValueError, match="no space"):
            call()
    assert done == []


def test_an_error_that_nobody_asked_for_is_raised_at_the_end() -> None:
    with pytest.raises(ValueError, match="no space"), Background("test", 5) as background:
        background.submit("fail", failing(ValueError("no space")))


def test_a_barrier_waits_for_what_was_before_it_and_for_nothing_else() -> None:
    first, second = threading.Event(), threading.Event()
    done: list[str] = []

    def work() -> None:
        first.wait()
        done.append("first")

    with Background("test", 5) as background:
        background.submit("first", work)
        wait = background.barrier()
        background.submit("second", second.wait)
        first.set()
        wait()
        assert done == ["first"]
        second.set()


def test_a_process_that_fails_ends_after_what_waits_is_done() -> None:
    program = """
import sys, threading
from agent_tunix.tracking.background import Background
failed = threading.Event()
sys.excepthook = lambda *_: failed.set()
background = Background("test", 5)
background.submit("slow", lambda: (failed.wait(), print("written", flush=True)))
raise ValueError
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "written\n")


def open_recorder(root: Path) -> Recorder:
    config = Config(tracking=TrackingConfig(tensorboard=False, progress="none"))
    return Recorder(config, root / "metrics.jsonl", root / "tensorboard", root, 10, None)


def test_recording_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_a_barrier_flushes_is_flushed_by_the_thread_that_writes(tmp_path: Path) -> None:
    threads: list[int] = []
    with open_recorder(tmp_path) as recorder:
        recorder.record(1, {"loss": 0.5}, also=lambda: threads.append(threading.get_ident()))
        recorder.barrier(lambda: threads.append(threading.get_ident()))  # nobody waits for it but the end
    assert len(threads) == 2
    assert len({*threads, threading.get_ident()}) == 2


def test_a_row_that_cannot_be_written_is_the_error_of_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
