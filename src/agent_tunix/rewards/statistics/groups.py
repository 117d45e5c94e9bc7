"""Statistics of a step's groups: reasons why groups are dead, and different scores of equal responses."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agent_tunix.rewards.rounding import highest_within, lowest_reaching
from agent_tunix.rewards.sample import Sample

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

DEATHS = ("all_highest", "all_lowest", "tied", "unscored")


def causes_of_death(
    totals_PG: Array, scored_PG: Mask, dead_P: Mask, declared: tuple[float, float] | None
) -> dict[str, float | None]:
    """Return the shares of groups that are dead, by reason.

    Args:
        totals_PG: Rewards used in training; NaN for an unscored completion.
        scored_PG: True for completions with a score of their own, rather than a 0 in its place.
        dead_P: True for groups without any advantage.
        declared: Declared range of the total; if None, the range of the batch's totals, provided that they differ.

    Returns:
        Shares of all groups, which sum to the share of dead groups. `unscored`: fewer than two completions are scored;
        `all_highest`, `all_lowest`: every total is at that end of the range; `tied`: no advantage for another reason.
        None if there are no groups.
    """
    if not dead_P.size:
        return dict.fromkeys(DEATHS)
    unscored_P = dead_P & (scored_PG.sum(axis=1) < 2)
    low_P = np.where(np.isnan(totals_PG), np.inf, totals_PG).min(axis=1)
    high_P = np.where(np.isnan(totals_PG), -np.inf, totals_PG).max(axis=1)
    lowest, highest = declared or (float(low_P.min()), float(high_P.max()))
    known_P = dead_P & ~unscored_P & (lowest < highest)
    highest_P = known_P & (low_P >= lowest_reaching(highest))
    lowest_P = known_P & (high_P <= highest_within(lowest))
    counts = {
        "all_highest": highest_P.sum(),
        "all_lowest": lowest_P.sum(),
        "tied": (dead_P & ~unscored_P & ~highest_P & ~lowest_P).sum(),
        "unscored": unscored_P.sum(),
    }
    return {name: int(count) / dead_P.size for name, count in counts.items()}


def duplicates(
    samples: Sequence[Sample], totals_B: Array, scored_B: Mask, num_generations: int
) -> tuple[float | None, float | None]:
    """Measure how often the policy repeats itself within a group, and how much the scores of equal completions differ.

    Two completions are equal if they answer the same prompt with the same text and number of tokens, and ended in the
    same way. A deterministic reward cannot distinguish them, so any spread of their totals is noise.

    Returns:
        The share of completions that occur more than once, None without samples; and the standard deviation (divisor n)
        of the totals of equal completions, averaged over the responses scored at least twice, None without any.
    """
    if not samples:
        return None, None
    numbers: dict[tuple[int, str, int, bool], int] = {}
    which_B = np.array(
        [
            numbers.setdefault(
                (index // num_generations, sample.response, sample.num_tokens, sample.ended), len(numbers)
            )
            for index, sample in enumerate(samples)
        ]
    )
    share = float((np.bincount(which_B)[which_B] > 1).mean())
    which_S, totals_S = which_B[scored_B], totals_B[scored_B]  # the S scored ones
    counts_R = np.bincount(which_S, minlength=len(numbers))  # the R different responses
    means_R = np.bincount(which_S, totals_S, len(numbers)) / np.maximum(counts_R, 1)
    squares_R = np.bincount(which_S, (totals_S - means_R[which_S]) ** 2, len(numbers))
    low_R, high_R = np.full(len(numbers), np.inf), np.full(len(numbers), -np.inf)
    np.minimum.at(low_R, which_S, totals_S)
    np.maximum.at(high_R, which_S, totals_S)
    # Equal totals have no deviation, even if their mean is rounded.
    deviations_R = np.where(low_R < high_R, np.sqrt(squares_R / np.maximum(counts_R, 1)), 0.0)
    doubled_R = counts_R > 1
    return share, float(deviations_R[doubled_R].mean()) if doubled_R.any() else None
