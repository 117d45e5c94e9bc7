"""Losses of preference tuning against NumPy: values, and gradients with respect to every token's log-probability."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agent_tunix.config.preferences import PreferenceSettings, preference_settings
from agent_tunix.config.schema import PreferConfig
from agent_tunix.training.preferences.losses import pair_losses, score_responses

MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]], bool)  # chosen, rejected, chosen, rejected
CASES = [
    PreferConfig(),
    PreferConfig(beta=0.5, label_smoothing=0.1),
    PreferConfig(reference=False),
    PreferConfig(loss="simpo"),
    PreferConfig(loss="simpo", beta=2.5, gamma=0.3, label_smoothing=0.2),
    PreferConfig(loss="ipo"),
    PreferConfig(loss="ipo", beta=0.4, reference=False),
]


def logistic(x: np.ndarray) -> np.ndarray:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def oracle(settings: PreferenceSettings, logps: np.ndarray, reference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The loss of each pair, and the gradient of their sum, from the papers' equations."""
    ratio = np.where(MASK, logps - (reference if settings.has_reference else 0.0), 0.0)
    lengths = MASK.sum(axis=1)
    divisor = np.ones(4) if settings.loss == "dpo" else lengths
    scores = ratio.sum(axis=1) / divisor
    difference = scores[::2] - scores[1::2]
    if settings.loss == "ipo":
        losses = (difference - 1 / (2 * settings.beta)) ** 2
        slope = 2 * (difference - 1 / (2 * settings.beta))
    else:
        logit = settings.beta * difference - settings.gamma
        smoothing = settings.label_smoothing
        losses = -(1 - smoothing) * np.log(logistic(logit)) - smoothing * np.log(logistic(-logit))
        slope = settings.beta * (-(1 - smoothing) * logistic(-logit) + smoothing * logistic(logit))
    of_scores = np.stack([slope, -slope], axis=1).reshape(-1)
    return losses, np.where(MASK, (of_scores / divisor)[:, None], 0.0)


@pytest.mark.parametrize("prefer", CASES, ids=str)
def test_losses_and_gradients_equal_the_equations(prefer: PreferConfig) -> None:
    settings = preference_settings(prefer)
    rng = np.random.default_rng(0)
    logps, reference = -rng.exponential(size=(2, *MASK.shape)).astype(np.float32)

    @jax.jit
    def total(logps: jax.Array) -> tuple[jax.Array, jax.Array]:
        scores = score_responses(settings, logps, reference if settings.has_reference else None, jnp.asarray(MASK))
        losses = pair_losses(settings, scores[::2] - scores[1::2])
        return losses.sum(), losses

    (_, losses), gradient = jax.value_and_grad(total, has_aux=True)(logps)
    expected_losses, expected_gradient = oracle(settings, logps.astype(np.float64), reference.astype(np.float64))
    np.testing.assert_allclose(losses, expected_losses, rtol=2e-6)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("prefer", [PreferConfig(), PreferConfig(loss="simpo")], ids=str)
def test_extreme_differences_stay_finite(prefer: PreferConfig) -> None:
    settings = preference_settings(prefer)
    losses, slopes = jax.vmap(jax.value_and_grad(lambda x: pair_losses(settings, x)))(jnp.array([-1e5, 1e5]))
    assert np.isfinite(losses).all()
    assert np.isfinite(slopes).all()


def test_a_response_without_tokens_has_score_0() -> None:
    logps, mask = jnp.full((2, 3), jnp.nan), jnp.zeros((2, 3), bool)
    for loss in ("dpo", "simpo", "ipo"):
        settings = preference_settings(PreferConfig(loss=loss))
        np.testing.assert_array_equal(score_responses(settings, logps, None, mask), [0.0, 0.0])
