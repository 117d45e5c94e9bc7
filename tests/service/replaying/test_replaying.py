"""A changed source on the stored completions of a run, scored in workers and compared."""

import asyncio
import dataclasses
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_tunix.errors import RewardError, UploadError
from agent_tunix.rewards.replay import Unreplayable
from agent_tunix.service import ReplayLimits
from agent_tunix.service.problems import Problem
from agent_tunix.service.replaying import Replayed, ReplayRequest, Replays, StepRange, replay_source
from agent_tunix.service.runs.view import RunView
from tests.service.replaying.support import DOUBLED, MIXED, POLITENESS, REVERSED, G, saved, write_run

QUICK = ReplayLimits(timeout_s=1.0, total_timeout_s=20.0)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> RunView:
    """A run whose whole reward is the uploaded function."""
    return write_run(tmp_path_factory.mktemp("runs") / "alone")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> RunView:
    """A run in which it is a component among others: scheduled, transformed, and beside a gate."""
    return write_run(tmp_path_factory.mktemp("runs") / "mixed", MIXED)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> RunView:
    """A run that has nothing to do with the function."""
    return write_run(tmp_path_factory.mktemp("runs") / "foreign", "math")


def replay(run: RunView, changed: bytes, limits: ReplayLimits = QUICK, **request: Any) -> Replayed:
    return replay_source(run, ReplayRequest(saved(), changed, **request), limits)


def function(body: str) -> bytes:
    return f"def reward(completions, **kwargs):\n    {body}\n".encode()


@pytest.mark.parametrize("name", ["alone", "mixed"])
def test_the_unchanged_source_gives_every_total_and_advantage_again(name: str, request: pytest.FixtureRequest) -> None:
    replayed = replay(request.getfixturevalue(name), POLITENESS)
    assert replayed.totals.identical
    assert replayed.counterpart.kind == "component"
    assert (replayed.values.changed, replayed.reordered_groups) == (0, 0)
    assert (replayed.steps, replayed.is_all, replayed.totals.completions) == ((1, 2, 3, 4, 5), True, 5 * 3 * G)


def test_a_rescaled_function_changes_values_and_no_order(alone: RunView) -> None:
    replayed = replay(alone, DOUBLED)
    assert (replayed.values.mean_before, replayed.values.mean_after) == (0.375, 0.75)
    assert replayed.values.changed == 5 * 3 * 3
    assert replayed.values.rank_correlation == pytest.approx(1.0)
    assert (replayed.reordered_groups, replayed.totals.sign_flips) == (0, 0)


def test_a_reversed_function_turns_order_and_signs_around(alone: RunView) -> None:
    replayed = replay(alone, REVERSED)
    assert replayed.values.rank_correlation == pytest.approx(-1.0)
    assert (replayed.reordered_groups, replayed.totals.groups) == (15, 15)
    assert replayed.totals.sign_flips == replayed.totals.completions
    mover = replayed.totals.movers[0]
    assert replayed.prompts[mover.rollout_id].startswith("Say something polite")
    assert mover.after[1] == pytest.approx(-mover.before[1])


def test_a_component_takes_its_place_in_the_total_as_the_run_weighed_it(mixed: RunView) -> None:
    replayed = replay(mixed, REVERSED)
    assert replayed.counterpart.name == "polite"
    assert replayed.totals.changed_components == {"polite": 5 * 3 * 3}  # 2 of 4 stays 1/2
    by_id = {mover.rollout_id: mover for mover in replay(mixed, REVERSED, ReplayLimits(movers=60)).totals.movers}
    # At step 1 the weight is 0.5: from 0 please to 1, clipped to 0.5; a right answer is 1, and brevity follows.
    before, after = by_id["1_0_0"].before[0], by_id["1_0_0"].after[0]
    assert before is not None
    assert after == pytest.approx(before + 0.5 * 0.5)
    # At step 5 it is 1.
    before, after = by_id["5_0_0"].before[0], by_id["5_0_0"].after[0]
    assert before is not None
    assert after == pytest.approx(before + 1.0 * 0.5)


def test_gates_follow_the_changed_values(tmp_path: Path) -> None:
    gated = {"polite": "rf_" + "a" * 24, "brevity": {"function": "conciseness", "requires": {"polite": 0.5}}}
    replayed = replay(write_run(tmp_path / "run", gated, num_steps=1), REVERSED)
    # Before, the two politest passed; now all but the politest do, and brevity is stored of one of them.
    assert replayed.totals.outcomes_after["error"] == 2 * 3
    assert any("not computed here in the run" in mover.detail for mover in replayed.totals.movers)


def test_a_run_without_the_function_is_compared_by_its_total(foreign: RunView) -> None:
    replayed = replay(foreign, POLITENESS)
    assert replayed.counterpart.kind == "total"
    assert replayed.values.mean_before == replayed.totals.mean_before
    assert replayed.values.mean_after == replayed.totals.mean_after == 0.375


