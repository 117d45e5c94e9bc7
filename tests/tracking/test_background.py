"""Work beside a run: in order, bounded, and with no error lost."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from agent_tunix.tracking.background import Background


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


def test_an_error_beside_another_becomes_a_note_of_it() -> None:
    def run() -> None:
        with Background("test", 5) as background:
            background.submit("fail", failing(ValueError("no space")))
            raise KeyError("the run's own")

    with pytest.raises(KeyError) as caught:
        run()
    assert caught.value.__notes__ == ["Besides: no space"]


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


def test_each_piece_is_named_while_it_is_done() -> None:
    seen: list[str] = []

    @contextlib.contextmanager
    def annotate(name: str) -> Iterator[None]:
        seen.append(f"begin {name}")
        yield
        seen.append(f"end {name}")

    with Background("test", 5, annotate) as background:
        background.submit("metrics", lambda: seen.append("work"))
    assert seen == ["begin metrics", "work", "end metrics"]


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
