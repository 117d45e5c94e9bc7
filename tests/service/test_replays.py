"""A changed source on the stored completions of a run; tests/workbench/replay has the replay itself."""

import asyncio
import dataclasses
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_tunix.errors import AgentTunixError, RewardError, UploadError
from agent_tunix.rewards.advantages import register_advantage_estimator
from agent_tunix.service import ReplayLimits
from agent_tunix.service import replays as service_replays
from agent_tunix.service.replays import Replayed, ReplayRequest, Replays, StepRange, replay_source
from agent_tunix.tracking.live_run import LiveRun
from agent_tunix.web.problems import Problem
from agent_tunix.workbench.replay import Unreplayable
from tests.raising import raises
from tests.service.replay_support import DOUBLED, MIXED, POLITENESS, REVERSED, G, saved, write_run

LIMITS = ReplayLimits(timeout_s=20, total_timeout_s=600, workers=1)  # a busy machine is slow
SIZE = 3 * G  # of a step


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> LiveRun:
    """A run in which the function is a component: scheduled, transformed, and beside a gate."""
    return write_run(tmp_path_factory.mktemp("runs") / "mixed", MIXED)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> LiveRun:
    columns = {"when": datetime(2026, 1, 2, tzinfo=UTC), "pair": (1, 2), "array": np.arange(3), "raw": b"\xff"}
    columns["thing"] = object()
    return write_run(tmp_path_factory.mktemp("runs") / "foreign", "math", num_steps=1, columns=columns)


def replay(run: LiveRun, changed: bytes, limits: ReplayLimits = LIMITS, **request: Any) -> Replayed:
    return replay_source(run, ReplayRequest(saved(), changed, **request), limits)


def function(body: str) -> bytes:
    return f"def reward(completions, **kwargs):\n    {body}\n".encode()


def test_the_unchanged_source_gives_every_total_and_advantage_again(run: LiveRun) -> None:
    replayed = replay(run, POLITENESS)
    assert replayed.totals.identical
    assert (replayed.counterpart.kind, replayed.counterpart.name) == ("component", "polite")
    assert (replayed.values.changed, replayed.reordered_groups) == (0, 0)
    assert (replayed.steps, replayed.is_all, replayed.totals.completions) == ((1, 2, 3, 4, 5), True, 5 * SIZE)


def test_a_component_counts_as_the_run_weighed_it(run: LiveRun) -> None:
    replayed = replay(run, REVERSED, dataclasses.replace(LIMITS, movers=60))
    assert replayed.totals.changed_components == {"polite": 5 * 3 * 3}  # 2 of 4 stays 1/2
    assert replayed.values.rank_correlation == pytest.approx(-1.0)
    by_id = {mover.rollout_id: mover for mover in replayed.totals.movers}
    # The weight is 0.5 at step 1 and 1 at step 5; the value goes from 0 to 1, clipped to 0.5.
    for id, weight in (("1_0_0", 0.5), ("5_0_0", 1.0)):
        before, after = by_id[id].before[0], by_id[id].after[0]
        assert before is not None
        assert after == pytest.approx(before + weight * 0.5)
        assert replayed.prompts[id].startswith("Say something polite")


@pytest.mark.slow
def test_a_gate_that_opens_on_an_unknown_value_is_an_error(tmp_path: Path) -> None:
    gated = {"polite": "rf_" + "a" * 24, "brevity": {"function": "conciseness", "requires": {"polite": 0.5}}}
    replayed = replay(write_run(tmp_path / "run", gated, num_steps=1), REVERSED)
    # Before, the two politest passed; now all but the politest do, and brevity is stored of one of them.
    assert replayed.totals.outcomes_after["error"] == 2 * 3
    assert any("not computed for this completion in the run" in mover.detail for mover in replayed.totals.movers)


@pytest.mark.slow
def test_another_run_is_compared_by_its_total_or_with_the_saved_source(foreign: LiveRun) -> None:
    replayed = replay(foreign, POLITENESS)
    assert replayed.counterpart.kind == "total"
    assert replayed.values.mean_before == replayed.totals.mean_before
    assert replayed.values.mean_after == replayed.totals.mean_after == 0.375
    replayed = replay(foreign, DOUBLED, against="saved")
    assert (replayed.values.mean_before, replayed.values.mean_after) == (0.375, 0.75)
    assert (replayed.reordered_groups, replayed.totals.sign_flips) == (0, 0)


@pytest.mark.slow
def test_a_function_gets_columns_messages_and_the_sample(foreign: LiveRun) -> None:
    columns = (
        b"def reward(completions, level, when, pair, array, raw, thing, **kwargs):\n"
        b"    assert (when[0].year, list(pair[0]), list(array[0]), raw[0]) == (2026, [1, 2], [0, 1, 2], b'\\xff')\n"
        b"    assert 'object' in str(thing[0])\n"
        b"    return [float(one) for one in level]\n"
    )
    messages = function("return [float(one[0]['content'].count('please')) for one in completions]")
    for source in (columns, messages):
        values = replay(foreign, source).values
        assert (values.mean_after, values.details) == (1.5, {})
    sample = b"async def reward(args, sample, **kwargs):\n    return float(sample.response.count('please'))\n"
    request = ReplayRequest(dataclasses.replace(saved(), format="miles"), sample)
    assert replay_source(foreign, request, LIMITS).values.mean_after == 1.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_", "steps", "completions"),
    [
        ({"steps": StepRange(2, 3)}, (2, 3), 2 * SIZE),
        ({"steps": StepRange(4)}, (4, 5), 2 * SIZE),
        ({"most": 3 * SIZE}, (1, 3, 5), 3 * SIZE),  # evenly
        ({"most": 2 * G + 1}, (1, 5), 2 * G),  # whole groups of several steps
        ({"most": G}, (1,), G),
        ({"most": 10**9}, (1, 3, 5), 3 * SIZE),  # the limit
    ],
)
def test_a_replay_takes_some_of_the_steps(
    run: LiveRun, request_: dict[str, Any], steps: tuple[int, ...], completions: int
) -> None:
    limits = dataclasses.replace(LIMITS, max_completions=3 * SIZE)
    replayed = replay(run, POLITENESS, limits, **request_)
    assert (replayed.steps, replayed.totals.completions) == (steps, completions)
    assert replayed.totals.identical
    assert replayed.is_all is ("steps" in request_)


