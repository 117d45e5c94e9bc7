"""Advantage of each completion within its group.

With r the total of a completion, mean and std over the scored members of its group, and STD over the scored completions
of the whole batch, `grpo.advantage_scaling` chooses

    group            A_i = (r_i − mean(r)) / (std(r) + ε)
    batch            A_i = (r_i − mean(r)) / (STD(r) + ε)
    batch_centred    A_i = (r_i − mean(r)) / (STD(r − mean(r)) + ε)
    mean             A_i = (r_i − mean(r)) / (mean(|r|) + ε)
    none             A_i =  r_i − mean(r)
    leave_one_out    A_i =  r_i − mean(r_j, j ≠ i)  =  n / (n − 1) · (r_i − mean(r)),      n the scored members
    component        S_i = Σ_k w_k · (v_ki − mean(v_k)) / (std(v_k) + ε),      A_i = S_i / (STD(S) + ε)

`group` is GRPO (https://arxiv.org/abs/2402.03300, section 4.1.2), `batch` is Lite PPO
(https://arxiv.org/abs/2508.08221), `batch_centred` is REINFORCE++ with baseline (https://arxiv.org/abs/2501.03262) and
ScaleRL (https://arxiv.org/abs/2510.13786), `mean` is MaxRL (https://arxiv.org/abs/2602.02710), `none` is Dr. GRPO
(https://arxiv.org/abs/2503.20783), `leave_one_out` is RLOO (https://arxiv.org/abs/2402.14740), and `component` is GDPO
(https://arxiv.org/abs/2601.05242). Any other name is a function of the user (`register_advantage_estimator`).

`component` standardises each component's values v_k within the group, sums them with their weights, and divides the
sums by their deviation over the batch. So equal totals with different components keep different advantages, and a
component of small range keeps its influence beside one of large range. v_k is the value that the mixture weighs, after
transforms. It is 0 if a gate is shut. If the component does not apply, it is the group's mean, so its part of S is 0.

Departures from the papers:

- ε keeps quotients finite; std and STD are the unbiased estimates (divisor n − 1).
- A completion without a score does not count in mean, std and STD, and gets 0.
- A group with fewer than two scored members, or with equal members (in the total; for `component`, in a component),
  gives exactly 0. Members are equal if they differ only by rounding (`rounding.py`), which no quotient may amplify.
- GDPO also subtracts the mean of S over the batch, and REINFORCE++ that of r − mean(r). This is left out, because both
  sum to zero in each group.
- MaxRL divides by mean(r) and is derived for rewards of 0 and 1. The mean of |r| is the same for rewards of at least 0,
  and keeps the sign of the advantage where rewards are negative.

With every built-in scaling, the advantages of a group's scored members sum to zero.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent_tunix.errors import RewardError
from agent_tunix.own_functions import OwnFunctions
from agent_tunix.rewards.rounding import ROUNDING, are_equal, join_equal

Array = NDArray[np.float64]
# Takes [P, G] totals, NaN for an unscored completion; returns [P, G] advantages.
Estimator = Callable[[Array], Array]


def _by_batch(centred: Array, values_PG: Array, epsilon: float) -> Array:
    return centred / (unbiased_std(values_PG, ~np.isnan(values_PG)) + epsilon)


def _by_centred_batch(centred: Array, values_PG: Array, epsilon: float) -> Array:
    return centred / (unbiased_std(centre(values_PG), ~np.isnan(values_PG)) + epsilon)


def _by_mean(centred: Array, values_PG: Array, epsilon: float) -> Array:
    counts_P1 = np.maximum((~np.isnan(values_PG)).sum(axis=-1, keepdims=True), 1)
    return np.asarray(centred / (np.nansum(np.abs(values_PG), axis=-1, keepdims=True) / counts_P1 + epsilon))


# Each takes centred values [..., P, G], the totals [P, G] and ε, and scales the values. All are linear in the values,
# so that the parts of the components are scaled as their sum is.
SCALERS: dict[str, Callable[[Array, Array, float], Array]] = {
    "group": lambda centred, totals_PG, epsilon: np.asarray(centred / (group_std(totals_PG) + epsilon)),
    "batch": _by_batch,
    "batch_centred": _by_centred_batch,
    "mean": _by_mean,
    "none": lambda centred, totals_PG, epsilon: centred,
    "leave_one_out": lambda centred, totals_PG, epsilon: np.asarray(centred * leave_one_out(totals_PG)),
}
SCALINGS = (*SCALERS, "component")

OWN_ESTIMATORS: OwnFunctions[Estimator] = OwnFunctions("advantage estimator", "grpo.advantage_scaling", SCALINGS)


def register_advantage_estimator(name: str, *, overwrite: bool = False) -> Callable[[Estimator], Estimator]:
    """Register a function as an advantage estimator, for `grpo.advantage_scaling=NAME`.

    The function takes the rewards of a batch as an array [prompts, completions], NaN for an unscored completion, and
    returns an array of advantages of that shape. Rewards of a group that differ only by rounding arrive as one number.
    An unscored completion gets 0 whatever the function returns.

    Args:
        name: Letters, digits and `_`; no built-in name.
        overwrite: Replace another function of this name.

    Returns:
        A decorator that returns the function unchanged.

    Raises:
        ConfigError: The name is malformed or taken.
    """
    return OWN_ESTIMATORS.register(name, overwrite)


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
        scaling: One of `SCALINGS`, or a name or path of a user's own estimator.
        values_CB: For `component`: the value of each component that was weighed; ignored for an unscored completion.
        weights_C: For `component`: weights of the components.
        epsilon: ε, in units of reward.

    Returns:
        [B] finite advantages.

    Raises:
        ValueError: B is not divisible by G, a reward is infinite, or the scaling is unknown.
        RewardError: The user's own estimator does not return a finite advantage for each scored completion.
    """
    totals_PG = _in_groups(totals_B, num_generations)
    scored_PG = ~np.isnan(totals_PG)
    if scaling == "component":
        if values_CB is None or weights_C is None:
            raise ValueError("the scaling `component` requires the components' values and weights")
        sums_PG, sizes_PG = np.zeros_like(totals_PG), np.zeros_like(totals_PG)
        for values_B, weight in zip(np.asarray(values_CB), np.asarray(weights_C), strict=True):
            values_PG = np.where(scored_PG, _in_groups(values_B, num_generations, scored_PG), np.nan)
            part_PG = weight * standardise(values_PG, epsilon)
            sums_PG += part_PG
            sizes_PG += np.abs(part_PG)
        sums_PG = np.where(np.abs(sums_PG) <= ROUNDING * sizes_PG, 0.0, sums_PG)  # parts that cancel leave rounding
        advantages_PG = sums_PG / (unbiased_std(sums_PG, scored_PG) + epsilon)
    elif scaling in SCALERS:
        advantages_PG = SCALERS[scaling](centre(totals_PG), totals_PG, epsilon)
    else:
        advantages_PG = _by_own_estimator(scaling, totals_PG, scored_PG)
    return advantages_PG.reshape(-1)


