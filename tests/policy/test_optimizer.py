"""Updates of every optimiser against NumPy, weight decay, and groups of weights."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.raising import raises

from agent_tunix.config.optimizers import REST, filled
from agent_tunix.config.schema import OPTIMIZERS, ModelConfig, OptimizerConfig, SchedulerConfig
from agent_tunix.errors import ConfigError
from agent_tunix.policy.files.directory import find_model_directory
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy
from agent_tunix.policy.optimizer import check_groups, make_optimizer
from agent_tunix.policy.schedules import make_schedules

pytestmark = pytest.mark.slow

Arrays = dict[str, np.ndarray]
RATE = 0.01


def take(config: OptimizerConfig, gradients: list[Arrays], weights: Arrays, schedules: Any = None) -> Arrays:
    """The weights after some updates."""
    optimizer = make_optimizer(config)
    schedules = schedules or make_schedules(replace(config, warmup_ratio=0.0), SchedulerConfig(kind="constant"), 1)
    found: Any = {path: jnp.asarray(weight) for path, weight in weights.items()}
    state = optimizer.init(found)
    for gradient in gradients:
        given = {path: jnp.asarray(g) for path, g in gradient.items()}
        updates, state = optimizer.update(given, state, found, schedules=schedules)
        found = {path: weight + updates[path] for path, weight in found.items()}
    return {path: np.asarray(weight) for path, weight in found.items()}


def draw(*shape: int, count: int = 4) -> tuple[np.ndarray, list[np.ndarray]]:
    """Weights and gradients."""
    rng = np.random.default_rng(0)
    return rng.normal(size=shape), [rng.normal(size=shape) for _ in range(count)]


def one(config: OptimizerConfig, weight: np.ndarray, gradients: list[np.ndarray], path: str = "w") -> np.ndarray:
    """A single weight after some updates."""
    return take(config, [{path: gradient} for gradient in gradients], {path: weight})[path]


# Each optimiser.


def adamw(weight: np.ndarray, gradients: list[np.ndarray], c: Any, decay: float = 0.0) -> np.ndarray:
    """Algorithm 2 of https://arxiv.org/abs/1711.05101."""
    m = v = np.zeros_like(weight)
    for t, g in enumerate(gradients, start=1):
        norm = np.sqrt((g**2).sum())
        g = g * min(1.0, c.max_grad_norm / norm) if c.max_grad_norm > 0 else g
        m, v = c.beta1 * m + (1 - c.beta1) * g, c.beta2 * v + (1 - c.beta2) * g**2
        step = m / (1 - c.beta1**t) / (np.sqrt(v / (1 - c.beta2**t)) + c.epsilon)
        weight = weight - c.learning_rate * (step + decay * weight)
    return weight


@pytest.mark.parametrize(
    ("max_grad_norm", "weight_decay", "given"),
    [(0.0, 0.0, {}), (1.0, 0.1, {}), (100.0, 0.1, {"beta1": 0.5, "beta2": 0.6, "epsilon": 0.1})],
)
def test_updates_are_those_of_adamw(max_grad_norm: float, weight_decay: float, given: dict[str, float]) -> None:
    config = OptimizerConfig(learning_rate=RATE, max_grad_norm=max_grad_norm, weight_decay=weight_decay, **given)  # type: ignore[arg-type]
    weight, gradients = draw(3, 4)
    expected = adamw(weight, gradients, filled(config), weight_decay)
    np.testing.assert_allclose(one(config, weight, gradients), expected, rtol=1e-5)


def test_updates_are_those_of_lion() -> None:
    """Algorithm 2 of https://arxiv.org/abs/2302.06675."""
    config = OptimizerConfig(kind="lion", learning_rate=RATE, weight_decay=0.1, max_grad_norm=0.0)
    weight, gradients = draw(3, 4)
    expected, m = weight, np.zeros_like(weight)
    for g in gradients:
        expected = expected - RATE * (np.sign(0.9 * m + 0.1 * g) + 0.1 * expected)
        m = 0.99 * m + 0.01 * g
    np.testing.assert_allclose(one(config, weight, gradients), expected, rtol=1e-5)


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, True)])
def test_updates_are_those_of_gradient_descent_with_momentum(momentum: float, nesterov: bool) -> None:
    config = OptimizerConfig(
        kind="sgd", learning_rate=RATE, momentum=momentum, nesterov=nesterov, weight_decay=0.1, max_grad_norm=0.0
    )
    weight, gradients = draw(3, 4)
    expected, velocity = weight, np.zeros_like(weight)
    for g in gradients:
        velocity = momentum * velocity + g
        step = g + momentum * velocity if nesterov else velocity
        expected = expected - RATE * (step + 0.1 * expected)
    np.testing.assert_allclose(one(config, weight, gradients), expected, rtol=1e-5)


