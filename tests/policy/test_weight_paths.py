"""Which weights are matrices, over which axes: for every einsum that Tunix's models and Qwix's adapters hold."""

import jax.numpy as jnp
import pytest
from flax import nnx
from optax.contrib._muon import _compute_muon_reshape

from agent_tunix.config.schema import ModelConfig
from agent_tunix.policy.directory import find_model_directory
from agent_tunix.policy.model import load_policy, make_mesh
from agent_tunix.policy.weight_paths import is_vector, list_weights, matrix_axes

# Paths and shapes as tiny models of each family have them: D 32, N 4, K 2, H 8, F 48, rank 6.
MATRICES = [
    ("layers.0.attn.q_proj.w", (32, 4, 8), (32, 32)),
    ("layers.0.attn.k_proj.w", (32, 2, 8), (32, 16)),
    ("layers.0.attn.o_proj.w", (4, 8, 32), (32, 32)),
    ("layers.0.mlp.gate_proj.kernel", (32, 48), (32, 48)),
    ("layers.0.mlp.down_proj.kernel", (48, 32), (48, 32)),
    ("layers.0.attn.q_einsum.w", (4, 32, 8), (32, 32)),
    ("layers.0.attn.kv_einsum.w", (2, 2, 32, 8), (32, 16)),
    ("layers.0.attn.qkv_einsum.w", (3, 4, 32, 8), (32, 32)),
    ("layers.0.attn.attn_vec_einsum.w", (4, 8, 32), (32, 32)),
    ("layers.0.attn.q_proj.w_lora_a", (32, 6), (32, 6)),
    ("layers.0.attn.q_proj.w_lora_b", (6, 4, 8), (6, 32)),
    ("layers.0.attn.o_proj.w_lora_a", (4, 8, 6), (32, 6)),
    ("layers.0.attn.o_proj.w_lora_b", (6, 32), (6, 32)),
    ("layers.0.attn.kv_einsum.w_lora_a", (32, 6), (32, 6)),
    ("layers.0.attn.kv_einsum.w_lora_b", (6, 2, 2, 8), (6, 16)),
    ("layers.0.mlp.up_proj.kernel_lora_b", (6, 48), (6, 48)),
]


@pytest.mark.parametrize(("path", "shape", "matrix"), MATRICES, ids=[path for path, _, _ in MATRICES])
def test_a_tensor_of_attention_is_the_matrix_of_its_projection(
    path: str, shape: tuple[int, ...], matrix: tuple[int, int]
) -> None:
    weight = jnp.ones(shape)
    axes = matrix_axes(path, weight)
    assert axes is not None
    # Optax's own reading of the axes: several matrices first, then the input and the output.
    reshape, restore = _compute_muon_reshape(weight, axes)
    assert reshape(weight).shape[1:] == matrix
    assert restore(reshape(weight)).shape == shape


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("embedder.input_embedding", (64, 32)),
        ("lm_head.w", (32, 64)),
        ("final_norm.w", (32,)),
        ("layers.0.attn.q_bias", (32,)),
        ("layers.0.attn.q_bias", (4, 8)),
        ("layers.0.experts.w", (8, 32, 48)),
    ],
)
def test_embeddings_heads_vectors_and_unknown_tensors_are_no_matrices(path: str, shape: tuple[int, ...]) -> None:
    assert matrix_axes(path, jnp.ones(shape)) is None


@pytest.mark.parametrize("rank", [0, 4])
def test_every_weight_of_the_embedded_model_is_known(rank: int) -> None:
    config = ModelConfig(lora_rank=rank)
    model = load_policy(find_model_directory(config), config, make_mesh([1, 1]))
    weights = list_weights(nnx.state(model, nnx.LoRAParam if rank else nnx.Param))
    others = {path for path, weight in weights.items() if matrix_axes(path, weight) is None}
    embeddings = {path for path in others if not is_vector(path, weights[path])}
    assert embeddings == (set() if rank else {"embedder.input_embedding"})
