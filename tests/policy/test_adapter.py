"""LoRA beside the projections of every family, and QLoRA: a frozen base in few bits, close to the full one."""

import logging
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from tests.policy.support import make_larger
from tests.raising import raises

from agent_tunix.config.checks import check
from agent_tunix.config.schema import Config, ModelConfig
from agent_tunix.errors import ConfigError
from agent_tunix.policy.files.export import write_merged
from agent_tunix.policy.files.tensors import block_size
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import count_parameters, load_policy
from agent_tunix.policy.module_names import abbreviate, matches
from agent_tunix.policy.network.projection import Projection, Quantization, dequantise, quantise

pytestmark = pytest.mark.slow

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
    return make_larger(tmp_path_factory.mktemp("adapter") / "model", "qwen3")


@pytest.mark.parametrize(("family", "count"), [("qwen3", 2 * 7), ("gemma2", 2 * 7), ("qwen3_5_text", 7 + 6)])
def test_by_default_attention_and_mlp_get_an_adapter_that_changes_nothing_yet(
    tmp_path: Path, family: str, count: int
) -> None:
    directory = make_larger(tmp_path / "model", family)
    plain, adapted = load(directory, family=family, lora_rank=0), load(directory, family=family)
    np.testing.assert_array_equal(logits_of(adapted), logits_of(plain))
    names = adapters(adapted)
    assert len(names) == 2 * count
    assert not any(array.any() for name, array in names.items() if name.endswith("_b"))
    assert all(array.any() for name, array in names.items() if name.endswith("_a"))


def test_adapters_are_float32_and_what_the_model_gives_is_not(qwen3: Path) -> None:
    model = load(qwen3, dtype="bfloat16")
    assert {str(array.dtype) for array in adapters(model).values()} == {"float32"}
    projection = model.layers[0].self_attn.v_proj
    assert projection.kernel.dtype == jnp.bfloat16
    assert projection(jnp.ones((1, 64), jnp.bfloat16)).dtype == jnp.bfloat16


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


def test_an_adapter_may_begin_as_those_of_peft(qwen3: Path) -> None:
    """PEFT draws A within ± 1 / √inputs, and He's bound is √6 times that."""
    name = "layers.1.self_attn.v_proj.kernel_lora_a"
    he, peft = (adapters(load(qwen3, lora_init=kind))[name] for kind in ("he", "peft"))
    np.testing.assert_allclose(he, peft * 6**0.5, rtol=1e-5)
    bound = peft.shape[0] ** -0.5
    assert 0.9 * bound < np.abs(peft).max() <= bound


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (".*query", "There are: layers.0-1.mlp.{down_proj,gate_proj,up_proj}"),
        (".*q_porj", "did you mean '.*q_proj'?"),
        ("q_proj", "for example '.*q_proj.*'"),
        ("q_proj|v_proj", "for example '.*(q_proj|v_proj).*'"),
        (".*norm", "layers.0-1.self_attn.{k_norm,q_norm}, norm; norms and embeddings cannot have an adapter"),
        ("embed_tokens", "only embed_tokens; norms and embeddings"),
        ("", "matches no projection"),
    ],
)
def test_a_pattern_that_matches_no_projection_is_refused(qwen3: Path, pattern: str, said: str) -> None:
    with raises(ConfigError, "no_adapted_projection") as caught:
        load(qwen3, lora_module_path=pattern)
    assert said in str(caught.value)


def test_what_got_an_adapter_and_what_cannot_is_logged(qwen3: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "agent_tunix.model")
    load(qwen3, lora_module_path=".*(v_proj|k_norm)")
    assert "also matches layers.0-1.self_attn.k_norm" in caplog.text
    assert "adapters of rank 2: 2, on layers.0-1.self_attn.v_proj" in caplog.text


@pytest.mark.parametrize("pattern", [r"layers\.0\..*", "layers/0/.*", ".*layers.0.*(attn|mlp).*"])
def test_names_are_dotted_and_may_be_written_with_slashes(pattern: str) -> None:
    assert matches(pattern, "layers.0.self_attn.q_proj")
    assert not matches(pattern, "layers.1.self_attn.q_proj")


def test_an_untied_head_may_have_an_adapter(tmp_path: Path) -> None:
    model = load(make_larger(tmp_path / "model", "llama"), family="llama", lora_module_path="lm_head")
    assert set(adapters(model)) == {"lm_head.kernel_lora_a", "lm_head.kernel_lora_b"}


