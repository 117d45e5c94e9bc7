"""Which completions a step trains on: all that were sampled, or those of groups that teach something.

Dynamic sampling (https://arxiv.org/abs/2503.14476, section 3.2): a group whose rewards are all equal has no advantage
and only makes the others count for less, so its place is given to a group of another prompt, as long as
`grpo.dynamic_sampling_rounds` more rounds of prompts give one.

Departures from the paper: rounds are limited, and a place for which none gave a living group keeps the group it had, so
that a batch never changes its shape; rounds are whole batches, and living groups beyond the places are left over.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent_tunix.rewards import Outcome, Sample, Score
from agent_tunix.rewards.advantages import is_dead
from agent_tunix.sampling.sampler import Completions, join_completions


@dataclass(frozen=True)
class Scored:
    """Completions and what the rewards said of them, N of each, group by group.

    Attributes:
        completions: Tokens and lengths.
        samples: The completions as rewards saw them.
        scores: What the mixture said of each.
        totals: [N] rewards; NaN where unscored.
    """

    completions: Completions
    samples: Sequence[Sample]
    scores: Sequence[Score]
    totals: NDArray[np.float64]


@dataclass(frozen=True)
class SamplingTally:
    """What a step sampled, trained on or not.

    Attributes:
        rounds: Batches of prompts, the first included.
        groups: Groups that were sampled.
        dead_groups: Those whose rewards were all equal, or of which fewer than two were scored.
        surplus_groups: Living ones for which there was no place.
        reward_mean: Mean total of all scored completions; None without any.
        outcomes: Completions by outcome.
        num_completions: Completions.
        num_tokens: Tokens of completions.
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
    """Whether every place of the batch can be given to a living group."""
    living = sum(int((~_dead(scored, num_generations)).sum()) for scored in rounds)
    return living * num_generations >= len(rounds[0].scores)


def fill_places(rounds: Sequence[Scored], num_generations: int) -> Scored:
    """The batch that trains: the first round, its dead groups replaced by the living ones of the others, in order."""
    first, *others = rounds
    if not others:
        return first
    places = [(0, group) for group in range(len(first.scores) // num_generations)]
    spare = [
        (number, int(group))
        for number, scored in enumerate(others, 1)
        for group in np.flatnonzero(~_dead(scored, num_generations))
    ]
    for place, found in zip(np.flatnonzero(_dead(first, num_generations)), spare, strict=False):
        places[place] = found
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
    )


def count_sampled(rounds: Sequence[Scored], num_generations: int) -> SamplingTally:
    """What all rounds of a step together came to."""
    totals = np.concatenate([scored.totals for scored in rounds])
    scored_totals = totals[~np.isnan(totals)]
    outcomes = Counter(score.outcome for scored in rounds for score in scored.scores)
    groups = len(totals) // num_generations
    dead = sum(int(_dead(scored, num_generations).sum()) for scored in rounds)
    return SamplingTally(
        rounds=len(rounds),
        groups=groups,
        dead_groups=dead,
        surplus_groups=max(groups - dead - len(rounds[0].scores) // num_generations, 0),
        reward_mean=float(scored_totals.mean()) if scored_totals.size else None,
        outcomes={outcome: outcomes[outcome] for outcome in Outcome},
        num_completions=len(totals),
        num_tokens=sum(int(scored.completions.lengths.sum()) for scored in rounds),
    )


def _dead(scored: Scored, num_generations: int) -> NDArray[np.bool_]:
    return is_dead(scored.totals.reshape(-1, num_generations))
