"""The memory plan of a run beside the arrays of a model, and what rematerialisation saves."""

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError
from agent_tunix.planning.memory import MemoryPlan, check_memory, host_memory, plan_memory
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy
from tests.policy.small_families import FAMILIES, make_family
from tests.raising import raises


def held(model: Any, kind: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(nnx.state(model, kind)))


SETTINGS = [(0, None, "float32"), (4, None, "bfloat16"), (4, "int8", "float32"), (4, "nf4", "bfloat16")]


@pytest.mark.parametrize(
    ("family", "settings"),
    [*(("qwen3", each) for each in SETTINGS), *((family, SETTINGS[3]) for family in FAMILIES if family != "qwen3")],
)
def test_weights_and_adapter_are_planned_to_the_byte(tmp_path: Path, family: str, settings: Any) -> None:
    directory = make_family(tmp_path / "model", family)
    config = Config()
    config.model.model_family = family
    config.model.lora_rank, config.model.quantization, config.model.dtype = settings
    plan = plan_memory(read_architecture(directory), config, jnp.dtype(config.model.dtype).itemsize)
    model = load_policy(directory, config.model, make_mesh([1, 1]))
    assert plan.adapter == held(model, nnx.LoRAParam)
    assert plan.weights + plan.adapter == held(model, nnx.Variable)


def test_what_an_adapter_spares_is_the_optimiser_and_the_reference_of_the_base(tmp_path: Path) -> None:
    architecture = read_architecture(make_family(tmp_path / "model", "qwen3"))
    full, lora, free = Config(), Config(), Config()
    lora.model.lora_rank = 2
    free.grpo.beta = 0.0
    assert plan_memory(architecture, full, 4).reference == plan_memory(architecture, full, 4).weights
    assert plan_memory(architecture, free, 4).reference == 0
    plan = plan_memory(architecture, lora, 4)
    assert (plan.reference, plan.optimizer) == (plan.adapter, 2 * plan.adapter)
    lora.training.micro_batch_size = 4  # whose gradients are summed up
    assert plan_memory(architecture, lora, 4).optimizer == 3 * plan.adapter


NOTHING = dict.fromkeys(("adapter", "reference", "sampling", "gradients", "recomputed"), 0)
PLAN = MemoryPlan(weights=8 * 10**9, optimizer=10**9, cache=10**9, activations=2 * 10**9, logits=10**9, **NOTHING)


def test_weights_that_alone_are_too_much_are_refused_with_the_sum() -> None:
    with raises(ConfigError, "weights_too_large") as caught:
        check_memory(PLAN, 7 * 10**9)
    assert "8.00 GB, but only 7.00 GB" in str(caught.value)


def test_a_run_that_may_not_fit_is_warned_of_and_one_that_fits_is_not() -> None:
    assert re.match(r"the run may need about 12.00 GB, but only 10.00 GB", check_memory(PLAN, 10**10) or "")
    assert check_memory(PLAN, 12 * 10**9) is None


def test_the_machine_has_memory() -> None:
    assert 10**8 < host_memory() < 10**14


@pytest.mark.slow
@pytest.mark.parametrize("settings", [(0, None), (4, "int8")], ids=["full", "qlora"])
def test_rematerialisation_spares_most_of_what_the_backward_pass_keeps(tmp_path: Path, settings: Any) -> None:
    directory = make_family(tmp_path / "model", "qwen3", num_hidden_layers=4)
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
