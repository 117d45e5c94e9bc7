"""The objectives once more, in NumPy and float64, as loops over the papers' sums; and batches to try them on."""

import math
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from agent_tunix.grpo.losses import ObjectiveSettings

Array = NDArray[np.float64]
MAX_LENGTH = 6
NUM_ROWS = 4
GENERATIONS = 2


@dataclass(frozen=True)
class Batch:
    """Inputs of an objective, in float64; a mask need not be a prefix."""

    logps: Array
    old: Array
    reference: Array
    advantages: Array
    mask: NDArray[np.bool_]
    entropies: Array | None = None
    correction: Array | None = None  # weights of the sampler's correction, if they do not follow `logps`


@st.composite
def batches(draw: st.DrawFn, *, shift: float = 30.0) -> Batch:
    """Ragged batches: rows without a token, ratios from e^-shift to e^shift, advantages of 0.

    They have one shape, which JAX compiles once.
    """
    rows = NUM_ROWS
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0.0, 1e-4, 0.1, 1.0, shift / 3]))

    def moved(logps: Array) -> Array:
        return logps + np.clip(scale * rng.normal(size=logps.shape), -shift, shift)

    logps = -rng.exponential(2.0, (rows, MAX_LENGTH))
    lengths = np.array(draw(st.lists(st.integers(0, MAX_LENGTH), min_size=rows, max_size=rows)))
    advantages = np.array(draw(st.lists(st.sampled_from([-1.5, -0.3, 0.0, 0.7, 2.0]), min_size=rows, max_size=rows)))
    mask = np.arange(MAX_LENGTH) < lengths[:, None]
    # In float32 first, so that both sides are given the same numbers.
    logps, old, reference = (x.astype(np.float32).astype(np.float64) for x in (logps, moved(logps), moved(logps)))
    entropies = rng.permutation(np.arange(1.0, rows * MAX_LENGTH + 1)).reshape(rows, MAX_LENGTH) / 8  # without ties
    return Batch(logps, old, reference, advantages.astype(np.float32).astype(np.float64), mask, entropies)


# --- the surrogates: minus the gain of each token ---------------------------------------------------------------------


def clipped_gain(ratio: float, advantage: float, settings: ObjectiveSettings) -> float:
    """min(r A, clip(r, 1 − ε, 1 + ε_high) A), and at least c A for A < 0."""
    bounded = min(max(ratio, 1 - float(settings.epsilon)), 1 + float(settings.epsilon_high))
    gain = min(ratio * advantage, bounded * advantage)
    if settings.epsilon_c is not None and advantage < 0:
        gain = max(gain, float(settings.epsilon_c) * advantage)
    return gain


def cut(log_ratio: float) -> float:
    return min(max(log_ratio, -20.0), 20.0)


def token_loss(batch: Batch, i: int, t: int, settings: ObjectiveSettings) -> float:
    advantage = batch.advantages[i]
    if settings.loss == "reinforce":
        return float(-advantage * batch.logps[i, t])
    if settings.loss == "cispo":
        weight = min(math.exp(cut(batch.logps[i, t] - batch.old[i, t])), 1 + float(settings.epsilon_high))
        return float(-weight * advantage * batch.logps[i, t])
    if settings.loss == "sapo":
        tau = float(settings.tau_positive if advantage > 0 else settings.tau_negative)
        ratio = math.exp(cut(batch.logps[i, t] - batch.old[i, t]))
        return float(-4 / tau / (1 + math.exp(-tau * (ratio - 1))) * advantage)
    if settings.loss == "gmpo":
        members = np.flatnonzero(batch.mask[i]).tolist()
        logs = [cut(batch.logps[i, s] - batch.old[i, s]) for s in members]
        low, high = -float(settings.epsilon), float(settings.epsilon_high)
        kept = [min(log, high) if advantage > 0 else max(log, low) for log in logs]
        return float(-(np.prod(np.exp(kept)) ** (1 / len(kept))) * advantage)
    if settings.loss.startswith("dppo"):
        ratio = math.exp(cut(batch.logps[i, t] - batch.old[i, t]))
        outside = divergence_of_policies(batch, i, t, settings) > float(
            settings.epsilon_high if advantage > 0 else settings.epsilon
        )
        moves_away = (advantage > 0 and ratio > 1) or (advantage < 0 and ratio < 1)
        return 0.0 if outside and moves_away else float(-ratio * advantage)
    if settings.loss == "grpo":
        ratio = math.exp(cut(batch.logps[i, t] - batch.old[i, t]))
    else:  # the value of GSPO-token is that of GSPO
        members = np.flatnonzero(batch.mask[i]).tolist()
        ratio = math.exp(cut(sum(batch.logps[i, s] - batch.old[i, s] for s in members) / len(members)))
    return float(-clipped_gain(ratio, advantage, settings))


