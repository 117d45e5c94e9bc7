import asyncio
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_tunix.rewards.judges.faults import BudgetSpent
from agent_tunix.rewards.judges.limits import WINDOW_S, JudgeBudget, RateLimiter, Timing
from tests.rewards.judges.conftest import FakeTime


def limiter_of(requests: int | None, tokens: int | None, timing: Timing) -> RateLimiter:
    return RateLimiter({"requests_per_minute": requests, "tokens_per_minute": tokens}.get, timing)


def starts(limiter: RateLimiter, fake_time: FakeTime, tokens: list[int]) -> list[float]:
    """When requests that come at once begin, in seconds after the first."""
    first = fake_time.now

    async def take_all() -> list[float]:
        slots = await asyncio.gather(*(limiter.acquire(count) for count in tokens))
        return [slot.start_s - first for slot in slots]

    return asyncio.run(take_all())


@pytest.mark.parametrize(
    ("requests", "tokens", "asked", "expected"),
    [
        (3, None, [1] * 7, [0, 0, 0, 60, 60, 60, 120]),
        (None, 1_000, [600, 400, 1, 999, 500, 500], [0, 0, 60, 60, 120, 120]),
        (2, 1_000, [900, 900, 10, 10, 10], [0, 60, 60, 120, 120]),
        (None, 1_000, [10, 5_000, 10], [0, 60, 120]),  # more than a minute's tokens: a minute to itself
        (None, None, [10**9] * 50, [0] * 50),
    ],
)
def test_a_request_beyond_a_minutes_waits_for_the_next(
    requests: int | None, tokens: int | None, asked: list[int], expected: list[float], fake_time: FakeTime
) -> None:
    assert starts(limiter_of(requests, tokens, fake_time.timing), fake_time, asked) == expected
    assert fake_time.now == 1_000 + expected[-1]


def test_tokens_that_were_not_used_are_free_again(fake_time: FakeTime) -> None:
    limiter = limiter_of(None, 1_000, fake_time.timing)

    async def ask_twice() -> float:
        slot = await limiter.acquire(1_000)
        slot.tokens = 100
        return (await limiter.acquire(900)).start_s

    assert asyncio.run(ask_twice()) == 1_000


@settings(max_examples=40)
@given(
    st.integers(1, 5),
    st.integers(100, 1_000),
    st.lists(st.tuples(st.integers(1, 1_000), st.integers(0, 50)), min_size=1, max_size=30),
)
def test_no_minute_has_more_than_allowed(requests: int, tokens: int, asked: list[tuple[int, int]]) -> None:
    fake_time = FakeTime()
    limiter = limiter_of(requests, tokens, fake_time.timing)
    begun: list[tuple[float, int]] = []

    async def run() -> None:
        for count, pause_s in asked:
            begun.append(((await limiter.acquire(count)).start_s, count))
            fake_time.now += pause_s

    asyncio.run(run())
    for start, _ in begun:
        minute = [count for other, count in begun if start - WINDOW_S < other <= start]
        assert len(minute) <= requests
        assert sum(minute) <= tokens or len(minute) == 1


def test_a_budget_of_money_counts_what_is_under_way() -> None:
    budget = JudgeBudget(None, 1.0)
    budget.reserve(0.6)
    with pytest.raises(BudgetSpent):
        budget.reserve(0.6)
    budget.settle(0.6, 0.1)
    budget.reserve(0.6)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=50))
def test_a_budget_is_never_exceeded_while_estimates_hold(requests: list[tuple[float, float]]) -> None:
    budget = JudgeBudget(None, 2.0)
    spent = []
    for estimate, share in requests:
        try:
            budget.reserve(estimate)
        except BudgetSpent:
            continue
        spent.append(estimate * share)
        budget.settle(estimate, estimate * share)
    assert math.fsum(spent) <= 2.0 + 1e-9
