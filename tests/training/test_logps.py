"""Log-probabilities on a shared prompt and in chunks against the plain form, every row on its own and all at once."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from agent_tunix.config.schema import ModelConfig
from agent_tunix.grpo.logps import completion_statistics, look_up, mask_and_add
from agent_tunix.planning.known_models import plannable_architecture
from agent_tunix.planning.memory import chunk_tokens
from agent_tunix.policy.architecture import Architecture, DeltaNetSizes, Rope
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.policy.network.projection import Projection, Quantization, quantise

PLAIN = Architecture(
    model_type="qwen3",
    vocab_size=53,
    hidden_size=16,
    intermediate_size=24,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    norm_eps=1e-6,
    tied_embeddings=True,
    activation="silu",
    query_scale=8**-0.5,
    layer_kinds=("full_attention", "full_attention"),
    rope={"full_attention": Rope(10_000.0)},
    qk_norm=True,
)
ONE_LAYER = dataclasses.replace(PLAIN, num_layers=1, layer_kinds=("full_attention",))
SLIDING = {
    **{name: getattr(PLAIN, name) for name in PLAIN.__dataclass_fields__},
    "layer_kinds": ("sliding_attention", "full_attention"),
    "rope": {"full_attention": Rope(10_000.0, "linear", 8.0), "sliding_attention": Rope(100.0)},
    "window": 4,
    "output_norms": True,
    "norm_offset": 1.0,
    "attention_softcap": 5.0,
    "final_softcap": 7.0,
    "activation": "gelu_tanh",
}
LINEAR = dataclasses.replace(
    PLAIN,
    layer_kinds=("linear_attention", "full_attention"),
    rope={"full_attention": Rope(10_000.0, rotated_share=0.5)},
    delta_net=DeltaNetSizes(key_heads=2, value_heads=4, key_dim=4, value_dim=6, conv_width=3),
    attention_gate=True,
    norm_offset=1.0,
)
ARCHITECTURES = {
    "sliding": Architecture(**SLIDING),
    "linear": LINEAR,
    # One of each kind of weight that the others lack, and a layer without rotation.
    "untied": dataclasses.replace(
        PLAIN,
        tied_embeddings=False,
        qkv_bias=True,
        num_kv_heads=4,
        joint_qk_norm=True,
        input_norms=False,
        output_norms=True,
        unrotated_layers=(1,),
    ),
    "experts": dataclasses.replace(
        PLAIN,
        num_experts=4,
        num_experts_per_token=2,
        moe_intermediate_size=12,
        norm_topk_prob=True,
        dense_layers=(1,),
    ),
}
# With an adapter, beside a base in few bits.
ADAPTED: dict[str, Quantization] = {"quantised": "nf4"}

B, G, P, T = 3, 4, 7, 6
RNG = np.random.default_rng(0)
PROMPTS = RNG.integers(0, 53, (B, P))
PROMPT_MASK = np.arange(P) >= np.array([[0], [3], [6]])
LENGTHS = PROMPT_MASK.sum(1)
TOKENS = RNG.integers(0, 53, (B * G, T))
TEMPERATURE = 0.7

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["sliding"])
def model(request: pytest.FixtureRequest) -> Iterator[Any]:
    """In float64, with weights large enough that everything shows."""
    name = request.param
    with jax.enable_x64(True), nnx.use_eager_sharding(False):  # type: ignore[no-untyped-call]
        float64 = jnp.dtype("float64")
        architecture, quantization = ARCHITECTURES.get(name, ONE_LAYER), ADAPTED.get(name)
        model = Decoder(architecture, dtype=float64, param_dtype=float64, rngs=nnx.Rngs(0), quantization=quantization)
        for _, module in nnx.iter_modules(model):
            if isinstance(module, Projection) and module.quantization is not None:
                weight = jax.random.normal(jax.random.key(1), (module.in_features, module.out_features))
                codes, scales = quantise(0.02 * 15 * weight, module.quantization)
                module.kernel.set_value(codes)
                module.kernel_scale.set_value(scales)
        floats = nnx.state(model, lambda _, leaf: jnp.issubdtype(leaf.dtype, jnp.float64))
        nnx.update(model, jax.tree.map(lambda x: x * 15 if x.ndim > 1 else x + 0.3, floats))
        if name in ADAPTED:
            for number, module in enumerate(m for _, m in nnx.iter_modules(model) if isinstance(m, Projection)):
                keys = jax.random.split(jax.random.key(number))
                a = jax.random.normal(keys[0], (module.in_features, 2), float64)
                module.add_adapter(a, 0.3 * jax.random.normal(keys[1], (2, module.out_features), float64), 0.5)
        yield model


def gradients(model: Any, of: Any) -> dict[Any, Any]:
    """Return the gradients of a loss with respect to all that trains, by path."""
    kind = nnx.LoRAParam if any(nnx.to_flat_state(nnx.state(model, nnx.LoRAParam))) else nnx.Param
    return dict(nnx.to_flat_state(nnx.jit(nnx.grad(of, argnums=nnx.DiffState(0, kind)))(model)))


def assert_close(found: dict[Any, Any], expected: dict[Any, Any], *, atol: float = 1e-9) -> None:
    """All gradients, none of which is nothing."""
    assert found.keys() == expected.keys()
    for path, leaf in expected.items():
        assert np.abs(leaf[...]).max() > 1e-6, path
        np.testing.assert_allclose(found[path][...], leaf[...], rtol=1e-7, atol=atol, err_msg=str(path))


@nnx.jit
def plain(model: Any) -> tuple[jax.Array, jax.Array]:
    """Every row on its own, prompt and all, with all logits at once."""
    prompts, filled = PROMPTS.repeat(G, 0), PROMPT_MASK.repeat(G, 0)
    tokens = jnp.asarray(np.concatenate([prompts, TOKENS], axis=1))
    filled = np.concatenate([filled, np.ones_like(TOKENS, bool)], axis=1)
    positions = np.maximum(filled.cumsum(1) - 1, 0)
    mask = np.tril(np.ones((P + T, P + T), bool))[None] & filled[:, None]
    logits, _ = model(tokens, jnp.asarray(positions), None, jnp.asarray(mask))
    logps = jax.nn.log_softmax(logits[:, P - 1 : -1] / TEMPERATURE)
    chosen = jnp.take_along_axis(logps, jnp.asarray(TOKENS)[..., None], axis=-1)[..., 0]
    return chosen, -(jnp.exp(logps) * logps).sum(-1)


def shared(
    model: Any,
    chunk: int | None,
    prompts: np.ndarray = PROMPTS,
    lengths: np.ndarray = LENGTHS,
    tokens: np.ndarray = TOKENS,
) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities and entropies of all completions, each prompt read once."""
    arrays = map(jnp.asarray, (prompts, lengths, tokens))
    compute: Any = nnx.jit(_shared, static_argnames="chunk")
    found: tuple[jax.Array, jax.Array] = compute(model, *arrays, chunk=chunk)
    return found


