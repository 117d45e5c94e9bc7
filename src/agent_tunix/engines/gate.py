"""The sync gate: proof, after each sync, that a replica samples from the policy's new weights.

The replica and the trainer score the same probe, a prompt and a continuation of N tokens. E are the replica's
log-probabilities and T the trainer's; E' and T' are those of an earlier version that the replica is known to have had:
its model before the first sync, and later the last version that was proven. Then

    t = T − T'    e = E − E'    ρ = e·t / t·t    σ = √2 rms(E' − T') / |t|

ρ is the part of the policy's movement that the replica shows, about 1 ± σ if it follows and 0 ± σ if it does not; what
rounding does is in E' and T' alike. With σ above 1/8 the policy has not moved enough to tell. Nothing is proven then,
and the movement adds up until it is: the earlier version stays the one to compare with.

Where the scores are far from each other, whatever moved, the replica computes another distribution: another model, or
log-probabilities of another temperature. The same holds for a reply that the replica samples after the probe's prompt,
at the temperature of the run, which also uses what the replica keeps of earlier prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from agent_tunix.errors import EngineError
from agent_tunix.policy.mesh import fetch
from agent_tunix.policy.variables import Parts

MOST_PROBE_TOKENS = 128
# Least mean difference of log-probabilities, in nats, that counts as another distribution; the most at the first sync;
# and the factor over that of the first sync.
_LEAST_BOUND, _MOST_AT_FIRST, _FACTOR = 1e-3, 0.5, 10.0
# Rounding in float32; and the σ from which on nothing is told.
_LEAST_NOISE, _MOST_SIGMA, _LEAST_SHARE = 1e-6, 1 / 8, 0.5


class ProbeScorer:
    """The policy's own log-probabilities of short texts, by one compiled program.

    Args:
        policy: The policy, whose weights may change.
        num_tokens: L, the most tokens of a text.
    """

    def __init__(self, policy: nnx.Module, num_tokens: int) -> None:
        self._parts = Parts(policy)
        self._num_tokens = num_tokens

    def score(self, tokens: Sequence[int], temperature: float = 1.0) -> np.ndarray:
        """Return the log-probability of each token after the first."""
        padded = np.zeros(self._num_tokens, np.int32)
        padded[: len(tokens)] = tokens
        logps: np.ndarray = fetch(_score(*self._parts.split(), padded, np.float32(temperature)))
        return logps[: len(tokens) - 1].astype(np.float64)


@jax.jit
def _score(
    graphdef: Any, state: Any, tokens_L: Int[Array, " L"], temperature: Float[Array, ""]
) -> Float[Array, " L-1"]:
    model: Any = nnx.merge(graphdef, state)
    places_L = jnp.arange(len(tokens_L))
    causal_LL = places_L[None, :] <= places_L[:, None]
    logits_1LV, _ = model(tokens_L[None], places_L[None], None, causal_LL[None])
    logps_LV = jax.nn.log_softmax(logits_1LV[0, :-1].astype(jnp.float32) / temperature, axis=-1)
    return jnp.take_along_axis(logps_LV, tokens_L[1:, None], axis=-1)[:, 0]


@dataclass(frozen=True)
class ReplicaScores:
    """A replica's scores of the probe.

    Attributes:
        url: The replica.
        base: [N] log-probabilities by its model before its first sync; empty after that.
        probe: [N] log-probabilities by the model that was synced.
        reply: [R] differences from the trainer's log-probabilities of a reply that it sampled from that model; None
            without one.
    """

    url: str
    base: np.ndarray
    probe: np.ndarray
    reply: np.ndarray | None = None


@dataclass(frozen=True)
class Check:
    """A replica that passed the gate.

    Attributes:
        difference: Mean difference of log-probabilities on the probe, in nats.
        share: ρ; None if the policy has not moved enough to tell, so that nothing is proven.
    """

    difference: float
    share: float | None


@dataclass(frozen=True)
class _Known:
    """Scores of a version that a replica is known to have had."""

    model: str
    scores: np.ndarray  # of the replica
    expected: np.ndarray  # of the trainer

    @property
    def noise(self) -> float:
        return max(_rms(self.scores - self.expected), _LEAST_NOISE)


class SyncGate:
    """The scores of each replica so far, and the judgement of new ones.

    Args:
        initial: [N] log-probabilities of the probe by the policy with the weights that a replica starts with.
    """

    def __init__(self, initial: np.ndarray) -> None:
        self._initial = initial
        self._base: dict[str, _Known] = {}
        self._proven: dict[str, _Known] = {}
        self._bounds: dict[str, float] = {}

    def knows(self, url: str) -> bool:
        """Return True if a replica was checked before."""
        return url in self._proven

    def check(self, model: str, expected: np.ndarray, replica: ReplicaScores) -> Check:
        """Compare the scores of a replica after a sync with those of the trainer.

        Args:
            model: Name of what was synced.
            expected: [N] log-probabilities of the probe by the policy.
            replica: Scores of the replica.

        Raises:
            EngineError: The replica does not follow (`engine_stale`), or computes another distribution
                (`engine_differs`).
        """
        now, url = _Known(model, replica.probe, expected), replica.url
        if url not in self._proven:
            self._begin(replica, now)
        known, difference = self._proven[url], _mean(now.scores - expected)
        share = _share(known, now)
        if share is not None and not share >= _LEAST_SHARE:
            raise EngineError(self._tell_stale(url, now, known, share), code="engine_stale")
        bound = self._bounds[url]
        if not difference <= bound:
            raise EngineError(_tell_different(url, model, "the probe", difference, bound), code="engine_differs")
        if replica.reply is not None and not (of_reply := _mean(replica.reply)) <= bound:
            what = "a reply that it sampled after a prompt that it had seen before"
            raise EngineError(_tell_different(url, model, what, of_reply, bound), code="engine_differs")
        if share is not None:
            self._proven[url] = now
        return Check(difference, share)

    def _begin(self, replica: ReplicaScores, now: _Known) -> None:
        """Choose the scores that all later ones of a replica are compared with."""
        # An engine that an earlier run used had other weights before, and nothing follows from them.
        before = now
        if replica.base.size:
            before = _Known("the model that the engine was started with", replica.base, self._initial)
        known = before if before.noise <= 3 * now.noise else now
        first = _mean(known.scores - known.expected)
        if not first <= _MOST_AT_FIRST:
            raise EngineError(
                _tell_different(replica.url, known.model, "the probe", first, _MOST_AT_FIRST), code="engine_differs"
            )
        self._bounds[replica.url] = max(_FACTOR * first, _LEAST_BOUND)
        self._base[replica.url], self._proven[replica.url] = before, known

    def _tell_stale(self, url: str, now: _Known, known: _Known, share: float) -> str:
        nearest = min((self._base[url], known), key=lambda one: _mean(now.scores - one.scores))
        return (
            f"{url} must sample from {now.model}, but samples from {nearest.model}: of the policy's movement since "
            f"{known.model} its log-probabilities show {share:.2f} in place of 1. Its log may say why it did not take "
            "the weights; `agent-tunix engines check` tries each route"
        )


def _share(known: _Known, now: _Known) -> float | None:
    """Return ρ; None if the policy has not moved enough to tell."""
    moved, shown = now.expected - known.expected, now.scores - known.scores
    is_known = np.isfinite(shown)
    moved, shown = moved[is_known], shown[is_known]
    length = float(np.linalg.norm(moved))
    if np.sqrt(2) * known.noise > _MOST_SIGMA * length:
        return None
    return float(moved @ shown) / length**2


def _tell_different(url: str, model: str, what: str, difference: float, bound: float) -> str:
    return (
        f"{url} must compute the log-probabilities of {model} up to {bound:.2g} nats, but those of {what} differ by "
        f"{difference:.2g} on average; check that it serves the model of the run in its type, gives log-probabilities "
        "after temperature and over all words, and keeps nothing of earlier weights"
    )


def _mean(differences: np.ndarray) -> float:
    """Return the mean size of the differences that are known; NaN without any, which passes no bound."""
    known = differences[np.isfinite(differences)]
    return float(np.abs(known).mean()) if known.size else float("nan")


def _rms(differences: np.ndarray) -> float:
    known = differences[np.isfinite(differences)]
    return float(np.sqrt(np.square(known).mean())) if known.size else float("inf")