def _by_own_estimator(name: str, totals_PG: Array, scored_PG: NDArray[np.bool_]) -> Array:
    joined_PG = np.array([join_equal(totals_G) for totals_G in totals_PG]).reshape(totals_PG.shape)
    found_PG = np.asarray(OWN_ESTIMATORS.get(name)(joined_PG), dtype=np.float64)
    if found_PG.shape != totals_PG.shape or not np.isfinite(found_PG[scored_PG]).all():
        raise RewardError(
            f"grpo.advantage_scaling={name} must return a finite advantage for each scored completion, an array of the "
            f"shape {totals_PG.shape}, but returned the shape {found_PG.shape}: {found_PG}; correct the function",
            code="invalid_function",
        )
    return np.where(scored_PG, found_PG, 0.0)


def needs_batch(scaling: str) -> bool:
    """Return True if advantages depend on more than their group; those of a user's own estimator may."""
    return scaling in ("batch", "batch_centred", "component") or scaling not in SCALINGS


def compute_group_advantages(totals_B: ArrayLike, num_generations: int, epsilon: float = 1e-6) -> Array:
    """Return the advantages with the scaling `group`."""
    return compute_advantages(totals_B, num_generations, epsilon=epsilon)


def is_dead(totals_PG: Array) -> NDArray[np.bool_]:
    """Return True for groups that teach nothing: fewer than two members are scored, or all are equal up to rounding.

    `totals_PG` has NaN for unscored completions. Axes before P are kept, here and in the functions below.
    """
    counts_P = (~np.isnan(totals_PG)).sum(axis=-1)
    highest_P = np.fmax.reduce(totals_PG, axis=-1)
    lowest_P = np.fmin.reduce(totals_PG, axis=-1)
    return np.asarray((counts_P < 2) | are_equal(highest_P, lowest_P), dtype=np.bool_)


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
    """Return n / (n − 1) for the n scored members of each group, [P, 1]. If n < 2, the result multiplies only 0."""
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
