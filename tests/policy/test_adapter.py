"""LoRA beside the projections of every family: their choice, first values and types."""

import logging
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from tests.policy.small_families import FAMILIES, make_family
from tests.raising import raises

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ConfigError
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy
from agent_tunix.policy.module_names import abbreviate, matches

TOKENS = jnp.arange(24)[None] * 7 % 64


def load(directory: Path, seed: int = 0, family: str = "qwen3", **settings: Any) -> Any:
    config = ModelConfig(**{"model_family": family, "dtype": "float32", "lora_rank": 2, **settings})
    return load_policy(directory, config, make_mesh([1, 1]), seed)


def logits_of(model: Any) -> jax.Array:
    T = TOKENS.shape[1]
    mask = jnp.tril(jnp.ones((1, T, T), jnp.bool_))
    return jnp.asarray(model(TOKENS, jnp.arange(T)[None], None, mask)[0])


def adapters(model: Any) -> dict[str, np.ndarray]:
    leaves = nnx.to_flat_state(nnx.state(model, nnx.LoRAParam))
    return {".".join(map(str, path)): np.asarray(leaf.get_value()) for path, leaf in leaves}


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_family(tmp_path_factory.mktemp("adapter") / "model", "qwen3")


@pytest.mark.parametrize(
    "family", [family if family == "qwen3" else pytest.param(family, marks=pytest.mark.slow) for family in FAMILIES]
)
def test_by_default_attention_and_mlp_get_an_adapter_that_changes_nothing_yet(tmp_path: Path, family: str) -> None:
    directory = make_family(tmp_path / "model", family)
    plain, adapted = load(directory, family=family, lora_rank=0), load(directory, family=family)
    np.testing.assert_array_equal(logits_of(adapted), logits_of(plain))
    names = adapters(adapted)
    assert len(names) == 2 * 7 * 2
    assert not any(array.any() for name, array in names.items() if name.endswith("_b"))
    assert all(array.any() for name, array in names.items() if name.endswith("_a"))


def test_adapters_are_float32_and_what_the_model_gives_is_not(qwen3: Path) -> None:
    model = load(qwen3, dtype="bfloat16")
    assert {str(array.dtype) for array in adapters(model).values()} == {"float32"}
    projection = model.layers[0].self_attn.v_proj
    assert projection.kernel.dtype == jnp.bfloat16
    assert projection(jnp.ones((1, 64), jnp.bfloat16)).dtype == jnp.bfloat16


@pytest.mark.slow
def test_updates_of_one_in_a_hundred_thousand_add_up_over_a_bfloat16_base(qwen3: Path) -> None:
    """In bfloat16 the next number after 0.1 is 0.1005, and none of a hundred such updates would be seen."""
    model = load(qwen3, dtype="bfloat16")
    before = adapters(model)
    optimizer = nnx.Optimizer(model, optax.sgd(1e-5), wrt=nnx.LoRAParam)
    ones = jax.tree.map(jnp.ones_like, nnx.state(model, nnx.LoRAParam))
    for _ in range(100):
        optimizer.update(model, ones)
    for name, array in adapters(model).items():
        np.testing.assert_allclose(before[name] - array, 1e-3, rtol=0.02, err_msg=name)


def test_the_first_adapter_follows_from_the_seed_and_the_name(qwen3: Path) -> None:
    first, again, other = (adapters(load(qwen3, seed=seed)) for seed in (1, 1, 2))
    some = adapters(load(qwen3, seed=1, lora_module_path=".*v_proj"))
    name = "layers.1.self_attn.v_proj.kernel_lora_a"
    np.testing.assert_array_equal(first[name], again[name])
    np.testing.assert_array_equal(first[name], some[name])
    assert not np.array_equal(first[name], other[name])
    assert not np.array_equal(first[name], first["layers.0.self_attn.v_proj.kernel_lora_a"])


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (".*query", "There are: layers.0-1.mlp.{down_proj,gate_proj,up_proj}"),
        (".*q_porj", "did you mean '.*q_proj'?"),
        ("q_proj", "try '.*q_proj.*'"),
        ("q_proj|v_proj", "try '.*(q_proj|v_proj).*'"),
        (".*norm", "layers.0-1.self_attn.{k_norm,q_norm}, norm; norms and embeddings cannot have an adapter"),
        ("embed_tokens", "only embed_tokens; norms and embeddings"),
        ("", "matches no projection"),
    ],
)
def test_a_pattern_that_matches_no_projection_is_refused_with_those_there_are(
    qwen3: Path, pattern: str, said: str
) -> None:
    with raises(ConfigError, "no_adapted_projection") as caught:
        load(qwen3, lora_module_path=pattern)
    assert said in str(caught.value)


def test_a_pattern_that_takes_too_long_is_refused() -> None:
    with raises(ConfigError, "slow_pattern"):
        matches("(?:.|..|...|....|.....)*[!?]", "layers.0.self_attn.q_proj")


def test_what_got_an_adapter_is_logged_and_what_cannot_have_one_is_said(
    qwen3: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "agent_tunix.model")
    load(qwen3, lora_module_path=".*(v_proj|k_norm)")
    assert "also matches layers.0-1.self_attn.k_norm" in caplog.text
    assert "adapters of rank 2: 2, on layers.0-1.self_attn.v_proj" in caplog.text


@pytest.mark.parametrize("pattern", [r"layers\.0\..*", "layers/0/.*", ".*layers.0.*(attn|mlp).*"])
def test_names_are_dotted_and_may_be_written_with_slashes(pattern: str) -> None:
    assert matches(pattern, "layers.0.self_attn.q_proj")
    assert not matches(pattern, "layers.1.self_attn.q_proj")


def test_an_untied_head_may_have_an_adapter(tmp_path: Path) -> None:
    model = load(make_family(tmp_path / "model", "llama"), family="llama", lora_module_path="lm_head")
    assert set(adapters(model)) == {"lm_head.kernel_lora_a", "lm_head.kernel_lora_b"}


def test_names_of_layers_are_drawn_together() -> None:
    names = [f"layers.{n}.mlp.{leaf}" for n in (0, 1, 2, 5) for leaf in ("up", "down")]
    assert abbreviate([*names, "lm_head"]) == "layers.0-2,5.mlp.{up,down}, lm_head"
