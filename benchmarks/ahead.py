"""Programs of a run, compiled for TPUs that this machine does not have.

libtpu contains the TPU's compiler, which needs no TPU. Arrays are abstract: shape, type and sharding.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from agent_tunix.config.checks import micro_batch_size
from agent_tunix.config.mesh_shape import MeshShape
from agent_tunix.config.schema import Config, SchedulerConfig
from agent_tunix.grpo.logps import completion_statistics
from agent_tunix.grpo.loss import LossInputs, objective_settings
from agent_tunix.planning.cache_plan import Stage, plan_stages
from agent_tunix.planning.known_models import KNOWN_MODELS, plannable_architecture
from agent_tunix.planning.memory import chunk_tokens
from agent_tunix.policy.adapter import add_adapter
from agent_tunix.policy.mesh import AXES, even_count, place_numbers, row_sharding, row_shards, sharding_over
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.policy.network.deltanet import GatedDeltaNet
from agent_tunix.policy.network.experts import Experts
from agent_tunix.policy.network.layers import Attention
from agent_tunix.policy.optimizer import make_optimizer
from agent_tunix.policy.schedules import make_schedules
from agent_tunix.sampling.decode_loop import generate
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.training.components import make_updater


@dataclass(frozen=True)
class Program:
    """A program to compile.

    Attributes:
        lower: Returns the program in the form that the compiler takes.
        repeats: Rounds of each loop whose number of rounds is only known while it runs, in the order of the program.
    """

    lower: Callable[[], Any]
    repeats: tuple[int, ...] = ()


def topology_devices(chips: str) -> np.ndarray:
    """Return the devices of a TPU slice, such as `v5e:2x4`, in the order of a mesh."""
    # Without these, libtpu asks the metadata server of a cloud.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-8")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from jax.experimental import topologies

    options = {"chips_per_host_bounds": (1, 1, 1)} if chips.endswith(":1x1") else {}
    return np.array(topologies.get_topology_desc(chips, platform="tpu", **options).devices)


def use_layers(count: int | None) -> None:
    """Give the models of the table so many layers; None to leave theirs."""
    if count is not None:
        for sizes in KNOWN_MODELS.values():
            sizes["num_hidden_layers"] = count


def make_mesh(devices: np.ndarray, shape: MeshShape) -> jax.sharding.Mesh:
    """Return a mesh of the first devices of a slice."""
    return jax.sharding.Mesh(devices[: shape.size].reshape(shape), AXES)


def make_policy(config: Config, mesh: jax.sharding.Mesh) -> Decoder:
    """Return the policy of a run, to be called where arrays are traced."""
    model, architecture = config.model, plannable_architecture(config.model)
    dtype = jnp.dtype("bfloat16" if model.dtype == "auto" else model.dtype)
    policy = Decoder(
        architecture,
        dtype=dtype,
        param_dtype=dtype if model.lora_rank > 0 else jnp.dtype("float32"),
        rngs=nnx.Rngs(0),
        quantization=cast("Any", model.quantization),
    )
    for _, module in nnx.iter_modules(policy):
        if isinstance(module, Decoder | Attention | GatedDeltaNet | Experts):
            module.mesh = mesh
    if model.lora_rank > 0:
        add_adapter(policy, model, mesh, 0)
    policy.remat = model.remat
    return policy


def our_programs(config: Config, mesh: jax.sharding.Mesh) -> dict[str, Program]:
    """Return the programs of a run by GRPO with the longest texts: sampling, the reference pass and the update."""
    return {
        "sampling": sampling_program(config, mesh),
        "reference": reference_program(config, mesh),
        "update": update_program(config, mesh),
    }


def _policy_parts(config: Config, mesh: jax.sharding.Mesh) -> tuple[Any, Any]:
    """Return the graph of the policy and its abstract state."""
    with nnx.use_eager_sharding(False):  # type: ignore[no-untyped-call]
        graph, state = nnx.split(nnx.eval_shape(lambda: make_policy(config, mesh)))
    return graph, shard(state, mesh)


def shard(state: Any, mesh: jax.sharding.Mesh) -> Any:
    """Return the abstract state of a module, with the sharding that each variable records."""
    specs = nnx.get_partition_spec(state)
    return jax.tree.map(
        lambda x, spec: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=jax.sharding.NamedSharding(mesh, spec)),
        state,
        specs,
    )


def rows(mesh: jax.sharding.Mesh, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an abstract array whose first dimension is rows; it stands for an array."""
    return jax.ShapeDtypeStruct(shape, dtype, sharding=row_sharding(mesh, shape[0]))


def _everywhere(tree: Any, mesh: jax.sharding.Mesh) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding_over(mesh)), tree)


