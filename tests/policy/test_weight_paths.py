"""What each weight of a model is, by its path."""

import jax.numpy as jnp
import pytest
from flax import nnx

from agent_tunix.config.schema import ModelConfig
from agent_tunix.policy.files.directory import find_model_directory
from agent_tunix.policy.files.weight_paths import is_matrix, is_vector, list_weights
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy


@pytest.mark.parametrize(
    ("path", "shape", "matrix", "vector"),
    [
        ("layers.0.self_attn.q_proj.kernel", (8, 12), True, False),
        ("layers.0.self_attn.q_proj.kernel_lora_a", (8, 2), True, False),
        ("layers.0.self_attn.q_proj.bias", (12,), False, True),
        ("layers.0.self_attn.q_proj.bias", (3, 4), False, True),
        ("layers.0.input_layernorm.weight", (8,), False, True),
        ("embed_tokens.embedding", (64, 8), False, False),
        ("lm_head.kernel", (8, 64), False, False),
        ("layers.0.experts.kernel", (4, 8, 12), False, False),
    ],
)
def test_a_path_and_a_shape_say_what_a_weight_is(path: str, shape: tuple[int, ...], matrix: bool, vector: bool) -> None:
    weight = jnp.ones(shape)
    assert (is_matrix(path, weight), is_vector(path, weight)) == (matrix, vector)


@pytest.mark.parametrize("rank", [0, 4])
def test_every_weight_of_the_embedded_model_is_known(rank: int) -> None:
    config = ModelConfig(lora_rank=rank)
    model = load_policy(find_model_directory(config), config, make_mesh([1, 1]))
    weights = list_weights(nnx.state(model, nnx.LoRAParam if rank else nnx.Param))
    others = {path for path, weight in weights.items() if not is_matrix(path, weight) and not is_vector(path, weight)}
    assert others == (set() if rank else {"embed_tokens.embedding"})
