"""Weights of a module: arrays read and replaced without walking through it, and their kinds by path."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from agent_tunix.config.schema import ModelConfig
from agent_tunix.policy.files.directory import find_model_directory
from agent_tunix.policy.files.weight_paths import is_matrix, is_vector, list_weights
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy
from agent_tunix.policy.variables import Parts, Variables, held_by


class Other(nnx.Variable):  # type: ignore[type-arg]
    """Not trained."""


class Model(nnx.Module):
    def __init__(self) -> None:
        self.first = nnx.Linear(3, 4, rngs=nnx.Rngs(0))
        self.count = Other(jnp.zeros((), jnp.int32))
        self.second = nnx.Linear(4, 2, rngs=nnx.Rngs(1))


@pytest.fixture
def model() -> Model:
    return Model()


def test_parts_are_what_split_gives(model: Model) -> None:
    graph, state = Parts(model).split()
    expected_graph, expected = nnx.split(model)
    assert graph == expected_graph
    assert str(jax.tree.structure(state)) == str(jax.tree.structure(expected))
    jax.tree.map(np.testing.assert_array_equal, state, expected)


def test_parts_follow_what_is_put_into_the_module(model: Model) -> None:
    parts = Parts(model)
    nnx.update(model, jax.tree.map(jnp.ones_like, nnx.state(model)))
    _, state = parts.split()
    assert all((leaf == 1).all() for leaf in jax.tree.leaves(state))


def test_what_is_written_is_in_the_module_in_its_place(model: Model) -> None:
    variables = Variables(model, nnx.Param)
    variables.write([array + number for number, array in enumerate(variables.read())])
    written = jax.tree.leaves(nnx.state(model, nnx.Param))
    fresh = jax.tree.leaves(nnx.state(Model(), nnx.Param))
    for number, (found, before) in enumerate(zip(written, fresh, strict=True)):
        np.testing.assert_array_equal(found, before + number)
    assert model.count.get_value() == 0


def test_a_filter_and_its_opposite_make_up_the_module(model: Model) -> None:
    trained, others = Variables(model, nnx.Param), Variables(model, nnx.filterlib.Not(nnx.Param))
    graph = nnx.graphdef(model)
    merged = nnx.merge(graph, trained.state(trained.read()), others.state(others.read()))
    jax.tree.map(np.testing.assert_array_equal, nnx.state(merged), nnx.state(model))


def test_an_optimisers_state_is_read_in_its_order(model: Model) -> None:
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    found = Variables(optimizer).read()
    assert [id(array) for array in found] == [id(array) for array in jax.tree.leaves(nnx.state(optimizer))]


def test_what_an_optimiser_leaves_alone_holds_no_array_and_keeps_its_place(model: Model) -> None:
    """A group that is frozen has moments without arrays."""
    labels = {"first": "trained", "second": "frozen"}
    transform = optax.partition(
        {"trained": optax.adam(1e-3), "frozen": optax.set_to_zero()},
        lambda tree: jax.tree_util.tree_map_with_path(lambda path, _: labels[path[0].key], tree),
    )
    optimizer = nnx.Optimizer(model, transform, wrt=nnx.Param)
    variables = Variables(optimizer)
    held = variables.read()
    assert any(not jax.tree.leaves(value) for value in held)
    state = variables.state(held)
    assert str(jax.tree.structure(state)) == str(jax.tree.structure(nnx.state(optimizer)))
    variables.write([jax.tree.map(lambda array: array + 1, value) for value in held_by(state)])
    for found, before in zip(jax.tree.leaves(nnx.state(optimizer)), jax.tree.leaves(held), strict=True):
        np.testing.assert_array_equal(found, before + 1)


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