@pytest.mark.parametrize(("scale_by_weights", "momentum"), [(False, 0.9), (True, 0.0)])
def test_updates_are_those_of_adafactor(scale_by_weights: bool, momentum: float) -> None:
    """Algorithm 4 of https://arxiv.org/abs/1804.04235, factored over rows and columns."""
    config = OptimizerConfig(
        kind="adafactor",
        learning_rate=RATE,
        scale_by_weights=scale_by_weights,
        momentum=momentum,
        weight_decay=0.1,
        max_grad_norm=0.0,
    )
    weight, gradients = draw(128, 130)
    expected, rows, columns, velocity = weight, np.zeros(128), np.zeros(130), np.zeros_like(weight)
    for t, g in enumerate(gradients, start=1):
        decay = 1 - t**-0.8
        squared = g**2 + 1e-30
        rows = decay * rows + (1 - decay) * squared.mean(axis=1)
        columns = decay * columns + (1 - decay) * squared.mean(axis=0)
        step = g / np.sqrt(np.outer(rows, columns) / rows.mean())
        step = step / max(1.0, np.sqrt((step**2).mean()))
        if scale_by_weights:
            step = step * max(1e-3, np.sqrt((expected**2).mean()))
        velocity = momentum * velocity + (1 - momentum) * step
        expected = expected - RATE * (velocity + 0.1 * expected)
    np.testing.assert_allclose(one(config, weight, gradients), expected, rtol=2e-4, atol=1e-6)


def orthogonalise(matrix: np.ndarray) -> np.ndarray:
    """Five steps of the quintic iteration of https://kellerjordan.github.io/posts/muon."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix / (np.linalg.norm(matrix) + 1e-8)
    x = x.T if x.shape[0] > x.shape[1] else x
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return np.asarray(x.T if matrix.shape[0] > matrix.shape[1] else x)


def muon(weight: np.ndarray, gradients: list[np.ndarray], decay: float) -> np.ndarray:
    """A matrix after updates of Muon with Nesterov's momentum, scaled as in https://arxiv.org/abs/2502.16982."""
    momentum = np.zeros_like(weight)
    for t, g in enumerate(gradients, start=1):
        momentum = 0.95 * momentum + 0.05 * g
        ahead = 0.95 * momentum / (1 - 0.95 ** (t + 1)) + 0.05 * g / (1 - 0.95**t)
        step = orthogonalise(ahead) * np.sqrt(max(weight.shape)) * 0.2
        weight = weight - RATE * (step + decay * weight)
    return weight


