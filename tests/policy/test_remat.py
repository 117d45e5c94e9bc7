"""Rematerialisation: less memory, the same numbers."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.policy.support import make_directory

from agent_tunix.config.schema import ModelConfig
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy

TOKENS = jnp.array([[3, 17, 5, 9, 29, 31, 8, 2]])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_directory(tmp_path_factory.mktemp("compat") / "model", num_hidden_layers=1)


def load(directory: Path, **settings: Any) -> Any:
    return load_policy(directory, ModelConfig(**{"dtype": "float32", **settings}), make_mesh([1, 1]))


def logits_of(model: Any) -> jax.Array:
    T = TOKENS.shape[1]
    mask = jnp.tril(jnp.ones((1, T, T), jnp.bool_))
    return jnp.asarray(nnx.jit(lambda model: model(TOKENS, jnp.arange(T)[None], None, mask)[0])(model))


def gradients_of(model: Any, kind: Any) -> Any:
    def loss(model: Any) -> jax.Array:
        return jnp.square(logits_of(model)).mean()

    return nnx.jit(nnx.grad(loss, argnums=nnx.DiffState(0, kind)))(model)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_rematerialisation_leaves_logits_and_gradients_as_they_are(directory: Path, rank: int) -> None:
    plain, remat = load(directory, lora_rank=rank), load(directory, lora_rank=rank, remat=True)
    np.testing.assert_array_equal(logits_of(plain), logits_of(remat))
    kind = nnx.LoRAParam if rank else nnx.Param
    expected, found = gradients_of(plain, kind), gradients_of(remat, kind)
    assert any(array.any() for array in jax.tree.leaves(expected))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6), found, expected)


def test_rematerialisation_recomputes_in_the_backward_pass(directory: Path) -> None:
    def program(model: Any) -> str:
        graphdef, state = nnx.split(model)
        return str(jax.make_jaxpr(jax.grad(lambda s: jnp.square(logits_of(nnx.merge(graphdef, s))).mean()))(state))

    plain, remat = program(load(directory)), program(load(directory, remat=True))
    assert "checkpoint" not in plain
    assert "remat" in remat or "checkpoint" in remat