def test_names_of_layers_are_drawn_together() -> None:
    names = [f"layers.{n}.mlp.{leaf}" for n in (0, 1, 2, 5) for leaf in ("up", "down")]
    assert abbreviate([*names, "lm_head"]) == "layers.0-2,5.mlp.{up,down}, lm_head"


# Of normal weights: half a step of 1/127 of the largest of 64, and the gaps between the 16 codes of NF4.
RELATIVE_ERROR = {"int8": 0.008, "nf4": 0.1}


def projections(model: Any) -> list[Projection]:
    return [module for _, module in nnx.iter_modules(model) if isinstance(module, Projection)]


@pytest.mark.parametrize("quantization", ["int8", "nf4"])
@pytest.mark.parametrize("inputs", [640, 96, 2])
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


@pytest.mark.parametrize(
    ("family", "quantization", "correlation"),
    [("qwen2", "int8", 0.999), ("gemma3_text", "nf4", 0.95)],
)
def test_logits_are_close_and_adapters_move(tmp_path: Path, family: str, quantization: str, correlation: float) -> None:
    directory = make_larger(tmp_path / "model", family)
    plain, few = load(directory, family=family), load(directory, family=family, quantization=quantization)
    expected, found = np.asarray(logits_of(plain)), np.asarray(logits_of(few))
    assert np.corrcoef(expected.ravel(), found.ravel())[0, 1] > correlation

    def loss(model: Any) -> jax.Array:
        return jnp.square(logits_of(model)).mean()

    gradients = nnx.jit(nnx.grad(loss, argnums=nnx.DiffState(0, nnx.LoRAParam)))(few)
    moved = [np.asarray(leaf) for path, leaf in nnx.to_flat_state(gradients) if path[-1] == "kernel_lora_b"]
    assert len(moved) == 14
    assert all(np.isfinite(each).all() and each.any() for each in moved)


@pytest.mark.parametrize("quantization", ["int8", "nf4"])
def test_gradients_are_those_of_the_dequantised_matrix(tmp_path: Path, quantization: str) -> None:
    model = load(make_larger(tmp_path / "model", "qwen3", num_hidden_layers=1), quantization=quantization)
    projection = model.layers[0].mlp.up_proj
    x = jax.random.normal(jax.random.key(1), (5, 64))
    expected = jax.grad(lambda x: jnp.sin(x @ projection.base_weight()).sum())(x)
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sin(projection(x)).sum())(x), expected, atol=1e-5)


def test_only_the_layers_projections_are_quantised(tmp_path: Path) -> None:
    model = load(make_larger(tmp_path / "model", "llama"), family="llama", quantization="nf4")
    types = {path[-2:]: leaf.get_value().dtype.name for path, leaf in nnx.to_flat_state(nnx.state(model, nnx.Param))}
    assert types[("up_proj", "kernel")] == "uint8"
    assert (
        types[("embed_tokens", "embedding")] == types[("lm_head", "kernel")] == types[("norm", "weight")] == "float32"
    )


@pytest.mark.parametrize(("quantization", "bits"), [("int8", 8.5), ("nf4", 4.5)])
def test_a_quantised_weight_takes_the_bits_that_the_docs_say(tmp_path: Path, quantization: str, bits: float) -> None:
    directory = make_larger(tmp_path / "model", "qwen3")
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


def test_no_dequantised_matrix_is_kept_between_the_passes_or_over_a_loop(tmp_path: Path) -> None:
    """Six layers' matrices in full would be 6 × 229,376 × 4 bytes; one of them at a time is 65,536."""
    directory = make_larger(
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


def test_an_export_holds_the_dequantised_base_with_the_adapter_in_it(tmp_path: Path) -> None:
    source = make_larger(tmp_path / "model", "qwen3")
    model = load(source, quantization="nf4", lora_alpha=4.0)
    moved = jax.tree.map(lambda leaf: leaf + 0.01, nnx.state(model, nnx.LoRAParam))
    nnx.update(model, moved)
    exported = tmp_path / "exported"
    exported.mkdir()
    write_merged(model, source, exported, alpha=4.0)
    np.testing.assert_allclose(logits_of(load(exported, lora_rank=0)), logits_of(model), atol=1e-4)