@pytest.mark.parametrize("shape", [(8, 6), (6, 8)])
def test_a_matrix_is_updated_by_muon(shape: tuple[int, int]) -> None:
    config = OptimizerConfig(kind="muon", learning_rate=RATE, weight_decay=0.1, max_grad_norm=0.0)
    weight, gradients = draw(*shape)
    found = one(config, weight, gradients, "layers.0.mlp.up_proj.kernel")
    np.testing.assert_allclose(found, muon(weight, gradients, 0.1), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("path", ["embed_tokens.embedding", "lm_head.kernel", "norm.weight"])
def test_embeddings_heads_and_norms_are_updated_by_adamw_under_muon(path: str) -> None:
    config = OptimizerConfig(kind="muon", learning_rate=RATE, max_grad_norm=0.0)
    weight, gradients = draw(6) if path == "norm.weight" else draw(6, 8)
    np.testing.assert_allclose(
        one(config, weight, gradients, path), adamw(weight, gradients, filled(config)), rtol=1e-5
    )


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_what_is_not_given_has_the_documented_default(kind: str) -> None:
    weight, gradients = draw(4, 6, count=2)
    defaults: dict[str, Any] = dict(OPTIMIZERS[kind])
    np.testing.assert_array_equal(
        one(OptimizerConfig(kind=kind), weight, gradients),
        one(OptimizerConfig(kind=kind, **defaults), weight, gradients),
    )


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_schedule_counts_updates(kind: str) -> None:
    """Equal gradients make equal directions only under some optimisers, so the rate is 0 or not."""
    weight, gradients = draw(4, 6, count=1)
    config = OptimizerConfig(kind=kind, learning_rate=RATE)
    at = [
        take(config, [{"w": gradients[0]}] * 3, {"w": weight}, {REST: lambda count, on=on: (count == on) * RATE})
        for on in (0, 1, 2, 3)
    ]
    assert all(not np.array_equal(found["w"], weight.astype(np.float32)) for found in at[:3])
    np.testing.assert_array_equal(at[3]["w"], weight.astype(np.float32))


# Weight decay.


@pytest.mark.parametrize(("kind", "decay_vectors"), [("adamw", True), ("adamw", False), ("muon", False)])
def test_norms_and_biases_decay_only_where_asked(kind: str, decay_vectors: bool) -> None:
    config = OptimizerConfig(kind=kind, learning_rate=0.1, weight_decay=0.5, decay_vectors=decay_vectors)
    weights = {"mlp.kernel": np.ones((2, 2)), "norm.w": np.ones(2), "attn.bias": np.ones((2, 2))}
    found = take(config, [{path: np.zeros_like(weight) for path, weight in weights.items()}], weights)
    np.testing.assert_allclose(found["mlp.kernel"], 0.95)
    for path in ("norm.w", "attn.bias"):
        np.testing.assert_allclose(found[path], 0.95 if decay_vectors else 1.0)


# Groups.

WEIGHTS = {"embed.w": np.ones((2, 2)), "attn.w": np.ones((2, 2)), "mlp.w": np.ones((2, 2))}
GRADIENTS = [{path: np.full((2, 2), 0.25) for path in WEIGHTS}]


FROZEN = {"still": {"match": "embed", "freeze": True}}


@pytest.mark.parametrize(
    ("groups", "values", "moved"),
    [
        ({"slow": {"match": "embed", "learning_rate_scale": 0.1}}, {}, (0.025, 0.25, 0.25)),
        ({"own": {"match": "^mlp", "learning_rate": 0.5}}, {}, (0.25, 0.25, 0.125)),
        ({"own": {"match": "mlp", "weight_decay": 0.5}}, {"weight_decay": 0.1}, (0.35, 0.35, 0.75)),
        # The first group that matches has a weight.
        (
            {"first": {"match": "attn", "freeze": True}, "second": {"match": "w$", "learning_rate_scale": 2.0}},
            {},
            (0.5, 0.0, 0.5),
        ),
        # Without the frozen weights, the norm is √(8 · 0.25²) = 0.707, which is below 0.8; with them it is 0.866.
        (FROZEN, {"max_grad_norm": 0.8}, (0.0, 0.25, 0.25)),
        (FROZEN, {"weight_decay": 0.5}, (0.0, 0.75, 0.75)),
    ],
)
def test_a_group_has_own_settings(groups: dict[str, Any], values: dict[str, float], moved: tuple[float, ...]) -> None:
    """Plain gradient descent at rate 1 takes each weight its gradient far."""
    settings: dict[str, Any] = {"kind": "sgd", "momentum": 0.0, "learning_rate": 1.0, "max_grad_norm": 0.0, **values}
    found = take(OptimizerConfig(**settings, groups=groups), GRADIENTS, WEIGHTS)
    assert tuple(1.0 - weight[0, 0] for weight in found.values()) == pytest.approx(moved)


@pytest.mark.parametrize("kind", ["adafactor", "muon"])
def test_a_group_that_changes_nothing_changes_nothing(kind: str) -> None:
    weights = {path: draw(4, 6)[0] for path in ("a.kernel", "embed.w")} | {"norm.w": np.ones(6)}
    gradients = [{path: np.cos(n + weight) for path, weight in weights.items()} for n in range(3)]
    plain = take(OptimizerConfig(kind=kind), gradients, weights)
    found = take(OptimizerConfig(kind=kind, groups={"all": {"match": "."}}), gradients, weights)
    for path in weights:
        np.testing.assert_allclose(found[path], plain[path], rtol=1e-6)


@pytest.fixture(scope="module")
def model() -> nnx.Module:
    return load_policy(find_model_directory(ModelConfig()), ModelConfig(), make_mesh([1, 1]))


def test_groups_find_the_weights_of_a_model(model: nnx.Module) -> None:
    groups = {"embedding": {"match": "embed_tokens"}, "norms": {"match": "norm"}}
    counts = check_groups(OptimizerConfig(groups=groups), model)
    num_layers = len(model.layers)  # type: ignore[attr-defined]
    assert counts == {"embedding": 1, "norms": 4 * num_layers + 1}


@pytest.mark.parametrize(
    ("groups", "code", "said"),
    [
        ({"a": {"match": "q_einsum"}}, "invalid_config", "groups.a.match 'q_einsum' must match a trained weight"),
        ({"a": {"match": "self_attn"}, "b": {"match": "q_proj"}}, "invalid_config", "groups.b.match"),
        ({"a": {"match": ".", "freeze": True}}, "invalid_config", "freeze fewer"),
    ],
)
def test_groups_that_do_nothing_are_refused(model: nnx.Module, groups: dict[str, Any], code: str, said: str) -> None:
    with raises(ConfigError, code) as caught:
        check_groups(OptimizerConfig(groups=groups), model)
    assert said in str(caught.value)
