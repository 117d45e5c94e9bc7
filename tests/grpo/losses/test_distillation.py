"""The divergence from a teacher and its gradient, against sums over all words in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from agent_tunix.grpo.losses import LossBatch, ObjectiveSettings, policy_objective

Array = NDArray[np.float64]
B, T, V = 3, 4, 7
COEFFICIENT = 0.6
RNG = np.random.default_rng(0)
LOGITS, TEACHER = RNG.normal(size=(2, B, T, V))
MASK = np.arange(T) < np.array([[4], [2], [0]])
WEIGHTS = np.array([0.1, 0.3, 0.2])
TOKENS = RNG.integers(0, V, (B, T))


def log_softmax(logits: Array) -> Array:
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)))


def divergence(logits: Array, k: int = V) -> float:
    """Σ_i w_i Σ_t KL(π ‖ π_T), of the teacher's k likeliest words and the rest."""
    ours, theirs = np.exp(log_softmax(logits)), np.exp(log_softmax(TEACHER))
    total = 0.0
    for i, t in np.argwhere(MASK):
        top = np.argsort(-theirs[i, t])[:k]
        p, q = ours[i, t, top], theirs[i, t, top]
        if k < V:
            p, q = np.append(p, 1 - p.sum()), np.append(q, 1 - q.sum())
        total += WEIGHTS[i] * float((p * np.log(p / q)).sum())
    return total


def slope_of(function: object, logits: Array) -> Array:
    """Central differences."""
    assert callable(function)
    found, h = np.zeros_like(logits), 1e-6
    for at in np.ndindex(logits.shape):
        up, down = logits.copy(), logits.copy()
        up[at] += h
        down[at] -= h
        found[at] = (function(up) - function(down)) / (2 * h)
    return found


def objective(logits: jax.Array, tokens: jax.Array, k: int | None, old: jax.Array | None = None) -> jax.Array:
    """The loss of the product: no rewards, the teacher alone."""
    logps, theirs = jax.nn.log_softmax(logits), jnp.asarray(log_softmax(TEACHER))
    words = tokens[..., None] if k is None else jax.lax.top_k(theirs, k)[1]
    taken, judged = jnp.take_along_axis(logps, words, -1), jnp.take_along_axis(theirs, words, -1)
    batch = LossBatch(
        logps=jnp.take_along_axis(logps, tokens[..., None], -1)[..., 0],
        old_logps=None if old is None else jnp.take_along_axis(jax.nn.log_softmax(old), tokens[..., None], -1)[..., 0],
        reference_logps=None,
        advantages=jnp.ones(B),
        mask=jnp.asarray(MASK),
        weights=jnp.asarray(WEIGHTS),
        teacher_logps=judged[..., 0] if k is None else judged,
        top_logps=None if k is None else taken,
    )
    return policy_objective(batch, ObjectiveSettings("none", teacher_coefficient=COEFFICIENT))[0]


value_and_slope = jax.jit(jax.value_and_grad(objective), static_argnums=2)


@pytest.mark.parametrize("k", [1, 3, V])
def test_over_the_likeliest_words_loss_and_gradient_are_those_of_the_divergence(k: int) -> None:
    value, slope = value_and_slope(jnp.asarray(LOGITS), TOKENS, k)
    np.testing.assert_allclose(value, COEFFICIENT * divergence(LOGITS, k), rtol=1e-5)
    expected = COEFFICIENT * slope_of(lambda logits: divergence(logits, k), LOGITS)
    np.testing.assert_allclose(slope, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("several_updates", [False, True])
def test_from_sampled_tokens_the_expected_gradient_is_that_of_the_divergence(several_updates: bool) -> None:
    """Over every word, as often as the policy that sampled draws it."""
    old = LOGITS + 0.5 * RNG.normal(size=LOGITS.shape) if several_updates else LOGITS
    shares = np.exp(log_softmax(old))
    found = np.zeros_like(LOGITS)
    for word in range(V):
        tokens = np.full((B, T), word)
        _, slope = value_and_slope(jnp.asarray(LOGITS), tokens, None, old if several_updates else None)
        found += shares[..., word, None] * np.asarray(slope)
    np.testing.assert_allclose(found, COEFFICIENT * slope_of(divergence, LOGITS), rtol=1e-4, atol=1e-6)


def test_of_one_sampled_token_the_gradient_is_its_log_ratio_times_the_score() -> None:
    _, slope = value_and_slope(jnp.asarray(LOGITS), TOKENS, None)
    ours, theirs = log_softmax(LOGITS), log_softmax(TEACHER)
    expected = np.zeros_like(LOGITS)
    for i, t in np.argwhere(MASK):
        token = TOKENS[i, t]
        score = np.eye(V)[token] - np.exp(ours[i, t])
        expected[i, t] = COEFFICIENT * WEIGHTS[i] * (ours[i, t, token] - theirs[i, t, token]) * score
    np.testing.assert_allclose(slope, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("k", [None, 2, V])
def test_a_teacher_with_the_policys_distribution_teaches_nothing(k: int | None) -> None:
    _, slope = value_and_slope(jnp.asarray(TEACHER), TOKENS, k)
    np.testing.assert_allclose(slope, 0.0, atol=1e-6)
