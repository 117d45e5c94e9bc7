"""The effect of each component on the gradient: its share of the advantages' variance, and its conflicts.

Under every `grpo.advantage_scaling` an advantage is a sum over the components. Let v_c be the transformed and gated
value of a component, w_c its weight and r the total. mean and std are over the scored completions of a group, STD is
over the scored completions of the batch, and S is the sum over the components before the last division.

    group            A = Σ_c w_c · (v_c − mean(v_c)) / (std(r) + ε)
    batch            A = Σ_c w_c · (v_c − mean(v_c)) / (STD(r) + ε)
    batch_centred    A = Σ_c w_c · (v_c − mean(v_c)) / (STD(r − mean(r)) + ε)
    mean             A = Σ_c w_c · (v_c − mean(v_c)) / (mean(|r|) + ε)
    none             A = Σ_c w_c · (v_c − mean(v_c))
    leave_one_out    A = Σ_c w_c · (v_c − mean(v_c)) · n / (n − 1)
    component        A = Σ_c w_c · (v_c − mean(v_c)) / (std(v_c) + ε) / (STD(S) + ε)

A user's own estimator may not be such a sum. Its shares are computed as for `none`.

So A = Σ_c a_c, and each part a_c sums to zero in each group, as A does. The variance of the advantages is then the sum
of the components' covariances with them:

    var(A) = cov(Σ_c a_c, A) = Σ_c cov(a_c, A),        share_c = cov(a_c, A) / var(A),        Σ_c share_c = 1,

where var and cov are means over the scored completions of the batch. There is no variance between groups, because the
mean of each group is 0. This is the natural decomposition of variance by factor components of A. F. Shorrocks,
"Inequality Decomposition by Factor Components", Econometrica 50 (1982), pages 193-211.

A component that works against the outcome has a negative share, and the others then sum to more than 1. Weights, gates
and transforms count. A component whose values never differ within a group has the share 0, however large they are. A
divisor that is equal for the whole batch cancels, so `batch`, `batch_centred` and `none` give the same shares, and so
does `leave_one_out` if every completion is scored. `group` gives all live groups the same influence at any spread.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agent_tunix.rewards.advantages import SCALERS, centre, is_dead, standardise, unbiased_std

Array = NDArray[np.float64]

# A part smaller than this, relative to the largest of its kind, is a rounding error.
ROUNDING = 1e-9


def advantage_parts(
    totals_B: Array,
    values_CB: Array,
    weights_C: Array,
    num_generations: int,
    scaling: str = "group",
    *,
    epsilon: float = 1e-6,
) -> Array:
    """Return the part of each component in each advantage, of shape [C, B].

    The sum over C equals `compute_advantages` up to rounding. Parts are 0 for unscored completions (NaN in `totals_B`)
    and in dead groups. `values_CB` are transformed and gated values, `scaling` is `grpo.advantage_scaling`, and
    `epsilon` has the unit of reward.
    """
    totals_PG = totals_B.reshape(-1, num_generations)
    scored_PG = ~np.isnan(totals_PG)
    values_CPG = np.where(scored_PG, values_CB.reshape(-1, *totals_PG.shape), np.nan)
    weights_C11 = weights_C[:, None, None]
    if scaling == "component":
        parts_CPG = weights_C11 * standardise(values_CPG, epsilon)
        parts_CPG = parts_CPG / (unbiased_std(parts_CPG.sum(axis=0), scored_PG) + epsilon)
        return parts_CPG.reshape(values_CB.shape)
    parts_CPG = np.where(is_dead(totals_PG)[:, None], 0.0, weights_C11 * centre(values_CPG))
    parts_CPG = SCALERS.get(scaling, SCALERS["none"])(parts_CPG, totals_PG, epsilon)
    return parts_CPG.reshape(values_CB.shape)


def variance_shares(parts_CB: Array) -> list[float] | None:
    """Return the share of the advantages' variance that each component explains; see the module's docstring.

    The shares sum to 1. Return None if all advantages are 0, or if the components cancel out.
    """
    largest = float(np.abs(parts_CB).max(initial=0.0))
    if not largest:
        return None
    parts_CB = parts_CB / largest  # prevents overflow and underflow of squares
    advantages_B = parts_CB.sum(axis=0)
    if float(np.abs(advantages_B).max()) <= ROUNDING:
        return None
    covariances_C = parts_CB @ advantages_B
    shares: list[float] = (covariances_C / covariances_C.sum()).tolist()
    return shares


def conflict_shares(parts_CB: Array) -> list[float | None]:
    """Return how often, 0 to 1, each component pushes a completion in the opposite direction to all others together.

    Only completions count for which neither its part nor the sum of the others is 0. The share is None without any.
    """
    signs_CB = _signs(parts_CB)
    rest_CB = _signs(parts_CB.sum(axis=0) - parts_CB, float(np.abs(parts_CB).max(initial=0.0)))
    counted_C = (signs_CB * rest_CB != 0).sum(axis=1)
    against_C = (signs_CB * rest_CB < 0).sum(axis=1)
    return [_share(*pair) for pair in zip(against_C.tolist(), counted_C.tolist(), strict=True)]


def pair_conflicts(names: Sequence[str], parts_CB: Array) -> dict[tuple[str, str], float | None]:
    """Return how often, 0 to 1, two components push a completion in opposite directions, for each pair.

    Only completions count for which neither part is 0. The share is None without any.
    """
    signs_CB = _signs(parts_CB)
    moved_CB = np.abs(signs_CB)
    counted_CC = (moved_CB @ moved_CB.T).tolist()
    # For n pairs of signs, the product is agreements minus conflicts, so conflicts = (n - product) / 2.
    balance_CC = (signs_CB @ signs_CB.T).tolist()
    return {
        (names[a], names[b]): _share((counted_CC[a][b] - balance_CC[a][b]) / 2, counted_CC[a][b])
        for a in range(len(names))
        for b in range(a + 1, len(names))
    }


def _signs(parts_CB: Array, largest: float | None = None) -> Array:
    if largest is None:
        largest = float(np.abs(parts_CB).max(initial=0.0))
    return np.where(np.abs(parts_CB) > ROUNDING * largest, np.sign(parts_CB), 0.0)


def _share(count: float, of: float) -> float | None:
    return count / of if of else None
