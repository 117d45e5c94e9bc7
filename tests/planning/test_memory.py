"""The memory plan of a run beside the arrays of a model, its stages of sampling and their cache."""

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from agent_tunix.config.mesh_shape import MeshShape
from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError
from agent_tunix.planning.cache_plan import Stage, copied_slots, count_places, plan_cache, plan_stages, slot_bytes
from agent_tunix.planning.memory import MemoryPlan, check_memory, host_memory, plan_memory
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy
from tests.policy.support import make_larger
from tests.raising import raises

pytestmark = pytest.mark.slow


def held(model: Any, kind: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(nnx.state(model, kind)))


SETTINGS = [(0, None, "float32"), (4, None, "bfloat16"), (4, "int8", "float32"), (4, "nf4", "bfloat16")]


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        *(("qwen3", each) for each in SETTINGS),
        *((family, SETTINGS[3]) for family in ("gemma2", "llama", "qwen2", "qwen3_5_text")),
        *(("qwen3_moe", each) for each in SETTINGS[:2]),
    ],
)
def test_weights_and_adapter_are_planned_to_the_byte(tmp_path: Path, family: str, settings: Any) -> None:
    directory = make_larger(tmp_path / "model", family)
    config = Config()
    config.model.model_family = family
    config.model.lora_rank, config.model.quantization, config.model.dtype = settings
    plan = plan_memory(read_architecture(directory), config, jnp.dtype(config.model.dtype).itemsize)
    model = load_policy(directory, config.model, make_mesh([1, 1]))
    assert plan.adapter == held(model, nnx.LoRAParam)
    assert plan.weights + plan.adapter == held(model, nnx.Variable)


def test_what_an_adapter_spares_is_the_optimiser_and_the_reference_of_the_base(tmp_path: Path) -> None:
    architecture = read_architecture(make_larger(tmp_path / "model", "qwen3"))
    full, lora, free = Config(), Config(), Config()
    lora.model.lora_rank = 2
    free.grpo.beta = 0.0
    assert plan_memory(architecture, full, 4).reference == plan_memory(architecture, full, 4).weights
    assert plan_memory(architecture, free, 4).reference == 0
    plan = plan_memory(architecture, lora, 4)
    assert (plan.reference, plan.optimizer) == (plan.adapter, 2 * plan.adapter)
    lora.training.micro_batch_size = 4  # whose gradients are summed up
    assert plan_memory(architecture, lora, 4).optimizer == 3 * plan.adapter


NOTHING = dict.fromkeys(
    ("adapter", "reference", "teacher", "judge", "judging", "sampling", "gradients", "recomputed"), 0
)
PLAN = MemoryPlan(weights=8 * 10**9, optimizer=10**9, cache=10**9, activations=2 * 10**9, logits=10**9, **NOTHING)


def test_what_is_exact_and_alone_too_much_is_refused_with_the_sum() -> None:
    with raises(ConfigError, "not_enough_memory", "10.00 GB, but only 9.50 GB", "evaluation.batch_size"):
        check_memory(PLAN, 95 * 10**8)
    assert check_memory(PLAN, 95 * 10**8, trains=False)  # its batches may be smaller


def test_a_run_that_may_not_fit_is_warned_of_and_one_that_fits_is_not() -> None:
    assert re.match(r"the run may need about 12.00 GB, but only 10.00 GB", check_memory(PLAN, 10**10) or "")
    assert check_memory(PLAN, 12 * 10**9) is None


def test_the_machine_has_memory() -> None:
    assert 10**8 < host_memory() < 10**14


