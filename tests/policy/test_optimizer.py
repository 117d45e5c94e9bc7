"""Learning rates against NumPy, and what one update does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agent_tunix.config.schema import OptimizerConfig, SchedulerConfig
from agent_tunix.policy.optimizer import make_optimizer
from agent_tunix.policy.schedules import make_schedule

PEAK = 0.4


def adamw(gradients: np.ndarray, c: OptimizerConfig) -> np.ndarray:
    """Weights after the gradients, from ones (https://arxiv.org/abs/1711.05101, algorithm 2)."""
    w, m, v = np.ones(gradients.shape[1]), np.zeros(gradients.shape[1]), np.zeros(gradients.shape[1])
    for t, g in enumerate(gradients, start=1):
        norm = np.sqrt((g**2).sum())
        g = g * min(1.0, c.max_grad_norm / norm) if c.max_grad_norm > 0 else g
        m, v = c.beta1 * m + (1 - c.beta1) * g, c.beta2 * v + (1 - c.beta2) * g**2
        step = m / (1 - c.beta1**t) / (np.sqrt(v / (1 - c.beta2**t)) + 1e-8)
        w = w - c.learning_rate * (step + c.weight_decay * w)
    return np.asarray(w)


@pytest.mark.parametrize("max_grad_norm", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_updates_are_those_of_adamw_behind_a_clip(max_grad_norm: float, weight_decay: float) -> None:
    config = OptimizerConfig(learning_rate=0.01, max_grad_norm=max_grad_norm, weight_decay=weight_decay)
    gradients = np.array([[3.0, -4.0, 0.5], [0.1, 0.2, -0.3], [30.0, 1.0, 2.0]])
    optimizer = make_optimizer(config, lambda count: config.learning_rate)
    weights = jnp.ones(3)
    state = optimizer.init(weights)
    for gradient in gradients:
        updates, state = optimizer.update(jnp.asarray(gradient), state, weights)
        weights = weights + updates
    np.testing.assert_allclose(weights, adamw(gradients, config), rtol=1e-5)


def test_a_schedule_counts_updates() -> None:
    schedule = make_schedule(OptimizerConfig(learning_rate=PEAK), SchedulerConfig(kind="linear", final_ratio=0.0), 10)
    optimizer = make_optimizer(OptimizerConfig(max_grad_norm=0.0), schedule)
    weights = jnp.ones(2)
    state = optimizer.init(weights)
    sizes = []
    for _ in range(10):
        updates, state = optimizer.update(jnp.ones(2), state, weights)
        sizes.append(-float(updates[0]))
    np.testing.assert_allclose(sizes, oracle("linear", 10, 1, 0.0), rtol=1e-4)