REFUSED: list[tuple[type[AgentTunixError], str, bytes, dict[str, Any]]] = [
    (Unreplayable, "missing_steps", POLITENESS, {"steps": StepRange(6, 9)}),
    (Unreplayable, "missing_steps", POLITENESS, {"steps": StepRange(4, 2)}),
    (Unreplayable, "exceeded_limit", POLITENESS, {"most": G - 1}),
    (Unreplayable, "invalid_mixture", POLITENESS, {"against": "x"}),
    (UploadError, "no_reward_function", b"def other(completions): return []\n", {}),
]


@pytest.mark.parametrize(("error", "code", "source", "request_"), REFUSED)
def test_an_impossible_replay_is_refused(
    run: LiveRun, error: type[AgentTunixError], code: str, source: bytes, request_: dict[str, Any]
) -> None:
    with raises(error, code):
        replay(run, source, **request_)


def test_an_estimator_that_a_run_names_is_not_run(tmp_path: Path) -> None:
    register_advantage_estimator("own_of_a_run", overwrite=True)(lambda totals, *_: np.zeros(totals.shape))
    run = write_run(tmp_path / "run", num_steps=1, scaling="own_of_a_run")
    with raises(Unreplayable, "own_estimator"):
        replay(run, POLITENESS)


def test_a_missing_column_is_named(run: LiveRun) -> None:
    with pytest.raises(RewardError) as caught:
        replay(run, b"def reward(completions, rubric, **kwargs):\n    return [1.0] * len(completions)\n")
    assert "rubric" in str(caught.value)


@pytest.mark.slow
def test_an_advantage_over_the_batch_needs_whole_steps(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", num_steps=2, scaling="batch")
    assert replay(run, POLITENESS, most=SIZE).totals.identical
    with raises(Unreplayable, "exceeded_limit"):
        replay(run, POLITENESS, most=2 * G)


def test_missing_or_damaged_completions_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "math", num_steps=1)
    (file,) = (tmp_path / "run" / "rollouts").iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    with raises(Unreplayable, "missing_completions") as caught:
        replay(run, POLITENESS)
    assert "cannot be read" in str(caught.value)
    file.unlink()
    with raises(Unreplayable, "missing_completions"):
        replay(run, POLITENESS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "outcome", "told"),
    [
        (function("raise ValueError('no luck')"), "error", "no luck"),
        (function("import os; os._exit(3)"), "error", ""),
        (b"raise SystemExit('gone')\n" + POLITENESS, "error", "gone"),
    ],
)
def test_a_failure_is_an_outcome(foreign: LiveRun, source: bytes, outcome: str, told: str) -> None:
    values = replay(foreign, source).values
    assert values.outcomes_after[outcome] == SIZE
    assert values.mean_after is None
    assert told in values.details[outcome]


@pytest.mark.slow
def test_a_function_that_never_ends_has_the_outcome_timeout_and_further_steps_are_left_out(run: LiveRun) -> None:
    limits = dataclasses.replace(LIMITS, timeout_s=0.5, total_timeout_s=4.0)
    replayed = replay(run, function("while True: pass"), limits)
    assert replayed.values.outcomes_after["timeout"] == replayed.totals.completions == SIZE
    assert (replayed.steps, replayed.in_time, replayed.is_all) == ((1,), False, False)


def test_a_replay_that_is_ended_scores_nothing_more(foreign: LiveRun) -> None:
    ended = threading.Event()
    ended.set()
    replayed = replay_source(foreign, ReplayRequest(saved(), function("while True: pass")), LIMITS, ended=ended)
    assert replayed.values.outcomes_after["timeout"] == SIZE
    assert not replayed.in_time


def test_a_busy_server_or_an_impossible_replay_is_a_problem(run: LiveRun, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()
    monkeypatch.setattr(service_replays, "replay_source", lambda *_: may_end.wait(600))
    request = ReplayRequest(saved(), POLITENESS)

    async def run_two() -> Problem:
        replays = Replays(dataclasses.replace(LIMITS, at_once=1))
        first = asyncio.create_task(replays.run(run, request))
        await asyncio.sleep(0)
        with pytest.raises(Problem) as refused:
            await replays.run(run, request)
        may_end.set()
        await first
        await replays.run(run, request)
        replays.close()
        return refused.value

    refused = asyncio.run(run_two())
    assert (refused.status, refused.code) == (503, "busy")
    monkeypatch.undo()
    with pytest.raises(Problem) as caught:
        asyncio.run(Replays(LIMITS).run(run, dataclasses.replace(request, against="x")))
    assert (caught.value.status, caught.value.code) == (400, "cannot_be_replayed")