@pytest.mark.parametrize("settings", [(0, None), (4, "int8")], ids=["full", "qlora"])
def test_rematerialisation_spares_most_of_what_the_backward_pass_keeps(tmp_path: Path, settings: Any) -> None:
    directory = make_larger(tmp_path / "model", "qwen3", num_hidden_layers=4)
    config = Config().model
    config.lora_rank, config.quantization = settings
    temporary = {}
    for config.remat in (False, True):
        model = load_policy(directory, config, make_mesh([1, 1]))
        graphdef, state = nnx.split(model)
        trained, frozen = nnx.split_state(state, nnx.LoRAParam if config.lora_rank else nnx.Param, ...)

        def loss(trained: Any, graphdef: Any = graphdef, frozen: Any = frozen) -> jax.Array:
            tokens = jnp.ones((2, 256), jnp.int32)
            mask = jnp.tril(jnp.ones((2, 256, 256), jnp.bool_))
            positions = jnp.broadcast_to(jnp.arange(256), tokens.shape)
            return jnp.square(nnx.merge(graphdef, trained, frozen)(tokens, positions, None, mask)[0]).mean()

        lowered = jax.jit(jax.grad(loss)).lower(trained)
        # As `startup/devices.py` has it on CPU; without, XLA computes nothing again and keeps everything.
        compiled = lowered.compile(compiler_options={"xla_disable_hlo_passes": "cse_barrier_expander"})
        memory: Any = compiled.memory_analysis()
        temporary[config.remat] = memory.temp_size_in_bytes
    assert temporary[True] < 0.5 * temporary[False], temporary


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
    ("family", "dtype"), [("qwen3", "bfloat16"), ("gemma3_text", "float32"), ("qwen3_5_text", "bfloat16")]
)
def test_the_cache_is_planned_to_the_byte(tmp_path: Path, family: str, dtype: str) -> None:
    config = config_of(batch=3, group=2, prompt=11, completion=5)
    config.model.model_family, config.model.dtype = family, dtype
    directory = make_larger(tmp_path / "model", family)
    model: Any = load_policy(directory, config.model, make_mesh([1, 1]))
    _, prefix = model.read_prefix(jnp.ones((3, 11), jnp.int32), jnp.full(3, 11))
    arrays = [prefix.layers, model.init_cache(6, 5, model.dtype)["layers"]]
    plan = plan_cache(read_architecture(directory), config, jnp.dtype(dtype).itemsize, ONE)
    assert plan == sum(array.nbytes for array in jax.tree.leaves(arrays))


def test_what_moves_from_stage_to_stage_is_counted_twice() -> None:
    """32 rows of 32 tokens go to 16, each with a prefix of its own, while those of the first stage are still there."""
    stages = plan_stages(4, 8, 16, 32)
    assert stages[:2] == (Stage(4, 8, 32), Stage(16, 1, 32))
    assert copied_slots(stages, 16, 32) == 16 * 32 + 16 * 16


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
def test_rows_are_divided_over_data_fsdp_and_heads_over_tp(shape: MeshShape, rows: tuple[int, int], heads: int) -> None:
    architecture = read_architecture(EMBEDDED_MODEL)
    of_slot = 2 * architecture.num_layers * heads * architecture.head_dim * 2
    assert slot_bytes(architecture, 2, shape) == of_slot
    plan = plan_cache(architecture, config_of(batch=8, group=4, prompt=64, completion=8), 2, shape)
    assert plan == (rows[0] * 64 + rows[1] * 8) * of_slot


def test_an_evaluation_of_more_problems_at_once_than_training_has_rows_counts() -> None:
    config = config_of(batch=2, group=2, prompt=16, completion=8)
    config.evaluation.batch_size, config.evaluation.num_samples = 100, 50
    architecture = read_architecture(EMBEDDED_MODEL)
    assert plan_cache(architecture, config, 4, ONE) == 50 * (16 + 8) * slot_bytes(architecture, 4, ONE)


def test_places_fit_into_the_memory_beside_the_weights() -> None:
    architecture = read_architecture(EMBEDDED_MODEL)
    # Keys and values of two heads of 24 numbers in three layers, for the context and a piece of 512, twice.
    place = 2 * (1024 + 512) * 2 * 2 * 24 * 3 * 4
    shape = MeshShape(1, 1, 1)
    assert count_places(architecture, 4, shape, max_context=1024, available=5 * place + 1) == 5
    with raises(ConfigError, code="not_enough_memory"):
        count_places(architecture, 4, shape, max_context=1024, available=place - 1)
