"""The updates of a step as its `policy/…` metrics."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def describe_updates(
    records: Sequence[Mapping[str, Any]], tokens: NDArray[np.int64], accumulation: int, *, total_weight: float
) -> dict[str, float | None]:
    """Means over the micro-batches of a step, each weighed as it was in the updates.

    An update is the plain mean of its micro-batches' gradients, and their losses, divergences and entropies are
    weighed so that the plain mean of these is what the whole batch has; divergence and entropy are then divided by the
    sum of the weights. Shares and ratios count tokens, and the gradient's norm is that of the whole update, before
    clipping.

    Args:
        records: What each micro-batch gave; the last one may not be finite.
        tokens: Tokens that take part in each.
        accumulation: Micro-batches an update.
        total_weight: Sum of the weights of the batch's tokens: 1 where the loss is a mean over tokens or completions.

    Returns:
        None for what there is none of: `kl` without a reference, and means over tokens where none takes part.
    """

    def found(name: str) -> NDArray[np.float64]:
        return np.array([record[name] for record in records], np.float64)

    def token_mean(name: str) -> float | None:
        return float(np.average(found(name), weights=tokens)) if tokens.sum() else None

    def weighed_mean(name: str) -> float | None:
        # In nats a token, whatever the loss is: one that sums over tokens has weights that do not sum to 1.
        return float(found(name).mean()) / total_weight if total_weight else None

    ends = [n for n, record in enumerate(records, 1) if n % accumulation == 0 or not record["finite"]]
    low, high = token_mean("clip_share_low"), token_mean("clip_share_high")
    return {
        "loss": float(found("loss").mean()),
        "kl": weighed_mean("kl") if "kl" in records[0] else None,
        "clip_share": None if low is None or high is None else low + high,
        "clip_share_low": low,
        "clip_share_high": high,
        "ratio_mean": token_mean("ratio_mean"),
        "ratio_max": float(found("ratio_max").max()) if tokens.sum() else None,
        "entropy": weighed_mean("entropy"),
        "grad_norm": float(found("grad_norm")[np.array(ends) - 1].mean()),
        **describe_norms([records[end - 1] for end in ends]),
    }


def describe_norms(updates: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How far updates moved the weights that train: means over the updates, for all weights and for each group.

    Args:
        updates: Of each update, `update_norm` and `weight_norm`: name of a group, "" for all → norm.
    """
    described = {}
    for name in updates[0]["update_norm"]:
        sizes = np.array([update["update_norm"][name] for update in updates], np.float64)
        weights = np.array([update["weight_norm"][name] for update in updates], np.float64)
        leaf = f"/{name}" if name else ""
        described[f"update_norm{leaf}"] = float(sizes.mean())
        # Weights that are all 0, as one half of a new adapter is, have no size to compare with.
        ratios = np.divide(sizes, weights, out=np.full_like(sizes, np.nan), where=weights > 0)
        described[f"update_ratio{leaf}"] = float(ratios.mean())
    return described