def divergence_of_policies(batch: Batch, i: int, t: int, settings: ObjectiveSettings) -> float:
    """Return the divergence of DPPO between two distributions over the sampled token and all others."""
    new, old = math.exp(batch.logps[i, t]), math.exp(batch.old[i, t])
    if settings.loss == "dppo_tv":
        return abs(old - new)
    return float(
        old * (batch.old[i, t] - batch.logps[i, t]) + (1 - old) * math.log(max(1 - old, 1e-8) / max(1 - new, 1e-8))
    )


def divergence(batch: Batch, i: int, t: int, settings: ObjectiveSettings) -> float:
    d = batch.reference[i, t] - batch.logps[i, t]
    if settings.kl_estimator == "mse_kl":
        return float(d * d / 2)
    ratio = math.exp(cut(batch.logps[i, t] - batch.old[i, t])) if settings.kl_estimator == "unbiased_kl" else 1.0
    return float(ratio * (math.exp(d) - d - 1))


def distance(batch: Batch, i: int) -> float:
    """Return the mean of log π_old − log π over the tokens of a completion."""
    members = np.flatnonzero(batch.mask[i])
    return float((batch.old[i, members] - batch.logps[i, members]).mean())


def counts(batch: Batch, i: int, t: int, settings: ObjectiveSettings) -> bool:
    """Return True if no mask removes the policy loss of a token."""
    threshold = settings.off_policy_threshold
    if threshold is not None and batch.advantages[i] < 0 and distance(batch, i) > float(threshold):
        return False
    if settings.top_entropy_share is not None:
        assert batch.entropies is not None
        highest = sorted(batch.entropies[batch.mask].tolist(), reverse=True)
        num_kept = math.ceil(float(settings.top_entropy_share) * len(highest) - 1e-4)
        return bool(batch.entropies[i, t] >= highest[max(num_kept - 1, 0)])
    return True


def correction_logs(batch: Batch, i: int, t: int, settings: ObjectiveSettings) -> float:
    """Return log ρ of a token's correction, with `old` as the sampler's log-probabilities."""
    logs = [cut(batch.logps[i, s] - batch.old[i, s]) for s in np.flatnonzero(batch.mask[i])]
    if settings.sampler_correction in ("token", "icepop"):
        return logs[t]
    return cut(sum(logs) / (len(logs) if settings.sampler_correction == "geometric_mask" else 1))


def correction(batch: Batch, settings: ObjectiveSettings, *, one_update: bool = False) -> Array:
    """Return the factors of the tokens' losses; a mask is one if the ratios of the loss hold ρ already."""
    weights = np.ones_like(batch.logps)
    cap, floor = float(settings.sampler_correction_cap), float(settings.sampler_correction_floor or 0.0)
    for i, t in np.argwhere(batch.mask):
        ratio = math.exp(correction_logs(batch, i, t, settings))
        if settings.sampler_correction in ("token", "sequence"):
            weights[i, t] = min(ratio, cap)
        elif not floor <= ratio <= cap:
            weights[i, t] = 0.0
        elif one_update and settings.sampler_correction != "geometric_mask":
            weights[i, t] = ratio
    return weights


def loss_of(batch: Batch, i: int, t: int, settings: ObjectiveSettings) -> float:
    """Return the loss of a token, with all terms."""
    loss = token_loss(batch, i, t, settings) if counts(batch, i, t, settings) else 0.0
    if settings.sampler_correction is not None:
        weights = correction(batch, settings) if batch.correction is None else batch.correction
        loss *= weights[i, t]
    loss += float(settings.beta) * divergence(batch, i, t, settings)
    if settings.entropy_coefficient is not None:
        assert batch.entropies is not None
        loss -= float(settings.entropy_coefficient) * batch.entropies[i, t]
    if settings.positive_nll is not None and batch.advantages[i] > 0:
        loss -= float(settings.positive_nll) * batch.logps[i, t]
    return float(loss)


