"""Division of completions among processes, each of which ends up with every score."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agent_tunix.distributed import Processes
from agent_tunix.rewards import Mixture, Sample, Score, resolve_reward
from agent_tunix.training.score_sharing import score_together, why_first_scores
from tests.distributed.conftest import Together
from tests.tracking.rollouts.support import in_no_time, same


def samples_of(groups: Sequence[int]) -> list[Sample]:
    return [
        Sample(f"{group}.{member}", step=1, group_id=group, rollout_id=f"1_{group}_{member}")
        for group, size in enumerate(groups)
        for member in range(size)
    ]


def scorer(seen: list[tuple[int, str]], index: int) -> Any:
    def score(samples: Sequence[Sample]) -> list[Score]:
        seen.extend((index, sample.response) for sample in samples)
        return [Score(float(sample.response), extras={"of": sample.rollout_id}) for sample in samples]

    return score


@pytest.mark.parametrize("groups", [(4, 4, 4, 4), (3, 3, 3), (2,), (1, 5, 2, 2, 2, 7)])
@pytest.mark.parametrize("count", [2, 3])
def test_each_completion_is_scored_in_whole_groups(together: Together, groups: tuple[int, ...], count: int) -> None:
    samples, seen = samples_of(groups), list[tuple[int, str]]()

    def work(processes: Processes) -> list[float | None]:
        scores = score_together(scorer(seen, processes.index), samples, processes, divided=True)
        return [score.value for score in scores]

    found = together(count, work)
    assert found == [[float(sample.response) for sample in samples]] * count
    assert sorted(response for _, response in seen) == sorted(sample.response for sample in samples)
    by_group: dict[str, set[int]] = {}
    for index, response in seen:
        by_group.setdefault(response.partition(".")[0], set()).add(index)
    assert all(len(scorers) == 1 for scorers in by_group.values())


def test_what_is_not_divided_is_scored_by_the_first_alone(together: Together) -> None:
    samples, seen = samples_of((2, 2)), list[tuple[int, str]]()

    def work(processes: Processes) -> int:
        return len(score_together(scorer(seen, processes.index), samples, processes, divided=False))

    assert together(2, work) == [4, 4]
    assert {index for index, _ in seen} == {0}


def test_scores_of_a_real_mixture_are_the_same_as_those_of_one_process(together: Together) -> None:
    mixture = mixture_of({"right": {"function": "math"}, "short": {"function": "conciseness", "weight": 0.3}})
    samples = [
        Sample(f"<answer>{group}</answer>", columns={"answer": str(group % 2)}, step=1, group_id=group, tokens=(1,))
        for group in range(4)
        for _ in range(3)
    ]
    alone = mixture.score(samples)
    found = together(2, lambda processes: score_together(mixture.score, samples, processes, divided=True))
    for scores in found:
        assert same([in_no_time(score) for score in scores], [in_no_time(score) for score in alone])
        assert (mixture.advantages(scores, 3) == mixture.advantages(alone, 3)).all()


def mixture_of(components: Mapping[str, Any]) -> Mixture:
    return resolve_reward(components)


def test_a_reward_of_single_completions_or_groups_is_divided() -> None:
    assert why_first_scores(mixture_of({"a": {"function": "math"}, "b": {"function": "format"}}), "auto") is None


def test_ray_has_one_process_score(caplog: pytest.LogCaptureFixture) -> None:
    assert "ray" in str(why_first_scores(mixture_of({"a": {"function": "math"}}), "ray"))


def test_a_reward_of_the_whole_batch_has_one_process_score() -> None:
    def ranked(completions: Sequence[str], **_: Any) -> list[float]:
        return [float(place) for place in range(len(completions))]

    ranked.needs_batch = True  # type: ignore[attr-defined]
    assert "whole batch" in str(why_first_scores(resolve_reward(ranked), "inline"))
