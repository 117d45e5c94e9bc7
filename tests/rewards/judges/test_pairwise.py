import json

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards import Outcome, Sample, get_reward_function
from agent_tunix.rewards.judges.pairwise import choose_pairs
from tests.raising import raises
from tests.rewards.judges.conftest import Bench
from tests.rewards.judges.endpoint_server import Answer, prefer_longer


@pytest.fixture(autouse=True)
def longer_is_better(bench: Bench) -> None:
    bench.server.judge = prefer_longer


def group(*texts: str, group_id: int = 0, prompt: str = "Say a.") -> list[Sample]:
    return [Sample(text, prompt=prompt, group_id=group_id, columns={"answer": "a"}) for text in texts]


def test_the_share_of_comparisons_won(bench: Bench) -> None:
    scores = bench.judge("pairwise_judge").score(group("aa", "aaaa", "a", "aaa"))
    assert [score.value for score in scores] == pytest.approx([1 / 3, 1, 0, 2 / 3])
    assert scores[0].detail == "won 1, tied 0, lost 2 of 3 comparisons"
    assert len(bench.server.requests) == 12


def test_a_preference_for_a_place_cancels_out(bench: Bench) -> None:
    bench.server.judge = lambda request: json.dumps({"id": request.code, "better": {"reason": "", "verdict": "first"}})
    scores = bench.judge("pairwise_judge").score(group("one", "two", "three"))
    assert [score.value for score in scores] == [0.5, 0.5, 0.5]
    assert scores[0].extras["order_decided"] == 2


def test_in_random_order_each_two_are_compared_once_and_always_alike(bench: Bench) -> None:
    texts = ["a" * length for length in range(1, 9)]
    scores = bench.judge("pairwise_judge", orders="random").score(group(*texts))
    assert [score.value for score in scores] == pytest.approx([place / 7 for place in range(8)])
    asked = {tuple(request.judged) for request in bench.server.requests}
    assert len(asked) == len(bench.server.requests) == 28
    shorter_first = sum(len(first) < len(second) for first, second in asked)
    assert 5 < shorter_first < 23
    bench.judge("pairwise_judge", orders="random").score(group(*reversed(texts)))
    assert {tuple(request.judged) for request in bench.server.requests} == asked
    bench.judge("pairwise_judge", orders="random", seed=1).score(group(*texts))
    assert {tuple(request.judged) for request in bench.server.requests} != asked


def test_with_fewer_opponents_requests_grow_with_the_group(bench: Bench) -> None:
    scores = bench.judge("pairwise_judge", opponents=2).score(group(*("a" * length for length in range(1, 11))))
    assert len(bench.server.requests) == 20
    assert {score.extras["won"] + score.extras["lost"] for score in scores} == {2}
    assert scores[0].value == 0.0
    assert scores[9].value == 1.0


def test_equal_completions_tie_without_a_request(bench: Bench) -> None:
    for texts, expected, requests in ((("a", "a", "a"), [0.5, 0.5, 0.5], 0), (("a", "a", "aa"), [0.25, 0.25, 1.0], 2)):
        scores = bench.judge("pairwise_judge").score(group(*texts))
        assert [score.value for score in scores] == expected
        assert len(bench.server.requests) == requests


def test_a_group_of_one_is_not_judged(bench: Bench) -> None:
    (score,) = bench.judge("pairwise_judge").score(group("alone"))
    assert score.outcome is Outcome.NOT_APPLICABLE
    assert bench.server.requests == []


def test_groups_are_judged_apart_and_order_is_kept(bench: Bench) -> None:
    one, two = group("a", "aa", group_id=1), group("bbb", "b", group_id=2, prompt="Say b.")
    scores = bench.judge("pairwise_judge").score([one[0], two[0], one[1], two[1]])
    assert [score.value for score in scores] == [0.0, 1.0, 1.0, 0.0]
    assert len(bench.server.requests) == 4
    assert all({text[0] for text in request.judged} in ({"a"}, {"b"}) for request in bench.server.requests)


