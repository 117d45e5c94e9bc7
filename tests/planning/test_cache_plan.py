"""The stages of sampling, and the cache that they are planned to hold beside the arrays of a model."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from agent_tunix.config.mesh_shape import MeshShape
from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError
from agent_tunix.planning.cache_plan import CachePlan, Stage, check_cache, plan_cache, plan_stages
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy
from tests.policy.small_families import make_family
from tests.raising import raises

ONE = MeshShape(1, 1, 1)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        # A prompt of a few tokens is copied for every row.
        ((16, 8, 40, 40), [(16, 8, 40), (48, 1, 40)]),
        # A long one is shared by as many rows as sample so many tokens together.
        ((2, 16, 485, 64), [(2, 16, 64), (2, 8, 64), (1, 8, 64)]),
        # A long loop begins with a short cache.
        ((8, 8, 40, 256), [(8, 8, 64), (8, 8, 256), (32, 1, 256), (8, 1, 256)]),
        # Few tokens and few rows are not worth a stage.
        ((16, 8, 40, 8), [(16, 8, 8)]),
        ((1, 8, 40, 64), [(1, 8, 64)]),
        ((2, 3, 40, 24), [(2, 3, 24)]),
    ],
)
def test_stages_follow_from_sizes(shape: tuple[int, int, int, int], expected: list[tuple[int, int, int]]) -> None:
    assert plan_stages(*shape) == tuple(Stage(*stage) for stage in expected)


def config_of(*, batch: int, group: int, prompt: int, completion: int) -> Config:
    config = Config()
    config.training.batch_size, config.grpo.num_generations = batch, group
    config.generation.max_prompt_length, config.generation.max_generation_steps = prompt, completion
    config.evaluation.batch_size = 1
    return config


@pytest.mark.parametrize(
    ("family", "dtype"), [("qwen3", "bfloat16"), pytest.param("gemma3_text", "float32", marks=pytest.mark.slow)]
)
def test_the_cache_is_planned_to_the_byte(tmp_path: Path, family: str, dtype: str) -> None:
    config = config_of(batch=3, group=2, prompt=11, completion=5)
    config.model.model_family, config.model.dtype = family, dtype
    directory = make_family(tmp_path / "model", family)
    model: Any = load_policy(directory, config.model, make_mesh([1, 1]))
    _, prefix = model.read_prefix(jnp.ones((3, 11), jnp.int32), jnp.full(3, 11))
    arrays = [prefix.layers, model.init_cache(6, 5, model.dtype)["layers"]]
    plan = plan_cache(read_architecture(directory), config, jnp.dtype(dtype).itemsize, ONE)
    assert plan.bytes == sum(array.nbytes for array in jax.tree.leaves(arrays))


def test_what_moves_from_stage_to_stage_is_counted_twice() -> None:
    """32 rows of 32 tokens go to 16, each with a prefix of its own, while those of the first stage are still there."""
    config = config_of(batch=4, group=8, prompt=16, completion=32)
    assert plan_stages(4, 8, 16, 32)[:2] == (Stage(4, 8, 32), Stage(16, 1, 32))
    plan = plan_cache(read_architecture(EMBEDDED_MODEL), config, 4, ONE)
    assert plan.copied == 16 * 32 + 16 * 16


@pytest.mark.parametrize(
    ("shape", "rows", "heads"),
    [
        (MeshShape(1, 1, 1), (8, 32), 2),
        (MeshShape(2, 2, 1), (2, 8), 2),
        (MeshShape(1, 1, 2), (8, 32), 1),
        (MeshShape(1, 1, 4), (8, 32), 2),  # fewer heads than devices: each has all
        (MeshShape(1, 16, 1), (8, 2), 2),  # fewer prompts than devices
    ],
)
def test_rows_are_divided_over_data_and_fsdp_and_heads_over_tp(
    shape: MeshShape, rows: tuple[int, int], heads: int
) -> None:
    architecture = read_architecture(EMBEDDED_MODEL)
    plan = plan_cache(architecture, config_of(batch=8, group=4, prompt=64, completion=8), 2, shape)
    assert (plan.prompts, plan.completions) == rows
    assert plan.slot_bytes == 2 * architecture.num_layers * heads * architecture.head_dim * 2


def test_an_evaluation_of_more_problems_at_once_than_training_has_rows_counts() -> None:
    config = config_of(batch=2, group=2, prompt=16, completion=8)
    config.evaluation.batch_size, config.evaluation.num_samples = 100, 50
    plan = plan_cache(read_architecture(EMBEDDED_MODEL), config, 4, ONE)
    assert (plan.purpose, plan.prompts, plan.completions) == ("evaluation", 50, 50)


PLAN = CachePlan("training", 16, 128, 1024, 2048, 0, 114_688)


def test_a_cache_that_cannot_fit_is_refused_with_the_arithmetic_and_what_to_lower() -> None:
    check_cache(PLAN, 2 * 10**9, 34 * 10**9)
    with raises(ConfigError, "cache_too_large") as caught:
        check_cache(PLAN, 2 * 10**9, 33 * 10**9)
    message = str(caught.value)
    assert "(16 prompts × 1024 + 128 completions × 2048) slots × 114688 bytes = 31.94 GB, beside 2.00 GB" in message
    assert "a device has 33.00 GB; lower training.batch_size, grpo.num_generations" in message
    with raises(ConfigError, "cache_too_large") as caught:
        check_cache(dataclasses.replace(PLAN, purpose="evaluation"), 2 * 10**9, 33 * 10**9)
    assert "lower evaluation.batch_size" in str(caught.value)
