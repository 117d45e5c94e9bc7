"""`profile=true`: a trace that names what the run was doing; and phases of a run with their times."""

import gzip
import itertools
import json
import logging
from pathlib import Path
from typing import Any

import jax
import pytest

from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError
from agent_tunix.runs.preflight import preflight
from agent_tunix.startup import timeline
from agent_tunix.startup.devices import Compilations
from agent_tunix.startup.profiling import Profiling
from agent_tunix.startup.timeline import Timeline
from tests.training.support import train_run

PHASES = ("step", "rollout", "reward", "advantages", "reference", "update", "metrics", "checkpoint", "evaluation")
Event = dict[str, Any]
Span = tuple[float, float]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run whose steps 2 to 4 are traced."""
    root = tmp_path_factory.mktemp("traced") / "run"
    train_run(
        root,
        "profile=true",
        "tracking.profile_steps=[2,4]",
        "training.eval_every_n_steps=2",
        "training.save_interval_steps=2",
        "rewards.execution=inline",
    )
    return root


@pytest.fixture(scope="module")
def events(traced: Path) -> list[Event]:
    trace = json.loads(gzip.decompress((traced / "profile" / "step_000002-000004.json.gz").read_bytes()))
    return [event for event in trace["traceEvents"] if event]  # JAX writes empty ones


def spans(events: list[Event], name: str, process: str) -> list[Span]:
    """When it began and ended, by a process's threads."""
    pids = {e["pid"] for e in events if e["name"] == "process_name" and process in e["args"]["name"]}
    return sorted(
        (e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["name"] == name and e["pid"] in pids
    )


def within(inner: Span, outers: list[Span]) -> bool:
    return any(outer[0] <= inner[0] and inner[1] <= outer[1] for outer in outers)


@pytest.mark.slow
def test_a_trace_names_the_phases_of_each_step_on_the_host(events: list[Event]) -> None:
    for name in PHASES:
        assert spans(events, name, "host"), name
    numbers = [e["args"]["step_num"] for e in events if e["ph"] == "X" and e["name"] == "step"]
    assert sorted(map(int, numbers)) == [2, 3, 4]
    steps = spans(events, "step", "host")
    for name in ("rollout", "reward", "advantages", "reference", "update", "evaluation"):
        assert all(within(span, steps) for span in spans(events, name, "host")), name
    for begin, end in steps:
        order = [
            next(span for span in spans(events, name, "host") if begin <= span[0] < end)
            for name in ("rollout", "reference", "reward", "advantages", "update")
        ]
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(order))


@pytest.mark.slow
def test_metrics_are_written_by_a_thread_of_their_own(events: list[Event]) -> None:
    threads = {e["tid"] for e in events if e["ph"] == "X" and e["name"] == "step"}
    assert not threads & {e["tid"] for e in events if e["ph"] == "X" and e["name"] == "metrics"}


@pytest.mark.slow
def test_the_run_says_where_the_trace_is_and_how_to_open_it(traced: Path) -> None:
    assert "profile/step_000002-000004.json.gz" in (traced / "train.log").read_text()


def test_without_it_nothing_is_traced(tmp_path: Path) -> None:
    with Profiling(Config(), tmp_path / "profile", 60) as profiling:
        with profiling.step(3):
            pass
        assert not profiling.ends_after(5)
    assert not (tmp_path / "profile").exists()


def test_a_run_that_took_none_of_its_steps_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = Config(profile=True)
    with caplog.at_level(logging.WARNING), Profiling(config, tmp_path, 60) as profiling, profiling.step(9):
        pass
    assert "profile=true recorded no trace, because the run took no step from 3 to 5" in caplog.text


@pytest.mark.parametrize("steps", [[], [3], [5, 3], [0, 2], [1, 2, 3]])
def test_steps_that_are_no_range_are_refused(steps: list[int], tmp_path: Path) -> None:
    config = Config()
    config.tracking.profile_steps = steps
    with pytest.raises(ConfigError, match=r"tracking\.profile_steps must be"):
        preflight(config, tmp_path)


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


def test_compiled_programs_are_counted_until_it_is_closed() -> None:
    with Compilations() as counted:
        jax.jit(lambda x: x + 12345)(1.0)
    jax.jit(lambda x: x + 54321)(1.0)
    assert counted.count == 1
    counted.close()