def test_what_the_group_shares_is_sent_first_and_is_equal(bench: Bench) -> None:
    bench.judge("pairwise_judge", columns=["answer"]).score(group("a", "aa", "aaa", prompt="Say a. " * 100))
    heads = {request.text.partition("<<<FIRST COMPLETION")[0] for request in bench.server.requests}
    assert len(heads) == 1
    head = heads.pop()
    assert "Say a. Say a." in head
    assert "REFERENCE answer" in head


def test_a_completion_that_cannot_be_compared_costs_the_others_nothing_but_its_comparisons(bench: Bench) -> None:
    bench.server.always = lambda request: Answer(400, {}) if "poison" in request.judged else None
    scores = bench.judge("pairwise_judge").score(group("a", "aa", "poison", "aaa"))
    assert [score.value for score in scores] == [0.0, 0.5, None, 1.0]
    assert scores[2].outcome is Outcome.ERROR
    assert "3 of 3 comparisons failed" in scores[2].detail
    assert "1 failed" in scores[0].detail
    # One order of a pair is not enough.
    bench.server.always = lambda request: Answer(400, {}) if request.judged[0] == "bb" else None
    assert [score.value for score in bench.judge("pairwise_judge").score(group("b", "bb"))] == [None, None]


@pytest.mark.parametrize(
    ("answer", "timeout_s", "outcome"),
    [(Answer(400, {}), 60.0, Outcome.ERROR), (Answer(delay_s=600), 0.3, Outcome.TIMEOUT)],
)
def test_a_group_without_a_verdict_has_no_score(
    answer: Answer, timeout_s: float, outcome: Outcome, bench: Bench
) -> None:
    bench.server.always = lambda request: answer
    scores = bench.judge("pairwise_judge", timeout_s=timeout_s).score(group("a", "aa"))
    assert [score.outcome for score in scores] == [outcome] * 2


def test_an_empty_reference_is_one_of_the_whole_group(bench: Bench) -> None:
    scores = bench.judge("pairwise_judge", columns=["rationale"]).score(group("a", "aa"))
    assert [score.outcome for score in scores] == [Outcome.BAD_REFERENCE] * 2


def test_what_comparisons_took_is_counted_once_over_the_group(bench: Bench) -> None:
    judge = bench.judge("pairwise_judge", prices={"prompt": 10, "completion": 100})
    scores = judge.score(group("a", "aa", "aaa"))
    assert sum(score.extras["requests"] for score in scores) == judge.metrics()["requests"] == 6
    assert sum(score.extras["cost"] for score in scores) == pytest.approx(judge.metrics()["cost"]) == 6 * 0.003


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        ({"rubric": None}, "invalid_reward_args", "`rubric`"),
        ({"rubric": {"a": "b"}}, "invalid_reward_args", "`rubric`: input should be a valid string"),
        ({"orders": "one"}, "invalid_reward_args", "'both' or 'random'"),
        ({"opponents": 0}, "invalid_reward_args", "`opponents`: input should be greater than"),
        ({"scores": {}}, "invalid_reward_args", "'scores'"),
    ],
)
def test_a_malformed_argument_is_refused(args: dict[str, object], code: str, told: str) -> None:
    with raises(RewardError, code) as caught:
        get_reward_function("pairwise_judge").bind("better", {"model": "m", "rubric": "Better?", **args})
    assert told in str(caught.value)


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8])
@pytest.mark.parametrize("opponents", [None, 1, 2, 3, 4, 100])
def test_everyone_is_compared_with_as_many_others(size: int, opponents: int | None) -> None:
    pairs = choose_pairs(list(range(size)), opponents)
    counts = {sum(member in pair for pair in pairs) for member in range(size)}
    wanted = size - 1 if opponents is None else min(size - 1, opponents + opponents % 2)
    assert counts == {wanted}
    assert len(set(pairs)) == len(pairs)
    assert all(i < j for i, j in pairs)
