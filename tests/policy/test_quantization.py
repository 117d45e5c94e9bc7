"""QLoRA: a frozen base in few bits, close to the full one at a fraction of its size."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.policy.small_families import make_family
from tests.policy.test_adapter import load, logits_of

from agent_tunix.config.checks import check
from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError
from agent_tunix.policy.files.export import write_merged
from agent_tunix.policy.files.tensors import block_size
from agent_tunix.policy.model import count_parameters
from agent_tunix.policy.network.projection import Projection, Quantization, dequantise, quantise

# Of normal weights: half a step of 1/127 of the largest of 64, and the gaps between the 16 codes of NF4.
RELATIVE_ERROR = {"int8": 0.008, "nf4": 0.1}


def projections(model: Any) -> list[Projection]:
    return [module for _, module in nnx.iter_modules(model) if isinstance(module, Projection)]


@pytest.mark.parametrize("quantization", ["int8", "nf4"])
@pytest.mark.parametrize("inputs", [64, 96, 640, 2])
def test_a_matrix_survives_within_the_error_of_its_codes(quantization: Quantization, inputs: int) -> None:
    weight = np.random.default_rng(0).normal(size=(inputs, 48)).astype(np.float32) * np.logspace(-3, 3, 48)
    back = dequantise(*quantise(jnp.asarray(weight, jnp.float32), quantization), quantization)
    error = np.linalg.norm(back - weight, axis=0) / np.linalg.norm(weight, axis=0)
    assert error.mean() < RELATIVE_ERROR[quantization]


def test_the_codes_of_nf4_are_those_of_its_paper() -> None:
    """https://arxiv.org/abs/2305.14314, appendix E; two neighbouring inputs share a byte, the first in its low half."""
    weight = jnp.asarray([-1.0, 1.0, 0.0, 0.0796, -0.6962, 0.7230, 0.05, -0.04])[:, None] * 3.0
    codes, scales = quantise(weight, "nf4")
    assert codes.ravel().tolist() == [0 | 15 << 4, 7 | 8 << 4, 1 | 14 << 4, 8 | 7 << 4]
    assert scales.tolist() == [[3.0]]


@pytest.mark.parametrize(("inputs", "size"), [(1024, 64), (640, 64), (1152, 64), (96, 48), (16, 16), (97, 1)])
def test_a_scale_is_shared_by_the_largest_divisor_up_to_64(inputs: int, size: int) -> None:
    assert block_size(inputs) == size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "quantization", "correlation"),
    [("qwen2", "int8", 0.999), ("qwen3", "nf4", 0.95), ("gemma3_text", "nf4", 0.95)],
)
def test_logits_stay_close_and_gradients_reach_the_adapter(
    tmp_path: Path, family: str, quantization: str, correlation: float
) -> None:
    directory = make_family(tmp_path / "model", family)
    plain, few = load(directory, family=family), load(directory, family=family, quantization=quantization)
    expected, found = np.asarray(logits_of(plain)), np.asarray(logits_of(few))
    assert np.corrcoef(expected.ravel(), found.ravel())[0, 1] > correlation

    def loss(model: Any) -> jax.Array:
        return jnp.square(logits_of(model)).mean()

    gradients = nnx.jit(nnx.grad(loss, argnums=nnx.DiffState(0, nnx.LoRAParam)))(few)
    moved = [np.asarray(leaf) for path, leaf in nnx.to_flat_state(gradients) if path[-1] == "kernel_lora_b"]
    assert len(moved) == 14
    assert all(np.isfinite(each).all() and each.any() for each in moved)


@pytest.mark.slow
@pytest.mark.parametrize("quantization", ["int8", "nf4"])
def test_gradients_are_those_of_the_dequantised_matrix(tmp_path: Path, quantization: str) -> None:
    model = load(make_family(tmp_path / "model", "qwen3", num_hidden_layers=1), quantization=quantization)
    projection = model.layers[0].mlp.up_proj
    x = jax.random.normal(jax.random.key(1), (5, 64))
    expected = jax.grad(lambda x: jnp.sin(x @ projection.base_weight()).sum())(x)
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sin(projection(x)).sum())(x), expected, atol=1e-5)


