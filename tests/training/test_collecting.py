"""Groups that a step trains on with dynamic sampling, and counts of all that were sampled."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from agent_tunix.grpo.dynamic_sampling import Scored, count_sampled, fill_places, is_full, judge, pass_rates
from agent_tunix.rewards import Outcome, Sample, Score
from agent_tunix.sampling.forks import Forks
from agent_tunix.sampling.sampler import Completions

G = 2
LIVE, DEAD, UNSCORED = (0.0, 1.0), (1.0, 1.0), (np.nan, 1.0)


def scored(
    number: int, *groups: tuple[float, float], judged: NDArray[np.float64] | None = None, rows: Sequence[int] = ()
) -> Scored:
    """A round; each completion's first token says which it is."""
    totals = np.array(groups).reshape(-1)
    n = len(totals)
    names = [f"{number}_{row // G}_{row % G}" for row in range(n)]
    return Scored(
        Completions(
            prompt_tokens=np.full((n, 3), number),
            prompt_lengths=np.full(n, 3),
            tokens=np.arange(n)[:, None] + 100 * number,
            lengths=np.ones(n, np.int32),
            ended=np.ones(n, bool),
            texts=names,
            logps=np.zeros((n, 1), np.float32),
        ),
        [Sample(name, rollout_id=name) for name in names],
        [
            Score(None, outcome=Outcome.ERROR, detail="no") if np.isnan(total) else Score(float(total))
            for total in totals
        ],
        totals,
        totals if judged is None else judged,
        rows,
    )


def groups_of(batch: Scored) -> list[str]:
    return [name.rpartition("_")[0] for name in batch.completions.texts[::G]]


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([(LIVE, LIVE)], ["0_0", "0_1"]),
        ([(LIVE, DEAD)], ["0_0", "0_1"]),  # there was no other round
        ([(LIVE, DEAD), (DEAD, LIVE)], ["0_0", "1_1"]),
        ([(DEAD, LIVE), (LIVE, LIVE)], ["1_0", "0_1"]),  # one is left over
        ([(DEAD, DEAD), (DEAD, LIVE), (DEAD, LIVE)], ["1_1", "2_1"]),
        ([(DEAD, DEAD), (DEAD, LIVE), (DEAD, DEAD)], ["1_1", "0_1"]),  # not enough: a dead one keeps its place
        ([(UNSCORED, LIVE), (LIVE, DEAD)], ["1_0", "0_1"]),  # one scored member compares with nobody
    ],
)
def test_live_groups_replace_dead_ones(rounds: Sequence[tuple[tuple[float, float], ...]], expected: list[str]) -> None:
    batch = fill_places([scored(number, *groups) for number, groups in enumerate(rounds)], G)
    assert groups_of(batch) == expected


def test_whatever_is_known_of_a_completion_moves_with_it() -> None:
    batch = fill_places([scored(0, DEAD, LIVE), scored(1, LIVE, LIVE)], G)
    assert batch.completions.texts == [sample.response for sample in batch.samples]
    assert batch.totals.tolist() == [score.value for score in batch.scores] == [0.0, 1.0, 0.0, 1.0]
    assert batch.completions.tokens[:, 0].tolist() == [100, 101, 2, 3]
    assert batch.completions.prompt_tokens[:, 0].tolist() == [1, 1, 0, 0]


@given(st.lists(st.lists(st.sampled_from([LIVE, DEAD, UNSCORED]), min_size=3, max_size=3), min_size=1, max_size=4))
def test_every_group_sampled_is_counted_once(rounds: list[list[tuple[float, float]]]) -> None:
    sampled = [scored(number, *groups) for number, groups in enumerate(rounds)]
    tally, batch = count_sampled(sampled, G), fill_places(sampled, G)
    living = sum(group == LIVE for groups in rounds for group in groups)
    trained = sum(group == LIVE for group in zip(batch.totals[::G], batch.totals[1::G], strict=True))
    assert tally.rounds == len(rounds)
    assert tally.groups == 3 * len(rounds) == tally.dead_groups + living
    assert trained == min(living, 3) == living - tally.surplus_groups
    assert is_full(sampled, G) == (trained == 3)
    assert len(batch.samples) == len({sample.rollout_id for sample in batch.samples}) == 6
    assert sum(tally.outcomes.values()) == tally.num_completions == tally.num_tokens == 6 * len(rounds)


def test_rewards_and_outcomes_of_discarded_groups_are_counted() -> None:
    tally = count_sampled([scored(0, LIVE, DEAD), scored(1, UNSCORED, LIVE)], G)
    assert tally.reward_mean == pytest.approx((0 + 1 + 1 + 1 + 1 + 0 + 1) / 7)
    assert tally.outcomes[Outcome.SCORED] == 7
    assert tally.outcomes[Outcome.ERROR] == 1


def test_tokens_of_forks_are_counted_and_those_of_tools_are_not() -> None:
    one = scored(0, LIVE, DEAD)
    ids, flags, length = np.zeros((1, 1), np.int32), np.ones((1, 1), np.bool_), np.ones(1, np.int32)
    forks = Forks(np.array([2]), ids, length, ids, length, ids.astype(np.float32), flags)
    sampled = np.array([[True], [True], [True], [False]])
    completions = dataclasses.replace(one.completions, sampled=sampled, forks=forks)
    assert count_sampled([dataclasses.replace(one, completions=completions)], G).num_tokens == 3 + 1


def test_without_a_scored_completion_there_is_no_mean() -> None:
    assert count_sampled([scored(0, (np.nan, np.nan))], G).reward_mean is None


def test_groups_are_judged_by_another_component() -> None:
    judged = [np.array(values) for values in ([1.0, 1.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0])]
    first = scored(0, LIVE, DEAD, judged=judged[0])
    assert not is_full([first], G)
    assert groups_of(fill_places([first, scored(1, DEAD, LIVE, judged=judged[1])], G)) == ["1_0", "0_1"]
    assert count_sampled([first], G).dead_groups == 1


def test_the_judged_values_are_those_of_the_component_before_its_transforms() -> None:
    scores = [
        Score(1.2, {"math": 1.0, "form": 0.2}),
        Score(0.2, {"math": None, "form": 0.2}),
        Score(None, {"math": 1.0}, Outcome.ERROR, "no"),
    ]
    assert judge(scores, np.array([1.2, 0.2, np.nan]), "math").tolist() == pytest.approx(
        [1.0, np.nan, np.nan], nan_ok=True
    )


def test_pass_rates_of_all_rounds() -> None:
    rounds = [scored(0, LIVE, DEAD, rows=[7, 3]), scored(1, (np.nan, 0.5), (np.nan, np.nan), rows=[9, 4])]
    assert pass_rates(rounds, G, 1.0) == pytest.approx({7: 0.5, 3: 1.0, 9: 0.0, 4: np.nan}, nan_ok=True)


def test_the_pass_rate_of_a_row_that_was_sampled_twice_is_that_of_both() -> None:
    rounds = [scored(0, LIVE, DEAD, rows=[7, 3]), scored(1, DEAD, (np.nan, np.nan), rows=[7, 3])]
    assert pass_rates(rounds, G, 1.0) == pytest.approx({7: 0.75, 3: 1.0})
