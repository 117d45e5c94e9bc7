"""Phases of a run and their times."""

import itertools
import json
import logging
from pathlib import Path

import jax
import pytest

from agent_tunix.startup import timeline
from agent_tunix.startup.devices import Compilations
from agent_tunix.startup.timeline import Timeline


def seconds() -> "itertools.count[float]":
    """A clock that is a second later at each look."""
    return itertools.count(0.0, 1.0)


def test_phases_and_the_rest_add_up_to_the_whole() -> None:
    spent = Timeline({"imports": 2.0}, clock=seconds().__next__)
    with spent.spend("data"):
        pass
    assert spent.to_data() == {"total_s": 5.0, "phases_s": {"imports": 2.0, "data": 1.0, "other": 2.0}}


def test_time_within_two_phases_counts_for_the_inner_one() -> None:
    spent = Timeline(clock=seconds().__next__)
    with spent.spend("first step"), spent.spend("checkpoints"):
        pass
    assert spent.seconds == {"checkpoints": 1.0, "first step": 2.0}


def test_a_phase_that_fails_counts_too() -> None:
    spent = Timeline(clock=seconds().__next__)
    with pytest.raises(ValueError, match="broken"), spent.spend("data"):
        raise ValueError("broken")
    assert spent.seconds == {"data": 1.0}


def test_without_a_timeline_nothing_is_counted() -> None:
    with timeline.spend("data"):
        assert timeline.current() is None


def test_a_run_records_its_phases_however_it_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "timings.json"

    def stop() -> None:
        with timeline.begin({"imports": 2.0}), timeline.recorded(path), timeline.spend("data"):
            raise ValueError("stopped")

    with pytest.raises(ValueError, match="stopped"):
        stop()
    told = json.loads(path.read_text())
    assert list(told["phases_s"]) == ["imports", "data", "other"]
    assert told["total_s"] >= 2.0
    assert "imports 2.0" in caplog.text


def test_timings_that_cannot_be_written_do_not_end_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with timeline.recorded(tmp_path / "nowhere" / "timings.json"):
        pass
    assert "was not written" in caplog.text


def test_the_age_of_this_process_is_known() -> None:
    assert timeline.age_of_process() > 0.0


def test_compiled_programs_are_counted_until_it_is_closed() -> None:
    with Compilations() as counted:
        jax.jit(lambda x: x + 12345)(1.0)
    jax.jit(lambda x: x + 54321)(1.0)
    assert counted.count == 1
    counted.close()


def test_another_that_removes_all_listeners_does_no_harm() -> None:
    with Compilations():
        jax.monitoring.clear_event_listeners()  # type: ignore[no-untyped-call]