def test_only_the_layers_projections_are_quantised(tmp_path: Path) -> None:
    model = load(make_family(tmp_path / "model", "llama"), family="llama", quantization="nf4")
    types = {path[-2:]: leaf.get_value().dtype.name for path, leaf in nnx.to_flat_state(nnx.state(model, nnx.Param))}
    assert types[("up_proj", "kernel")] == "uint8"
    assert (
        types[("embed_tokens", "embedding")] == types[("lm_head", "kernel")] == types[("norm", "weight")] == "float32"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("quantization", "bits"), [("int8", 8.5), ("nf4", 4.5)])
def test_a_quantised_weight_takes_the_bits_that_the_docs_say(tmp_path: Path, quantization: str, bits: float) -> None:
    directory = make_family(tmp_path / "model", "qwen3")
    plain, few = load(directory), load(directory, quantization=quantization)
    weights = sum(module.in_features * module.out_features for module in projections(few))
    held = sum(module.kernel.nbytes + module.kernel_scale.nbytes for module in projections(few))
    assert 8 * held / weights == bits
    assert count_parameters(few) == count_parameters(plain)


def test_quantising_needs_an_adapter_and_a_known_type() -> None:
    config = Config()
    config.model.quantization = "nf4"
    with pytest.raises(ConfigError, match=r"set model\.lora_rank above 0"):
        check(config)
    config.model.lora_rank, config.model.quantization = 4, "int4"
    with pytest.raises(ConfigError, match="did you mean int8"):
        check(config)


@pytest.mark.slow
def test_no_dequantised_matrix_is_kept_between_the_passes_or_over_a_loop(tmp_path: Path) -> None:
    """Six layers' matrices in full would be 6 × 229,376 × 4 bytes; one of them at a time is 65,536."""
    directory = make_family(
        tmp_path / "model", "qwen3", num_hidden_layers=6, hidden_size=128, intermediate_size=512, head_dim=16
    )
    model = load(directory, quantization="int8")
    graphdef, state = nnx.split(model)
    trained, frozen = nnx.split_state(state, nnx.LoRAParam, ...)
    whole = sum(module.in_features * module.out_features * 4 for module in projections(model))

    def loss(trained: Any) -> jax.Array:
        return jnp.square(logits_of(nnx.merge(graphdef, trained, frozen))).mean()

    def loop(trained: Any) -> jax.Array:
        return jnp.asarray(jax.lax.fori_loop(0, 3, lambda _, total: total + loss(trained), 0.0))

    for program in (jax.grad(loss), loop):
        # What the program keeps on CPU too: `startup/devices.py` sets it for a whole process.
        lowered = jax.jit(program).lower(trained)
        memory: Any = lowered.compile(
            compiler_options={"xla_disable_hlo_passes": "cse_barrier_expander"}
        ).memory_analysis()
        assert memory.temp_size_in_bytes < whole


@pytest.mark.slow
def test_an_export_holds_the_dequantised_base_with_the_adapter_in_it(tmp_path: Path) -> None:
    source = make_family(tmp_path / "model", "qwen3")
    model = load(source, quantization="nf4", lora_alpha=4.0)
    moved = jax.tree.map(lambda leaf: leaf + 0.01, nnx.state(model, nnx.LoRAParam))
    nnx.update(model, moved)
    exported = tmp_path / "exported"
    exported.mkdir()
    write_merged(model, source, exported, alpha=4.0)
    np.testing.assert_allclose(logits_of(load(exported, lora_rank=0)), logits_of(model), atol=1e-4)
    np.testing.assert_allclose(
        model.layers[0].mlp.up_proj.merged_weight(), load(exported, lora_rank=0).layers[0].mlp.up_proj.kernel, atol=1e-6
    )