def test_the_saved_source_can_be_scored_beside_the_changed_one(foreign: RunView) -> None:
    assert replay(foreign, POLITENESS, against="saved").totals.identical
    replayed = replay(foreign, DOUBLED, against="saved")
    assert (replayed.values.mean_before, replayed.values.mean_after) == (0.375, 0.75)


def test_an_async_function_is_replayed_as_well(foreign: RunView) -> None:
    source = b"async def reward(args, sample, **kwargs):\n    return float(sample.response.count('please'))\n"
    function = dataclasses.replace(saved(), format="miles")
    replayed = replay_source(foreign, ReplayRequest(function, source), QUICK)
    assert replayed.values.mean_after == 1.5


def test_columns_of_the_dataset_are_given(foreign: RunView) -> None:
    source = b"def reward(completions, level, **kwargs):\n    return [float(one) for one in level]\n"
    assert replay(foreign, source).values.mean_after == 1.5


def test_a_function_that_takes_messages_gets_them(foreign: RunView) -> None:
    source = function("return [float(one[0]['content'].count('please')) for one in completions]")
    assert replay(foreign, source).values.mean_after == 1.5


# --- what is taken ---------------------------------------------------------------------------------------------------


def test_only_the_steps_that_are_asked_for(alone: RunView) -> None:
    assert replay(alone, POLITENESS, steps=StepRange(2, 3)).steps == (2, 3)
    assert replay(alone, POLITENESS, steps=StepRange(4)).steps == (4, 5)


def test_what_there_is_no_room_for_is_left_out_evenly(alone: RunView) -> None:
    replayed = replay(alone, POLITENESS, most=3 * 3 * G)
    assert (replayed.steps, replayed.is_all) == ((1, 3, 5), False)


def test_of_a_step_that_has_no_room_whole_groups_are_taken(alone: RunView) -> None:
    replayed = replay(alone, POLITENESS, most=2 * G + 1)
    assert (replayed.steps, replayed.totals.groups, replayed.is_all) == ((1,), 2, False)
    assert replayed.totals.identical


def test_no_more_than_the_limit_is_taken_whatever_is_asked_for(alone: RunView) -> None:
    limits = ReplayLimits(max_completions=2 * G)
    assert replay(alone, POLITENESS, limits, most=10**9).totals.completions == 2 * G


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ({"steps": StepRange(6, 9)}, "those of 1 to 5 are stored"),
        ({"steps": StepRange(4, 2)}, "those of 1 to 5 are stored"),
        ({"most": G - 1}, "a replay takes at most 3"),
        ({"against": "brevity"}, "no component 'brevity'"),
    ],
)
def test_what_the_run_cannot_answer_is_told(alone: RunView, request_: dict[str, Any], told: str) -> None:
    with pytest.raises(Unreplayable, match=told):
        replay(alone, POLITENESS, **request_)


