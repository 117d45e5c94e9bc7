"""The completions that a step trains on: all that were sampled or, with dynamic sampling, those of living groups.

Dynamic sampling (https://arxiv.org/abs/2503.14476, section 3.2): a group is dead if its rewards are all equal. It has
no advantage, and it lowers the weight of the other groups. A living group of another prompt takes its place, if one of
up to `grpo.dynamic_sampling_rounds` further rounds of prompts yields one.

Departures from the paper:

- The number of rounds is limited. A place for which no round yielded a living group keeps its dead group, so that the
  shape of a batch never changes.
- With `grpo.filter_by`, a group is dead if all its values of that component are equal, whatever its totals.
- A round is a whole batch. Living groups for which there is no place are dropped.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent_tunix.rewards import Outcome, Sample, Score
from agent_tunix.rewards.advantages import is_dead
from agent_tunix.rewards.rounding import lowest_reaching
from agent_tunix.sampling.sampler import Completions, join_completions


@dataclass(frozen=True)
class Scored:
    """N completions with their samples, scores and totals, group by group.

    Attributes:
        completions: Tokens and lengths.
        samples: The completions as rewards saw them.
        scores: The mixture's score of each.
        totals: [N] rewards; NaN if unscored.
        judged: [N] values by which groups are judged, `grpo.filter_by` or the totals; NaN if there is none.
        rows: Index of each group's row among the training rows; empty if unknown.
    """

    completions: Completions
    samples: Sequence[Sample]
    scores: Sequence[Score]
    totals: NDArray[np.float64]
    judged: NDArray[np.float64]
    rows: Sequence[int] = ()


@dataclass(frozen=True)
class SamplingTally:
    """Counts of everything that a step sampled, whether it trained or not.

    Attributes:
        rounds: Batches of prompts, the first included.
        groups: Groups that were sampled.
        dead_groups: Groups whose judged values were all equal, and groups with fewer than two judged values.
        surplus_groups: Living groups for which there was no place.
        reward_mean: Mean total of all scored completions; None if there are none.
        outcomes: Number of completions by outcome.
        num_completions: Completions that were sampled.
        num_tokens: Tokens of these completions that the policy wrote.
    """

    rounds: int
    groups: int
    dead_groups: int
    surplus_groups: int
    reward_mean: float | None
    outcomes: dict[Outcome, int]
    num_completions: int
    num_tokens: int


def is_full(rounds: Sequence[Scored], num_generations: int) -> bool:
    """Return True if there is a living group for every place of the batch."""
    living = sum(int((~dead_groups(scored, num_generations)).sum()) for scored in rounds)
    return living * num_generations >= len(rounds[0].scores)


def fill_places(rounds: Sequence[Scored], num_generations: int) -> Scored:
    """Return the batch to train on: the first round, with living groups of later rounds in place of its dead ones."""
    first, *others = rounds
    if not others:
        return first
    places = [(0, group) for group in range(len(first.scores) // num_generations)]
    spare = [
        (number, int(group))
        for number, scored in enumerate(others, 1)
        for group in np.flatnonzero(~dead_groups(scored, num_generations))
    ]
    for place, place_of_spare in zip(np.flatnonzero(dead_groups(first, num_generations)), spare, strict=False):
        places[place] = place_of_spare
    return select_groups(rounds, places, num_generations)


def select_groups(rounds: Sequence[Scored], places: Sequence[tuple[int, int]], num_generations: int) -> Scored:
    """Return the groups of some pairs (index of the round, group in it), in their order."""
    rows = [
        (number, row)
        for number, group in places
        for row in range(group * num_generations, (group + 1) * num_generations)
    ]
    return Scored(
        join_completions([scored.completions for scored in rounds], rows),
        [rounds[number].samples[row] for number, row in rows],
        [rounds[number].scores[row] for number, row in rows],
        np.array([rounds[number].totals[row] for number, row in rows]),
        np.array([rounds[number].judged[row] for number, row in rows]),
    )


def judge(scores: Sequence[Score], totals: NDArray[np.float64], component: str | None) -> NDArray[np.float64]:
    """Return the [N] values by which groups are judged: the totals, or the raw values of one component."""
    if component is None:
        return totals
    values = [None if score.value is None else score.components.get(component) for score in scores]
    return np.array([np.nan if value is None else value for value in values])


def pass_rates(rounds: Sequence[Scored], num_generations: int, pass_at: float) -> dict[int, float]:
    """Return, for each row, the share of completions that passed in all rounds; NaN if none was judged."""
    judged: dict[int, list[NDArray[np.float64]]] = {}
    for scored in rounds:
        for row, judged_G in zip(scored.rows, scored.judged.reshape(-1, num_generations), strict=True):
            judged.setdefault(row, []).append(judged_G)
    rates = {row: values[~np.isnan(values)] for row, values in ((row, np.concatenate(j)) for row, j in judged.items())}
    return {
        row: float((values >= lowest_reaching(pass_at)).mean()) if values.size else np.nan
        for row, values in rates.items()
    }


def count_sampled(rounds: Sequence[Scored], num_generations: int) -> SamplingTally:
    """Return the counts over all rounds of a step."""
    totals = np.concatenate([scored.totals for scored in rounds])
    scored_totals = totals[~np.isnan(totals)]
    outcomes = Counter(score.outcome for scored in rounds for score in scored.scores)
    groups = len(totals) // num_generations
    dead = sum(int(dead_groups(scored, num_generations).sum()) for scored in rounds)
    return SamplingTally(
        rounds=len(rounds),
        groups=groups,
        dead_groups=dead,
        surplus_groups=max(groups - dead - len(rounds[0].scores) // num_generations, 0),
        reward_mean=float(scored_totals.mean()) if scored_totals.size else None,
        outcomes={outcome: outcomes[outcome] for outcome in Outcome},
        num_completions=len(totals),
        num_tokens=sum(int(scored.completions.num_sampled.sum()) for scored in rounds),
    )


def dead_groups(scored: Scored, num_generations: int) -> NDArray[np.bool_]:
    """Return True for each group without an advantage."""
    return is_dead(scored.judged.reshape(-1, num_generations))
