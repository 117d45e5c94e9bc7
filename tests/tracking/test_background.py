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


def test_handing_over_does_not_wait_until_too_much_waits() -> None:
    gate, started = threading.Event(), threading.Event()
    with Background("test", 2) as background:
        for _ in range(3):  # one under way, and two that wait
            background.submit("piece", gate.wait)

        def hand_over() -> None:
            started.set()
            background.submit("piece", lambda: None)

        fourth = threading.Thread(target=hand_over)
        fourth.start()
        started.wait()
        fourth.join(0.2)
        assert fourth.is_alive()
        gate.set()
        fourth.join()


def test_an_error_is_raised_by_the_next_call_and_nothing_after_it_is_done() -> None:
    done: list[str] = []
    broken, unknown = Background("test", 5), ValueError("no space")
    gate = threading.Event()
    broken.submit("wait", gate.wait)
    broken.submit("fail", failing(unknown))
    broken.submit("later", lambda: done.append("later"))
    gate.set()
    with pytest.raises(ValueError, match="no space"):
        broken.flush()
    with pytest.raises(ValueError, match="no space"):
        broken.close()
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


def test_a_barrier_raises_what_was_before_it() -> None:
    background = Background("test", 5)
    background.submit("fail", failing(ValueError("no space")))
    with pytest.raises(ValueError, match="no space"):
        background.barrier()()
    with pytest.raises(ValueError, match="no space"):
        background.close()


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
import time
from agent_tunix.tracking.background import Background
background = Background("test", 5)
background.submit("slow", lambda: (time.sleep(0.3), print("written", flush=True)))
raise SystemExit(3)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (3, "written\n")