def objective(batch: Batch, settings: ObjectiveSettings, mode: str, max_length: int = MAX_LENGTH) -> float:
    """The loss, sum by sum."""
    rows = []
    for i in range(len(batch.mask)):
        members = np.flatnonzero(batch.mask[i]).tolist()
        rows.append([loss_of(batch, i, t, settings) for t in members])
    present = [row for row in rows if row]
    if not present:
        return 0.0
    if mode == "sequence-mean-token-mean":
        return float(np.mean([np.mean(row) for row in present]))
    if mode == "token-mean":
        return float(np.mean(np.concatenate(present)))
    if mode == "prompt-mean-token-mean":
        prompts = [
            [loss for row in rows[i : i + GENERATIONS] for loss in row] for i in range(0, len(rows), GENERATIONS)
        ]
        return float(np.mean([np.mean(tokens) for tokens in prompts if tokens]))
    if mode == "sequence-mean-token-sum":
        return float(np.mean([np.sum(row) for row in present]))
    if mode == "length-weighted-token-sum":  # α = 1
        shares = np.array([1 / len(row) for row in present])
        return float(np.sum(shares / shares.sum() * [np.sum(row) / max_length for row in present]))
    assert mode == "sequence-mean-token-sum-norm"
    return float(np.mean([np.sum(row) / max_length for row in rows]))


def gradient(batch: Batch, settings: ObjectiveSettings, mode: str) -> Array:
    """∂ objective / ∂ logps by central differences, of a batch that is far enough from every kink."""
    result = np.zeros_like(batch.logps)
    h = 1e-6
    for i, t in np.argwhere(batch.mask):
        up, down = batch.logps.copy(), batch.logps.copy()
        up[i, t] += h
        down[i, t] -= h
        result[i, t] = (
            objective(replace(batch, logps=up), settings, mode) - objective(replace(batch, logps=down), settings, mode)
        ) / (2 * h)
    return result


def near_a_kink(batch: Batch, settings: ObjectiveSettings, width: float = 1e-4) -> bool:
    """Return True if a ratio is so near a bound that float32, or a difference, may see its other side."""
    if settings.off_policy_threshold is not None:
        distances = [distance(batch, i) for i in range(len(batch.mask)) if batch.mask[i].any()]
        if any(abs(one - float(settings.off_policy_threshold)) < width for one in distances):
            return True
    if settings.sampler_correction_floor is not None:
        edges = [math.log(settings.sampler_correction_floor), math.log(settings.sampler_correction_cap)]
        ratios = [correction_logs(batch, i, t, settings) for i, t in np.argwhere(batch.mask)]
        if any(abs(ratio - edge) < max(width, 1e-5) for ratio in ratios for edge in edges):
            return True
    if settings.loss == "reinforce":
        return False
    if settings.loss.startswith("dppo"):
        found = [divergence_of_policies(batch, i, t, settings) for i, t in np.argwhere(batch.mask)]
        edges = [float(settings.epsilon), float(settings.epsilon_high)]
        if any(abs(one - edge) < max(width, 1e-5) for one in found for edge in edges):
            return True
        return bool(min(np.abs(np.abs(batch.logps - batch.old) - 20.0).min(), 1.0) < width)
    logs = np.where(batch.mask, batch.logps - batch.old, 0.0)
    if settings.loss in ("gspo", "gspo_token"):
        logs = logs.sum(axis=1) / np.maximum(batch.mask.sum(axis=1), 1)
    bounds = [math.log(1 - settings.epsilon), math.log(1 + settings.epsilon_high), -20.0, 20.0]
    if settings.loss == "gmpo":
        bounds = [-float(settings.epsilon), float(settings.epsilon_high), -20.0, 20.0]
    if settings.epsilon_c is not None:
        bounds.append(math.log(settings.epsilon_c))
    return bool(min(np.abs(logs - bound).min() for bound in bounds) < width)
