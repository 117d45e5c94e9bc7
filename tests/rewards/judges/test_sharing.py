import asyncio
import gc
from typing import Any

import pytest

from agent_tunix.rewards import Outcome, Sample, resolve_reward
from agent_tunix.rewards.judges import MAX_CONCURRENCY
from agent_tunix.rewards.judges.asking import Asker
from agent_tunix.rewards.judges.base import Judge
from agent_tunix.rewards.judges.limits import Timing, join_pool
from agent_tunix.rewards.judges.settings import EndpointSettings
from tests.rewards.judges.conftest import Bench

MANY = [Sample(f"yes {number}") for number in range(12)]


def score_at_once(*judges: Any) -> list[list[float]]:
    return [[score.value for score in future.result()] for future in [judge.begin(MANY) for judge in judges]]


def test_judges_at_one_endpoint_share_its_concurrency(bench: Bench) -> None:
    bench.server.crowd = 3
    values = score_at_once(bench.judge(max_concurrency=3), bench.judge(max_concurrency=8, rubric="Is it kind?"))
    assert values == [[1.0] * 12] * 2
    assert bench.server.most_at_once == 3


@pytest.mark.parametrize(
    ("of_one", "of_other", "first", "then"),
    [
        ({"requests_per_minute": 10}, {"requests_per_minute": 20}, 5, 1),
        ({"tokens_per_minute": 4_000}, {}, 1, 12),
    ],
)
def test_judges_at_one_endpoint_share_its_limits_by_the_minute(
    of_one: dict[str, Any], of_other: dict[str, Any], first: int, then: int, bench: Bench
) -> None:
    one, other = bench.judge(**of_one), bench.judge(rubric="Is it kind?", **of_other)
    one.score(MANY[:first])
    other.score(MANY[:first])
    assert bench.time.now == 1_000
    other.score(MANY[-then:])
    assert bench.time.now >= 1_060


def test_a_judge_may_keep_limits_of_its_own(bench: Bench) -> None:
    one, other = bench.judge(requests_per_minute=3), bench.judge(rubric="Is it kind?", share_limits=False)
    one.score(MANY[:3])
    other.score(MANY)
    assert bench.time.now == 1_000


@pytest.mark.parametrize(
    ("change", "shares"),
    [({"model": "n"}, True), ({"base_url": "http://127.0.0.1:2/v1"}, False), ({"api_key_env": "OTHER_KEY"}, False)],
)
def test_an_endpoint_is_its_url_and_its_key(change: dict[str, Any], shares: bool) -> None:
    settings = EndpointSettings(model="m", base_url="http://127.0.0.1:1/v1", api_key_env="SOME_KEY")
    pool = join_pool(Judge, settings, Timing())
    assert (join_pool(Asker, settings.model_copy(update=change), Timing()) is pool) is shares


def test_a_judge_that_is_gone_limits_no_one(bench: Bench) -> None:
    strict, other = bench.judge(requests_per_minute=1), bench.judge(rubric="Is it kind?")
    strict.score(MANY[:1])
    other.score(MANY[:1])
    assert bench.time.now == 1_060
    del strict
    gc.collect()
    other.score(MANY)
    assert bench.time.now == 1_060


def test_a_budget_is_one_judges_own(bench: Bench) -> None:
    poor, rich = bench.judge(max_requests=2), bench.judge(rubric="Is it kind?")
    assert [score.outcome for score in poor.score(MANY)].count(Outcome.SCORED) == 2
    assert [score.outcome for score in rich.score(MANY)].count(Outcome.SCORED) == 12


def test_two_judges_of_a_mixture_are_asked_at_once(bench: Bench) -> None:
    bench.server.crowd = 2  # neither is answered before both have asked
    judges = {name: {"function": "judge", "args": bench.args(rubric=f"Is it {name}?")} for name in ("clear", "kind")}
    (score,) = resolve_reward({"right": "math", **judges}).score([Sample("yes 4", columns={"answer": "4"})])
    assert score.components == {"right": 1.0, "clear": 1.0, "kind": 1.0}
    assert bench.server.most_at_once == 2


def test_a_step_is_told_apart_from_the_whole(bench: Bench) -> None:
    judge = bench.judge(prices={"prompt": 0, "completion": 100})
    judge.score(MANY[:3])
    assert (judge.step_metrics()["requests"], judge.step_metrics()["requests"]) == (3, 0)
    judge.score(MANY[3:5])
    step, total = judge.step_metrics(), judge.metrics()
    assert (step["requests"], total["requests"]) == (2, 5)
    assert step["cost"] == pytest.approx(2 * 20 * 100 / 1e6)
    assert total["cost"] == pytest.approx(5 * 20 * 100 / 1e6)
    assert step["latency_mean_s"] > 0


def test_without_a_limit_of_any_judge_the_default_holds() -> None:
    pool = join_pool(Judge, EndpointSettings(model="m", share_limits=False), Timing())
    inside = most = 0

    async def come_and_go() -> None:
        nonlocal inside, most
        async with pool.gate:
            inside += 1
            most = max(most, inside)
            for _ in range(100):  # all others have their turn meanwhile
                await asyncio.sleep(0)
            inside -= 1

    async def all_come() -> None:
        await asyncio.gather(*(come_and_go() for _ in range(40)))

    asyncio.run(all_come())
    assert most == MAX_CONCURRENCY
