"""Async rewards: many calls at once under a limit, each within its own time, here and in workers."""

from collections.abc import Callable, Sequence

import pytest

from agent_tunix.rewards import Component, Mixture, Outcome, Sample, Score, resolve_reward
from agent_tunix.rewards.execution import make_runner
from agent_tunix.rewards.execution.calls import divide_concurrency
from agent_tunix.rewards.judges import load_judge
from tests.rewards.execution.faults import samples_of
from tests.rewards.execution.leftovers import check_nothing_left, take_stock
from tests.tiers import slow_after

Write = Callable[[str], str]
PLACES = pytest.mark.parametrize("place", slow_after(1, ["inline", "process"]))
# Long beside what a well-behaved call takes, so that a machine that halts for a moment makes none of them late.
LIMIT_S = 3.0


def score(spec: str, responses: list[str], place: str, **options: float) -> list[Score]:
    mixture = resolve_reward(spec)
    with make_runner(mixture, place, **{"num_workers": 2} | options) as runner:  # type: ignore[arg-type]
        return runner.reward.score(samples_of(responses))


@PLACES
def test_calls_wait_side_by_side_and_no_more_than_allowed(place: str, write: Write) -> None:
    spec = write(
        """
        import asyncio
        running = most = 0
        barrier = asyncio.Barrier(8)
        async def reward(args, sample):
            global running, most
            running += 1
            most = max(most, running)
            await barrier.wait()
            running -= 1
            return float(most)
        """
    )
    scores = score(spec, ["x"] * 40, place, num_workers=1, max_concurrency=8, timeout_s=60.0)
    assert [each.value for each in scores] == [8.0] * 40


@pytest.mark.slow
@pytest.mark.parametrize("place", ["inline", "process"])
def test_a_call_that_waits_too_long_is_cancelled_and_the_others_are_not(place: str, write: Write) -> None:
    spec = write(
        """
        import asyncio, time
        async def reward(args, sample):
            await asyncio.sleep(1000 if sample.response == "slow" else 0.01)
            return float(len(sample.response))
        """
    )
    scores = score(spec, ["a", "slow", "aaa", "slow", "a"], place, timeout_s=LIMIT_S)
    assert [each.value for each in scores] == [1.0, None, 3.0, None, 1.0]
    assert scores[1].outcome is scores[3].outcome is Outcome.TIMEOUT
    assert "rewards.timeout_s" in scores[1].detail


@pytest.mark.slow
def test_a_call_that_cannot_be_cancelled_stalls_nothing(write: Write) -> None:
    spec = write(
        """
        import asyncio, time
        async def reward(args, sample):
            end = time.monotonic() + 6.0
            while sample.response == "stubborn" and time.monotonic() < end:
                try:
                    await asyncio.sleep(0.1)
                except asyncio.CancelledError:
                    pass
            return 1.0
        """
    )
    scores = score(spec, ["a", "stubborn", "a"], "inline", timeout_s=LIMIT_S)
    assert [each.outcome for each in scores] == [Outcome.SCORED, Outcome.TIMEOUT, Outcome.SCORED]


@pytest.mark.slow
def test_a_call_that_blocks_the_loop_is_killed_and_the_others_are_made_again(write: Write) -> None:
    spec = write(
        """
        import asyncio, time
        async def reward(args, sample):
            await asyncio.sleep(0.01)
            if sample.response == "blocks":
                time.sleep(1000)
            return float(len(sample.response))
        """
    )
    responses = ["x" * length for length in range(1, 12)]
    responses[5] = "blocks"
    scores = score(spec, responses, "process", timeout_s=LIMIT_S)
    assert scores[5].outcome is Outcome.TIMEOUT
    assert "time.sleep(1000)" in scores[5].detail
    assert [each.value for place, each in enumerate(scores) if place != 5] == [1, 2, 3, 4, 5, 7, 8, 9, 10, 11]


@pytest.mark.slow
def test_async_in_name_only_is_spread_over_the_workers_and_not_timed_out(write: Write) -> None:
    spec = write(
        """
        import os, time
        async def reward(args, sample):
            time.sleep(0.5)
            return float(os.getpid())
        """
    )
    scores = score(spec, ["x"] * 16, "process", timeout_s=LIMIT_S)
    assert {each.outcome for each in scores} == {Outcome.SCORED}
    assert len({each.value for each in scores}) == 2


def test_an_inline_loop_leaves_nothing_behind(write: Write) -> None:
    spec = write("import asyncio\nasync def reward(args, sample):\n    await asyncio.sleep(0)\n    return 1.0\n")
    before = take_stock()
    for _ in range(5):
        score(spec, ["x"] * 10, "inline")
    check_nothing_left(before)


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8, 100])
@pytest.mark.parametrize("limit", [1, 2, 7, 64])
def test_shares_take_no_more_rounds_than_one_loop_would(workers: int, limit: int) -> None:
    calls = [(number,) for number in range(256)]
    divided = divide_concurrency(calls, workers, limit)
    assert [call for chunk, _ in divided for call in chunk] == calls
    assert sum(share for _, share in divided) <= limit
    rounds = max(-(-len(chunk) // share) for chunk, share in divided)
    assert rounds <= -(-256 // limit) + 1
    if 256 % limit == 0:
        assert rounds == 256 // limit


def test_a_judge_keeps_its_own_limits(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Its retries may take longer than `rewards.timeout_s`, and one session serves the whole batch."""
    pytest.importorskip("httpx")
    pytest.importorskip("tenacity")
    arguments = {"model": "m", "base_url": "http://127.0.0.1:9/v1", "rubric": "Is it right?"}
    reward = load_judge("judge").bind("judge", arguments)
    mixture = Mixture([Component("judge", reward)])
    batches: list[int] = []

    async def score_async(samples: Sequence[Sample], limit: int | None = None) -> list[Score]:
        assert limit is None
        batches.append(len(samples))
        return [Score(1.0)] * len(samples)

    monkeypatch.setattr(reward, "score_async", score_async)
    for place, told in (("auto", False), ("process", True)):
        with caplog.at_level("INFO", "agent_tunix.rewards"), make_runner(mixture, place, timeout_s=0.1) as runner:
            runner.reward.score(samples_of(["x"] * 5))
        assert ("'judge' runs in this process" in caplog.text) == told
    assert batches == [5, 5]
