"""Tasks in threads, begun before their results are needed."""

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_tunix.errors import Interrupted
from agent_tunix.training.ahead import Ahead, is_under_way


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """An event that ends what is under way; no test leaves that behind."""
    event = threading.Event()
    yield event
    event.set()
    while is_under_way():
        threading.Event().wait(0.01)


def test_waiting_gives_the_result_once() -> None:
    done = threading.Event()
    with Ahead() as ahead:
        ahead.begin("update", done.set)
        ahead.wait("update")
        assert done.is_set()
        ahead.begin("evaluation", lambda: 3)
        assert ahead.wait("evaluation") == 3
        assert ahead.wait("evaluation") is None


def test_nothing_waits_for_what_was_not_begun() -> None:
    release = threading.Event()
    with Ahead() as ahead:
        ahead.begin(("update", 64, 32), release.wait)
        ahead.wait(("update", 64, 24))  # of other shapes
        release.set()


def test_what_was_begun_is_not_begun_again_until_it_was_waited_for() -> None:
    done: list[str] = []
    with Ahead() as ahead:
        first = ahead.begin("evaluation", lambda: done.append("first"))
        assert ahead.begin("evaluation", lambda: done.append("second")) is first
        ahead.wait("evaluation")
        ahead.begin("evaluation", lambda: done.append("third")).result()
    assert done == ["first", "third"]


def test_one_may_wait_for_another() -> None:
    with Ahead() as ahead:
        first = ahead.begin("reference", lambda: 3)
        assert ahead.begin("update", lambda: first.result() + 1).result() == 4


def test_what_fails_is_left_to_the_call_itself(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("no such operation")

    caplog.set_level(logging.DEBUG)
    with Ahead() as ahead:
        ahead.begin("update", fail)
        assert ahead.wait("update") is None
    assert "no such operation" in caplog.text


def test_closing_waits_for_what_is_under_way() -> None:
    began, may_end, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        may_end.wait()
        done.set()

    with Ahead() as ahead:
        ahead.begin("update", work)
        began.wait()
        threading.Timer(0.05, may_end.set).start()
    assert done.is_set()


def test_what_is_under_way_can_see_that_nobody_waits_for_it() -> None:
    """Else this test hangs."""

    def work() -> None:
        while not ahead.is_closing():
            threading.Event().wait(0.001)

    with Ahead() as ahead:
        ahead.begin("evaluation", work)


def test_first_parts_are_done_in_turn_and_the_first_before_anything_else() -> None:
    order: list[str] = []
    all_traced, release = threading.Event(), threading.Event()

    def work(name: str) -> Callable[[Callable[[], None]], str]:
        def do(traced: Callable[[], None]) -> str:
            order.append(f"{name} traced")
            if len(order) == 3:
                all_traced.set()
            traced()
            release.wait()
            return name

        return do

    names = ["update", "rollout", "reference"]
    with Ahead() as ahead:
        ahead.begin_in_turn({name: work(name) for name in names})
        assert order[0] == "update traced"
        all_traced.wait()  # none of them waits for what is compiled
        assert order == [f"{name} traced" for name in names]
        release.set()
        assert [ahead.wait(name) for name in names] == names


def test_a_first_part_that_fails_or_is_never_told_of_holds_nobody_up() -> None:
    def fail(traced: Callable[[], None]) -> None:
        raise ValueError("no such operation")

    with Ahead() as ahead:
        ahead.begin_in_turn({"update": fail, "rollout": lambda traced: 3, "reference": lambda traced: 4})
        assert [ahead.wait(name) for name in ("update", "rollout", "reference")] == [None, 3, 4]


def test_what_was_begun_gets_no_other_turn() -> None:
    with Ahead() as ahead:
        ahead.begin_in_turn({"evaluation": lambda traced: "first"})
        ahead.begin_in_turn({"evaluation": lambda traced: "second"})
        assert ahead.wait("evaluation") == "first"


def fail(error: BaseException, release: threading.Event) -> None:
    """With something under way."""
    with Ahead() as ahead:
        ahead.begin("update", release.wait)
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted("by signal 15", 15)])
def test_who_stops_a_run_does_not_wait(error: BaseException, release: threading.Event) -> None:
    with pytest.raises(type(error)):
        fail(error, release)
    assert is_under_way()


def test_whatever_else_fails_waits(release: threading.Event) -> None:
    threading.Timer(0.05, release.set).start()
    with pytest.raises(ValueError, match="no such model"):
        fail(ValueError("no such model"), release)
    assert release.is_set()
    assert not is_under_way()


INTERRUPTED = """
import os, signal, threading, time
from agent_tunix.cli import hydra_programs
from agent_tunix.training.ahead import Ahead

def task(_):
    with Ahead() as ahead:
        ahead.begin("update", lambda: time.sleep(3600))
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(3600)

hydra_programs._train = task
hydra_programs.train(["training.reward_function=math", "hydra.run.dir=run"])
"""


@pytest.mark.slow
def test_a_process_that_is_interrupted_ends_while_something_is_compiled(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 130
    assert done.stderr.count("Interrupted: stopped at once") == 1
    assert "Traceback" not in done.stderr