def _shapes(config: Config) -> tuple[int, int, int, int]:
    """Return b and n of a micro-batch, and the longest P and T."""
    b, generation = micro_batch_size(config), config.generation
    return (
        b,
        b * config.grpo.num_generations,
        cast("int", generation.max_prompt_length),
        generation.max_generation_steps,
    )


def sampling_program(config: Config, mesh: jax.sharding.Mesh) -> Program:
    """Return the program that samples the completions of a step."""
    graph, state = _policy_parts(config, mesh)
    G, (_, _, P, T) = config.grpo.num_generations, _shapes(config)
    B = even_count(mesh, config.training.batch_size, G)
    sampling = SamplingParams.of_training(config)
    stages = (Stage(B, G, T),) if row_shards(mesh) > 1 else plan_stages(B, G, P, T)

    def sample(state: Any, prompts: Any, lengths: Any, key: Any) -> Any:
        return generate(
            graph,
            state,
            prompts,
            lengths,
            jax.random.wrap_key_data(key),
            num_generations=G,
            stages=stages,
            sampling=sampling,
            pad_id=0,
            eos_ids=(1,),
        )

    key = jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=sharding_over(mesh))
    arguments = state, rows(mesh, (B, P), jnp.int32), rows(mesh, (B,), jnp.int32), key
    lengths = [stage.length for stage in stages if stage.size == stages[0].size]
    # If every row reaches the limit, the loops of smaller stages make no round.
    counts = [end - start for start, end in zip([0, *lengths], lengths, strict=False)]
    return Program(lambda: jax.jit(sample).lower(*arguments), (*counts, *[0] * (len(stages) - len(counts))))


def _loss_chunks(config: Config, mesh: jax.sharding.Mesh) -> int:
    _, n, _, T = _shapes(config)
    return -(-n * T // row_shards(mesh) // chunk_tokens(plannable_architecture(config.model), on_tpu=True))


def reference_program(config: Config, mesh: jax.sharding.Mesh) -> Program:
    """Return the pass of the reference policy over a micro-batch."""
    graph, state = _policy_parts(config, mesh)
    b, n, P, T = _shapes(config)
    arrays = rows(mesh, (b, P), jnp.int32), rows(mesh, (b,), jnp.int32), rows(mesh, (n, T), jnp.int32)

    def logps(state: Any, *arrays: Any) -> Any:
        return completion_statistics(nnx.merge(graph, state), *arrays, temperature=config.generation.temperature).logps

    return Program(lambda: jax.jit(logps).lower(state, *arrays), (_loss_chunks(config, mesh),))


def update_program(config: Config, mesh: jax.sharding.Mesh) -> Program:
    """Return the update of a micro-batch."""
    b, n, P, T = _shapes(config)
    kept: dict[str, Any] = {}

    def build() -> Any:
        policy = make_policy(config, mesh)
        optimizer, scheduler = replace(config.optimizer, warmup_ratio=0.0), SchedulerConfig(kind="constant")
        updater = make_updater(config, policy, make_optimizer(optimizer), mesh, make_schedules(optimizer, scheduler, 1))
        settings = place_numbers(mesh, objective_settings(config.grpo))
        arguments = updater._arguments(settings, jnp.ones((), jnp.bool_))
        kept["update"] = updater._update._jitted
        kinds = updater.optimizer.wrt, nnx.filterlib.Not(updater.optimizer.wrt)
        states = nnx.state(policy, kinds[0]), nnx.state(updater.optimizer), nnx.state(policy, kinds[1])
        kept["specs"] = [jax.tree.leaves(nnx.get_partition_spec(state)) for state in states]
        return arguments

    with nnx.use_eager_sharding(False):  # type: ignore[no-untyped-call]
        *states, schedules, healthy, settings = jax.eval_shape(build)
    placed = []
    for state, specs in zip(states, kept["specs"], strict=True):
        leaves, structure = jax.tree.flatten(state)
        sharded = [
            jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=jax.sharding.NamedSharding(mesh, spec))
            for x, spec in zip(leaves, specs, strict=True)
        ]
        placed.append(jax.tree.unflatten(structure, sharded))
    numbers = rows(mesh, (n, T), jnp.float32)
    several = config.grpo.num_iterations > 1
    example = LossInputs(
        prompts=rows(mesh, (b, P), jnp.int32),
        prompt_lengths=rows(mesh, (b,), jnp.int32),
        tokens=rows(mesh, (n, T), jnp.int32),
        mask=rows(mesh, (n, T), jnp.bool_),
        advantages=rows(mesh, (n,), jnp.float32),
        weights=rows(mesh, (n,), jnp.float32),
        settings=_everywhere(settings, mesh),
        reference_logps=numbers if config.grpo.beta else None,
        sampled_logps=numbers,
        old_logps=numbers if several else None,
    )
    arguments = *placed, _everywhere(schedules, mesh), _everywhere(healthy, mesh), example
    return Program(lambda: kept["update"].lower(*arguments), (_loss_chunks(config, mesh),))