def _shared(model: Any, *arrays: jax.Array, chunk: int | None) -> tuple[jax.Array, jax.Array]:
    found = completion_statistics(model, *arrays, temperature=TEMPERATURE, chunk=chunk)
    return found.logps, found.entropies


@pytest.mark.parametrize(
    ("model", "chunk", "remat"),
    [
        *(("sliding", 5, True), ("untied", None, False), ("experts", 5, False)),
        *(("quantised", None, True), ("quantised", 5, False)),
        *(("linear", None, False), ("linear", 5, True)),
    ],
    indirect=["model"],
)
def test_values_and_gradients_are_those_of_the_plain_form(
    model: Any, chunk: int | None, remat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = jnp.asarray(RNG.normal(size=(B * G, T)))
    expected = gradients(model, lambda model: (plain(model)[0] * weights).sum())
    for found, wanted in zip(shared(model, chunk), plain(model), strict=True):
        assert found.dtype == jnp.float64
        # Rotations are float32 in both forms, and so the same.
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    monkeypatch.setattr(model, "remat", remat)
    assert_close(gradients(model, lambda model: (shared(model, chunk)[0] * weights).sum()), expected)


@pytest.mark.parametrize("model", ["quantised"], indirect=True)
def test_logits_of_tokens_without_loss_are_not_computed(model: Any) -> None:
    """With a frozen output matrix. Gradients are those of the tokens that count."""
    mask = np.arange(T) < RNG.integers(0, T, (B * G, 1))

    @nnx.jit
    def masked(model: Any) -> jax.Array:
        arrays = map(jnp.asarray, (PROMPTS, LENGTHS, TOKENS))
        return completion_statistics(model, *arrays, temperature=TEMPERATURE, mask_nT=jnp.asarray(mask), chunk=5).logps

    np.testing.assert_allclose(masked(model)[mask], plain(model)[0][mask], rtol=1e-9)
    # The last chunk is filled up with fewer than five of them.
    assert (np.asarray(masked(model))[~mask] != 0).sum() < 5
    expected = gradients(model, lambda model: (plain(model)[0] * mask).sum())
    assert_close(gradients(model, lambda model: (masked(model) * mask).sum()), expected)


def test_slots_that_no_row_fills_change_nothing(model: Any) -> None:
    """Arrays are cut to a bucket of lengths, which leaves such slots out."""
    prompts, tokens = np.pad(PROMPTS, ((0, 0), (3, 0))), np.pad(TOKENS, ((0, 0), (0, 2)))
    longer, _ = shared(model, 5, prompts, tokens=tokens)
    np.testing.assert_allclose(longer[:, :T], shared(model, 5)[0], rtol=1e-9)


def test_entropies_have_no_gradient(model: Any) -> None:
    found = gradients(model, lambda model: shared(model, None)[1].sum())
    assert not any(leaf[...].any() for leaf in found.values())


def test_logits_of_all_tokens_never_exist_at_once(model: Any) -> None:
    """Forward and backward: no array of a compiled step has as many numbers as there are tokens times words."""
    graphdef, state = nnx.split(model)

    def loss(state: Any) -> jax.Array:
        return shared(nnx.merge(graphdef, state), 8)[0].sum()

    program = jax.jit(jax.grad(loss)).lower(state).as_text()
    assert f"tensor<{8}x{53}x" in program
    assert f"tensor<{B * G * T}x{53}x" not in program


def test_what_stands_at_padding_of_a_prompt_does_not_count(model: Any) -> None:
    before, after = (shared(model, None, prompts)[0] for prompts in (PROMPTS, np.where(PROMPT_MASK, PROMPTS, 11)))
    np.testing.assert_array_equal(after, before)


def test_one_token_completions_need_no_second_pass(model: Any) -> None:
    found, _ = shared(model, None, tokens=TOKENS[:, :1])
    np.testing.assert_allclose(found, plain(model)[0][:, :1], rtol=1e-9)


def test_prompts_and_completions_share_all_products_but_those_of_attention(model: Any) -> None:
    """The matrices of a layer are multiplied once, by the tokens of both."""
    graphdef, state = nnx.split(model)
    program = jax.jit(lambda state: shared(nnx.merge(graphdef, state), None)[0]).lower(state).as_text()
    made = [line.rpartition("-> ")[2] for line in program.splitlines() if "stablehlo.dot_general" in line]
    together, prompts, completions = (
        [shape for shape in made if shape.startswith(f"tensor<{rows * slots}x24xf64>")]
        for rows, slots in ((B, P + G * (T - 1)), (B, P), (B * G, T - 1))
    )
    num_kinds = len(set(model.config.layer_kinds))
    assert len(together) == 2 * num_kinds, "gate and up, in one function for all layers of a kind"
    assert not prompts
    assert not completions


def test_the_chosen_logits_of_a_tpu_and_their_gradient_are_those_looked_up() -> None:
    logits = jax.random.normal(jax.random.key(0), (2, 5, 11))
    tokens = jax.random.randint(jax.random.key(1), (2, 5), 0, 11)

    def weighted(choose: Any, logits: jax.Array) -> jax.Array:
        chosen: jax.Array = choose(logits, tokens)
        return (chosen * jnp.arange(10.0).reshape(2, 5)).sum()

    for differentiate in (lambda f: f, jax.grad):
        masked, looked_up = (
            jax.jit(differentiate(functools.partial(weighted, choose)))(logits) for choose in (mask_and_add, look_up)
        )
        np.testing.assert_array_equal(masked, looked_up)


def test_a_chunk_of_logits_on_a_tpu_has_as_many_numbers_as_the_output_matrix() -> None:
    architecture = plannable_architecture(ModelConfig(path="hf://google/gemma-3-270m-it"))
    assert (chunk_tokens(architecture), chunk_tokens(architecture, on_tpu=True)) == (160, 640)
