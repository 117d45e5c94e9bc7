"""What is done in threads before it is needed."""

import logging
import threading
import time

import pytest

from agent_tunix.training.ahead import Ahead


def test_what_is_begun_is_done_when_it_was_waited_for() -> None:
    done = threading.Event()
    with Ahead() as ahead:
        ahead.begin("update", done.set)
        ahead.wait("update")
        assert done.is_set()


def test_waiting_gives_what_was_made() -> None:
    with Ahead() as ahead:
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
    began, done = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        done.wait(0.05)
        done.set()

    with Ahead() as ahead:
        ahead.begin("update", work)
        began.wait()
    assert done.is_set()


def test_what_is_under_way_can_see_that_nobody_waits_for_it() -> None:
    def work() -> None:
        while not ahead.is_closing():
            time.sleep(0.001)

    with Ahead() as ahead:
        ahead.begin("evaluation", work)