def test_an_advantage_over_the_batch_needs_whole_steps(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", num_steps=2, scaling="batch")
    assert replay(run, POLITENESS, most=3 * G).totals.identical
    with pytest.raises(Unreplayable, match="all 12 completions of a step are needed"):
        replay(run, POLITENESS, most=2 * G)


def test_a_run_without_completions_is_told_of(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", num_steps=1)
    for file in (tmp_path / "run" / "rollouts").iterdir():
        file.unlink()
    with pytest.raises(Unreplayable, match="no stored completions"):
        replay(run, POLITENESS)


def test_a_damaged_file_is_told_of(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", num_steps=1)
    (file,) = (tmp_path / "run" / "rollouts").iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(Unreplayable, match="cannot be read"):
        replay(run, POLITENESS)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        [],
        {"reward_fingerprint": {"components": {"polite": 3}}},
        {"reward_fingerprint": {"components": {"polite": {"weight": "much"}}}},
        {"reward_fingerprint": {"components": {"polite": {"requires": {"nothing": 1}}}}},
        {"reward_fingerprint": {"components": {"other": {}}}},
    ],
)
def test_a_fingerprint_that_is_none_leaves_the_total(tmp_path: Path, environment: Any) -> None:
    run = write_run(tmp_path / "run", MIXED, num_steps=1)
    (tmp_path / "run" / "environment.json").write_text(json.dumps(environment), encoding="utf-8")
    assert replay(run, POLITENESS, against="total").totals.completions == 3 * G
    with pytest.raises(Unreplayable, match=r"no component|environment\.json"):
        replay(run, POLITENESS, against="polite")


# --- code of others --------------------------------------------------------------------------------------------------


def test_the_source_is_checked_as_an_upload_is(alone: RunView) -> None:
    with pytest.raises(UploadError, match="def reward"):
        replay(alone, b"def other(completions): return []\n")


def test_a_column_that_the_completions_lack_is_told_of(alone: RunView) -> None:
    with pytest.raises(RewardError, match="rubric"):
        replay(alone, b"def reward(completions, rubric, **kwargs):\n    return [1.0] * len(completions)\n")


@pytest.mark.parametrize(
    ("body", "outcome", "told"),
    [
        ("raise ValueError('no luck')", "error", "no luck"),
        ("return 1", "error", "list"),
        ("return [float('nan')] * len(completions)", "error", "nan"),
        ("return [None] * len(completions)", "not_applicable", ""),
        ("import os; os._exit(3)", "error", ""),
        ("open('/etc/passwd').read()", "error", "/etc/passwd"),
        ("import os; os.fork(); return [1.0] * len(completions)", "error", "PermissionError"),
        ("import socket; socket.create_connection(('127.0.0.1', 80))", "error", "PermissionError"),
        ("x = bytearray(2**33); return [1.0] * len(completions)", "error", "MemoryError"),
    ],
)
def test_what_is_no_score_is_told_as_an_outcome(alone: RunView, body: str, outcome: str, told: str) -> None:
    values = replay(alone, function(body), steps=StepRange(1, 1)).values
    assert values.outcomes_after[outcome] == 3 * G
    assert values.mean_after is None
    assert told in values.details[outcome]


def test_a_function_that_never_ends_has_the_outcome_timeout_and_the_rest_is_left_out(alone: RunView) -> None:
    limits = ReplayLimits(timeout_s=0.5, total_timeout_s=6.0)
    replayed = replay(alone, function("while True: pass"), limits)
    assert replayed.values.outcomes_after["timeout"] == replayed.totals.completions == 3 * G
    assert (replayed.steps, replayed.in_time, replayed.is_all) == ((1,), False, False)


def test_the_code_runs_in_another_process(foreign: RunView) -> None:
    source = b"import os\nhere = os.getpid()\n" + function("return [float(here)] * len(completions)")
    assert replay(foreign, source, steps=StepRange(1, 1)).values.mean_after != os.getpid()


def test_what_a_source_does_when_it_is_loaded_is_done_elsewhere_too(foreign: RunView) -> None:
    source = b"raise SystemExit('gone')\n" + POLITENESS
    values = replay(foreign, source, steps=StepRange(1, 1)).values
    assert values.outcomes_after["error"] == 3 * G
    assert "gone" in values.details["error"]


def test_columns_of_every_kind_get_there_or_are_told_of(tmp_path: Path) -> None:
    odd = {"when": datetime(2026, 1, 2, tzinfo=UTC), "pair": (1, 2), "array": np.arange(3), "raw": b"\xff"}
    odd["thing"] = object()
    run = write_run(tmp_path / "run", "math", num_steps=1, columns=odd)
    source = (
        b"def reward(completions, when, pair, array, raw, thing, **kwargs):\n"
        b"    assert (when[0].year, list(pair[0]), list(array[0]), raw[0]) == (2026, [1, 2], [0, 1, 2], b'\\xff')\n"
        b"    return [1.0 if 'object' in str(one) else 0.0 for one in thing]\n"
    )
    values = replay(run, source).values
    assert (values.mean_after, values.details) == (1.0, {})


# --- several at a time -----------------------------------------------------------------------------------------------


def test_whoever_comes_while_all_room_is_taken_is_told_to_come_again_and_closing_ends_what_runs(alone: RunView) -> None:
    request = ReplayRequest(saved(), function("while True: pass"))

    async def run_two() -> tuple[Problem, Replayed]:
        replays = Replays(ReplayLimits(timeout_s=100, total_timeout_s=100))
        first = asyncio.create_task(replays.run(alone, request))
        await asyncio.sleep(0)
        with pytest.raises(Problem) as refused:
            await replays.run(alone, request)
        await asyncio.sleep(0.5)
        await asyncio.get_running_loop().run_in_executor(None, replays.close)
        return refused.value, await first

    refused, replayed = asyncio.run(run_two())
    assert (refused.status, refused.code) == (503, "busy")
    assert replayed.values.outcomes_after["timeout"] == 3 * G


@pytest.mark.parametrize(
    ("source", "against"), [(POLITENESS, "x"), (b"def reward(completions, rubric): return [1]", None)]
)
def test_what_cannot_be_replayed_is_a_problem_of_who_asks(alone: RunView, source: bytes, against: str | None) -> None:
    with pytest.raises(Problem) as refused:
        asyncio.run(Replays(QUICK).run(alone, ReplayRequest(saved(), source, against=against)))
    assert (refused.value.status, refused.value.code) == (400, "cannot_be_replayed")
