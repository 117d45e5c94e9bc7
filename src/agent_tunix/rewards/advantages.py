"""Advantage of each completion within its group.

With r the total of a completion, mean and std over the scored members of its group, and STD over the scored completions
of the whole batch, `grpo.advantage_scaling` chooses

    group            A_i = (r_i − mean(r)) / (std(r) + ε)
    batch            A_i = (r_i − mean(r)) / (STD(r) + ε)
    none             A_i =  r_i − mean(r)
    leave_one_out    A_i =  r_i − mean(r_j, j ≠ i)  =  n / (n − 1) · (r_i − mean(r)),      n the scored members
    component        S_i = Σ_k w_k · (v_ki − mean(v_k)) / (std(v_k) + ε),      A_i = S_i / (STD(S) + ε)

`group` is GRPO (https://arxiv.org/abs/2402.03300, section 4.1.2), `batch` is Lite PPO
(https://arxiv.org/abs/2508.08221), `none` is Dr. GRPO (https://arxiv.org/abs/2503.20783), `leave_one_out` is RLOO
(https://arxiv.org/abs/2402.14740), and `component` is GDPO (https://arxiv.org/abs/2601.05242).

`component` standardises each component's values v_k within the group, sums them with their weights, and divides the
sums by their deviation over the batch. So equal totals with different components keep different advantages, and a
component of small range keeps its influence beside one of large range. v_k is the value that the mixture weighs, after
transforms: 0 if a gate is shut, and the group's mean if the component does not apply, so that its part of S is 0.

Departures from the papers:

- ε keeps quotients finite; std and STD are the unbiased estimates (divisor n − 1).
- A completion without a score does not count in mean, std and STD, and gets 0.
- A group with fewer than two scored members, or with equal members (in the total; for `component`, in a component),
  gives exactly 0.
- GDPO also subtracts the mean of S over the batch. This is left out, because S sums to zero in each group.

With every scaling, the advantages of a group's scored members sum to zero.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

SCALINGS = ("group", "batch", "none", "leave_one_out", "component")

Array = NDArray[np.float64]


def compute_advantages(
    totals_B: ArrayLike,
    num_generations: int,
    scaling: str = "group",
    *,
    values_CB: ArrayLike | None = None,
    weights_C: ArrayLike | None = None,
    epsilon: float = 1e-6,
) -> Array:
    """Return the advantages of a batch.

    Args:
        totals_B: Rewards, the members of a group side by side: B = groups × G. NaN for an unscored completion.
        num_generations: G, the completions of a group.
        scaling: One of `SCALINGS`.
        values_CB: For `component`: the value of each component that was weighed; ignored for an unscored completion.
        weights_C: For `component`: weights of the components.
        epsilon: ε, in units of reward.

    Returns:
        [B] finite advantages.

    Raises:
        ValueError: B is not divisible by G, a reward is infinite, or the scaling is unknown.
    """
    totals_PG = _in_groups(totals_B, num_generations)
    scored_PG = ~np.isnan(totals_PG)
    if scaling == "component":
        if values_CB is None or weights_C is None:
            raise ValueError("the scaling `component` requires the components' values and weights")
        sums_PG = np.zeros_like(totals_PG)
        for values_B, weight in zip(np.asarray(values_CB), np.asarray(weights_C), strict=True):
            values_PG = np.where(scored_PG, _in_groups(values_B, num_generations, scored_PG), np.nan)
            sums_PG += weight * standardise(values_PG, epsilon)
        advantages_PG = sums_PG / (unbiased_std(sums_PG, scored_PG) + epsilon)
    elif scaling == "group":
        advantages_PG = standardise(totals_PG, epsilon)
    elif scaling == "batch":
        advantages_PG = centre(totals_PG) / (unbiased_std(np.where(scored_PG, totals_PG, 0.0), scored_PG) + epsilon)
    elif scaling == "none":
        advantages_PG = centre(totals_PG)
    elif scaling == "leave_one_out":
        advantages_PG = centre(totals_PG) * leave_one_out(totals_PG)
    else:
        raise ValueError(f"grpo.advantage_scaling must be one of {', '.join(SCALINGS)}, not {scaling!r}")
    return advantages_PG.reshape(-1)


def compute_group_advantages(totals_B: ArrayLike, num_generations: int, epsilon: float = 1e-6) -> Array:
    """Return the advantages with the scaling `group`."""
    return compute_advantages(totals_B, num_generations, epsilon=epsilon)


def is_dead(totals_PG: Array) -> NDArray[np.bool_]:
    """Return True for groups that teach nothing: fewer than two members are scored, or all scores are equal.

    `totals_PG` has NaN for unscored completions. Axes before P are kept, here and in the functions below.
    """
    counts_P = (~np.isnan(totals_PG)).sum(axis=-1)
    highest_P = np.fmax.reduce(totals_PG, axis=-1)
    lowest_P = np.fmin.reduce(totals_PG, axis=-1)
    return np.asarray((counts_P < 2) | (highest_P == lowest_P), dtype=np.bool_)


def centre(values_PG: Array) -> Array:
    """Return `v − mean(v)` over the members that are not NaN; exactly 0 for the others and in dead groups."""
    scored_PG = ~np.isnan(values_PG)
    counts_P1 = scored_PG.sum(axis=-1, keepdims=True)
    means_P1 = np.where(scored_PG, values_PG, 0.0).sum(axis=-1, keepdims=True) / np.maximum(counts_P1, 1)
    return np.where(scored_PG & ~is_dead(values_PG)[..., None], values_PG - means_P1, 0.0)


def standardise(values_PG: Array, epsilon: float) -> Array:
    """Return `(v − mean(v)) / (std(v) + ε)` over the members that are not NaN; exactly 0 for others and dead groups."""
    return np.asarray(centre(values_PG) / (group_std(values_PG) + epsilon))


def group_std(values_PG: Array) -> Array:
    """Return the unbiased standard deviation of each group, [P, 1]; 0 in a dead group."""
    counts_P1 = (~np.isnan(values_PG)).sum(axis=-1, keepdims=True)
    squares_P1 = (centre(values_PG) ** 2).sum(axis=-1, keepdims=True)
    return np.asarray(np.sqrt(squares_P1 / np.maximum(counts_P1 - 1, 1)))


def leave_one_out(values_PG: Array) -> Array:
    """Return n / (n − 1) for the n scored members of each group, [P, 1]. Where n < 2 the result only multiplies 0."""
    counts_P1 = (~np.isnan(values_PG)).sum(axis=-1, keepdims=True)
    return np.asarray(counts_P1 / np.maximum(counts_P1 - 1, 1))


def unbiased_std(values_PG: Array, scored_PG: NDArray[np.bool_]) -> float:
    """Return the unbiased standard deviation over all scored members of the batch; 0 for fewer than two."""
    values = values_PG[scored_PG]
    return float(values.std(ddof=1)) if values.size > 1 else 0.0


def _in_groups(values_B: ArrayLike, num_generations: int, matters_PG: NDArray[np.bool_] | None = None) -> Array:
    values_B = np.asarray(values_B, dtype=np.float64)
    if values_B.ndim != 1 or num_generations < 1 or values_B.size % num_generations:
        raise ValueError(f"totals must divide into groups of {num_generations}, but have the shape {values_B.shape}")
    values_PG = values_B.reshape(-1, num_generations)
    infinite_PG = np.isinf(values_PG) if matters_PG is None else ~np.isfinite(values_PG) & matters_PG
    if infinite_PG.any():
        raise ValueError("totals must be finite, or NaN for an unscored completion")
    return values_PG
