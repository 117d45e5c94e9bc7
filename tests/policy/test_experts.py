"""Mixtures of experts: the load of their experts, and settings that such models cannot have."""

import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.policy.support import make_larger
from tests.raising import raises
from tests.training.support import train_run

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ConfigError
from agent_tunix.grpo.logps import completion_statistics
from agent_tunix.planning.work import count_operations, count_weights
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy
from agent_tunix.policy.module_names import check_experts
from agent_tunix.policy.network import experts

E, K = 8, 3


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layer with 8 experts, one with an MLP, and the embedded model's tokenizer."""
    made = make_larger(tmp_path_factory.mktemp("experts") / "model", "qwen3_moe", vocab_size=1024)
    for file in EMBEDDED_MODEL.glob("*token*"):
        shutil.copy(file, made)
    return made


def load(directory: Path, **settings: Any) -> Any:
    return load_policy(directory, ModelConfig(dtype="float32", **settings), make_mesh([1, 1]))


def test_the_load_counts_tokens_and_probabilities_of_each_expert(directory: Path) -> None:
    mixture = load(directory).layers[0].mlp
    rng = np.random.default_rng(0)
    x, counted = rng.normal(size=(3, 5, 64)), rng.random((3, 5)) < 0.7
    shares = np.exp(x @ np.asarray(mixture.gate.kernel[...], np.float64))[counted]
    shares /= shares.sum(-1, keepdims=True)
    chosen = np.argsort(-shares, axis=-1)[:, :K]
    _, found = mixture(jnp.asarray(x, jnp.float32), jnp.asarray(counted))
    np.testing.assert_array_equal(found.tokens, np.bincount(chosen.reshape(-1), minlength=E))
    np.testing.assert_allclose(found.probabilities, shares.sum(0), rtol=1e-5)


@pytest.mark.parametrize(
    ("tokens", "probabilities", "largest", "balance"),
    [
        ([[5, 5]], [[3, 3]], 1.0, 1.0),
        ([[8, 0]], [[3, 1]], 2.0, 1.5),
        ([[5, 5], [8, 0]], [[3, 3], [3, 1]], 1.5, 1.25),
        ([[0, 0]], [[0, 0]], 0.0, 0.0),
    ],
    ids=["balanced", "one expert", "mean over layers", "no token"],
)
def test_a_load_is_described_by_its_largest_share_and_its_balance(
    tokens: Any, probabilities: Any, largest: float, balance: float
) -> None:
    found = experts.ExpertLoad(jnp.asarray(tokens, jnp.float32), jnp.asarray(probabilities, jnp.float32)).describe()
    assert float(found["expert_load_max"]) == pytest.approx(largest)
    assert float(found["expert_balance_loss"]) == pytest.approx(balance)


def gradients(function: Any, *arrays: Any) -> Any:
    return jax.jit(jax.value_and_grad(lambda *arrays: (function(*arrays) ** 2).sum(), range(len(arrays))))(*arrays)


@pytest.mark.parametrize("sizes", [[300, 0, 128, 1], [1, 1, 1, 1]], ids=["several blocks", "less than a block"])
def test_groups_and_their_gradients_are_those_of_jax(sizes: list[int]) -> None:
    rng = np.random.default_rng(0)
    x, stack = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((450, 16), (4, 16, 24)))
    total = sum(sizes)
    found, expected = (
        gradients(lambda x, stack, of=of: of(x, stack, jnp.asarray(sizes))[:total], x, stack)
        for of in (experts.multiply_groups, jax.lax.ragged_dot)
    )
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_many_tokens_are_computed_as_few_are(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mixture = load(directory).layers[0].mlp
    graphdef, state = nnx.split(mixture)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 120, 64)), jnp.float32)

    def compute() -> Any:
        return gradients(lambda state, x: nnx.merge(graphdef, state)(x, None)[0], state, x)

    few = compute()
    monkeypatch.setattr(experts, "FEW_TOKENS", 0)
    for one, other in zip(jax.tree.leaves(compute()), jax.tree.leaves(few), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_only_tokens_of_completions_are_counted_with_or_without_remat(directory: Path) -> None:
    model = load(directory)
    rng = np.random.default_rng(0)
    prompts, tokens, counted = rng.integers(1, 99, (2, 5)), rng.integers(1, 99, (4, 6)), rng.random((4, 6)) < 0.7
    arrays = [jnp.asarray(each) for each in (prompts, [5, 3], tokens)]

    def load_of(model: Any) -> Any:
        return completion_statistics(model, *arrays, temperature=1.0, counted=jnp.asarray(counted)).load

    plain = load_of(model)
    assert plain.tokens.sum() == K * counted[:, :-1].sum()
    model.remat = True
    for one, other in zip(load_of(model), plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_by_default_only_attention_gets_an_adapter(directory: Path) -> None:
    adapted = {path[-2] for path, _ in nnx.to_flat_state(nnx.state(load(directory, lora_rank=2), nnx.LoRAParam))}
    assert adapted == {"q_proj", "k_proj", "v_proj", "o_proj"}


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"quantization": "nf4"}, "invalid_config"),
        ({"lora_module_path": ".*experts.*"}, "invalid_config"),
        ({"lora_module_path": r".*\.mlp\.gate"}, "invalid_config"),
        ({"lora_module_path": "layers.1.*down_proj"}, "invalid_config"),
    ],
)
def test_few_bits_and_adapters_beside_those_of_attention_are_refused(
    directory: Path, settings: dict[str, Any], code: str
) -> None:
    with raises(ConfigError, code):
        check_experts(ModelConfig(lora_rank=2, **settings), read_architecture(directory))


def test_the_plan_counts_the_experts_that_a_token_goes_through(directory: Path) -> None:
    architecture = read_architecture(directory)
    of_expert = 3 * 64 * architecture.moe_intermediate_size
    total, active = count_weights(architecture)
    assert total - active == (E - K) * of_expert
    assert count_operations(architecture).of_token == 2 * (
        2 * (2 * 64 * 8 * 16 + 2 * 64 * 2 * 16) + 64 * E + K * of_expert + 3 * 64 * 128
    )


@pytest.mark.slow
def test_a_run_trains_and_writes_the_load_of_experts(directory: Path, tmp_path: Path) -> None:
    rows = train_run(tmp_path / "run", f"model.path={directory}", "model.lora_rank=2", "training.num_batches=2")
    written = [row for row in rows if "policy/loss" in row]
    assert written
    for row in written:
        assert 1 < row["policy/expert_load_max"] <= E / K
        assert row["policy/expert_balance_loss"] > 0
