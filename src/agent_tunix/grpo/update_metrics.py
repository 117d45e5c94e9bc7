"""The `policy/…` metrics of the updates of a step."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def describe_updates(
    records: Sequence[Mapping[str, Any]], tokens: NDArray[np.int64], accumulation: int, *, total_weight: float
) -> dict[str, float | None]:
    """Return means over the micro-batches of a step, weighted as in the updates.

    An update uses the plain mean of its micro-batches' gradients. The losses, KL divergences and entropies of the
    micro-batches are scaled so that their plain mean is the value of the whole batch. KL divergence and entropy are
    then divided by the sum of the weights. Clip shares and ratios are means over tokens. The gradient norm is that of
    the whole update, before clipping.

    Args:
        records: One record for each micro-batch; the last one may not be finite.
        tokens: Number of tokens of each micro-batch that take part in the loss.
        accumulation: Micro-batches of an update.
        total_weight: Sum of the weights of the batch's tokens; 1 if the loss is a mean over tokens or completions.

    Returns:
        The metrics by name. None marks a metric without a value: `kl` without a reference policy, and means over tokens
            if no token takes part.
    """

    def found(name: str) -> NDArray[np.float64]:
        return np.array([record[name] for record in records], np.float64)

    def token_mean(name: str) -> float | None:
        return float(np.average(found(name), weights=tokens)) if tokens.sum() else None

    def optional(name: str, mean: Callable[[str], float | None]) -> dict[str, float | None]:
        return {name: mean(name)} if name in records[0] else {}

    def weighed_mean(name: str) -> float | None:
        # Always in nats per token: the weights of a loss that sums over tokens do not sum to 1.
        return float(found(name).mean()) / total_weight if total_weight else None

    def mean_over(name: str, weight_name: str) -> float | None:
        weight = found(weight_name).sum()
        return float(found(name).sum() / weight) if weight else None

    def observation_mean(name: str) -> float | None:
        return mean_over(name, "observation_weight")

    def taught_mean(name: str) -> float | None:
        return mean_over(name, "teacher_weight") if "teacher_weight" in records[0] else weighed_mean(name)

    ends = [n for n, record in enumerate(records, 1) if n % accumulation == 0 or not record["finite"]]
    low, high = token_mean("clip_share_low"), token_mean("clip_share_high")
    return {
        "loss": float(found("loss").mean()),
        "kl": weighed_mean("kl") if "kl" in records[0] else None,
        **optional("teacher_kl", taught_mean),
        "clip_share": None if low is None or high is None else low + high,
        "clip_share_low": low,
        "clip_share_high": high,
        "ratio_mean": token_mean("ratio_mean"),
        "ratio_max": float(found("ratio_max").max()) if tokens.sum() else None,
        "entropy": weighed_mean("entropy"),
        "sampler_mismatch_kl": _of_first_update(records, tokens, accumulation),
        **optional("masked_share", token_mean),
        **optional("sampler_masked_share", token_mean),
        **optional("observation_nll", observation_mean),
        **optional("expert_load_max", token_mean),
        **optional("expert_balance_loss", token_mean),
        **optional("entropy_coefficient", lambda name: float(found(name)[0])),
        "grad_norm": float(found("grad_norm")[np.array(ends) - 1].mean()),
        **describe_norms([records[end - 1] for end in ends]),
    }


def _of_first_update(
    records: Sequence[Mapping[str, Any]], tokens: NDArray[np.int64], accumulation: int
) -> float | None:
    """Return the mean of `sampler_mismatch_kl` before the first update, after which the policy has moved."""
    values = [record["sampler_mismatch_kl"] for record in records[:accumulation]]
    counts = tokens[: len(values)]
    return float(np.average(np.array(values, np.float64), weights=counts)) if counts.sum() else None


def describe_norms(updates: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the distances that the updates moved the weights, as means over updates, for all weights and each group.

    Args:
        updates: For each update, `update_norm` and `weight_norm`, each a mapping from group name ("" for all weights)
            to norm.
    """
    norms = {}
    for name in updates[0]["update_norm"]:
        sizes = np.array([update["update_norm"][name] for update in updates], np.float64)
        weights = np.array([update["weight_norm"][name] for update in updates], np.float64)
        leaf = f"/{name}" if name else ""
        norms[f"update_norm{leaf}"] = float(sizes.mean())
        # The ratio is undefined for weights that are all 0, such as B of a new adapter.
        ratios = np.divide(sizes, weights, out=np.full_like(sizes, np.nan), where=weights > 0)
        norms[f"update_ratio{leaf}"] = float(ratios.mean())
    return norms
