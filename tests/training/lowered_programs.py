"""Programs of runs, lowered for accelerators; `test_lowered_programs.py` reads what this program prints.

    python -m tests.training.lowered_programs DIRECTORY [--compile]

Prints one JSON object: family, adapter and mesh → function → for each of its programs, what its arguments are. With
`--compile`, XLA's compiler for TPUs compiles those for one device too. It needs no TPU, but the package libtpu in the
version of JAX's extra `tpu`.
"""

import json
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np
from flax import nnx
from jax.experimental import topologies

from agent_tunix.config.schema import Config, ModelConfig
from agent_tunix.grpo.micro_batches import make_loss_inputs, place_micro_batches
from agent_tunix.grpo.reference import trained_kind
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy
from agent_tunix.policy.network import experts
from agent_tunix.policy.optimizer import make_optimizer
from agent_tunix.policy.schedules import make_schedules
from agent_tunix.sampling.sampler import Completions, Sampler
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.training.components import make_reference, make_teacher, make_updater
from tests.policy.support import make_larger
from tests.training import test_episodes

PLATFORMS = ("cuda", "tpu")
MESHES = ([1, 1, 1], [2, 2, 2])
# Those with layers that no other has; the rest are made of the same.
FAMILIES = ("qwen3", "qwen3_moe", "gemma4_text", "qwen3_5_text")
ADAPTERS: dict[str, dict[str, Any]] = {"plain": {}, "LoRA": {"lora_rank": 2, "remat": True}, "QLoRA": {"lora_rank": 2}}
QUANTIZATIONS = ("nf4", "int8")
COMPILES = "--compile" in sys.argv
# Prompts of a step, completions of each, tokens of a prompt and of a completion.
B, G, P, T = 4, 4, 8, 16

_jit = jax.jit


def lower(jitted: Any, *args: Any, **statics: Any) -> jax.export.Exported:
    """Lower a call for accelerators, which needs none. What only a CPU computes raises an error."""
    exported = jax.export.export(jitted, platforms=PLATFORMS)(*args, **statics)
    if COMPILES and exported.nr_devices == 1:
        compile_for_tpu(exported)
    return exported


def compile_for_tpu(exported: jax.export.Exported) -> None:
    """Compile a program of one device for a TPU v5e; print its name and the memory beside its arguments."""
    # The smallest topology has four chips.
    chip = topologies.get_topology_desc("v5e:2x2", "tpu").devices[0]
    place = jax.sharding.SingleDeviceSharding(chip)
    given = [
        jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=place)  # type: ignore[no-untyped-call]
        for one in exported.in_avals
    ]
    args, statics = jax.tree.unflatten(exported.in_tree, given)
    compiled = _jit(exported.call).trace(*args, **statics).lower(lowering_platforms=("tpu",)).compile()
    needed = compiled.memory_analysis().temp_size_in_bytes
    print(f"{exported.fun_name}: {needed / 1e6:.1f} MB", file=sys.stderr)


class LoweredFunction:
    """A stand-in for a function of `jax.jit`: it lowers each call and returns ones, so nothing is computed."""

    def __init__(self, programs: dict[str, Any], function: Any, options: dict[str, Any]) -> None:
        self._jitted = _jit(function, **options)
        self._place = options.get("out_shardings")
        self._programs = programs.setdefault(getattr(function, "__name__", "partial"), [])
        self._answers: dict[Any, Any] = {}

    def __call__(self, *args: Any, **statics: Any) -> Any:
        leaves, structure = jax.tree.flatten((args, statics))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self._jitted(*args, **statics)
        call = structure, tuple((np.shape(leaf), getattr(leaf, "dtype", leaf)) for leaf in leaves)
        if call not in self._answers:
            exported = lower(self._jitted, *args, **statics)
            self._programs.append(describe(exported))
            ones = jax.tree.unflatten(exported.out_tree, [np.ones(out.shape, out.dtype) for out in exported.out_avals])
            self._answers[call] = jax.device_put(ones, self._place)
        return self._answers[call]


def describe(exported: jax.export.Exported) -> dict[str, list[str]]:
    """Return the names of a program's arguments: all, those donated, and those with a sharding; and its kernels."""
    text = exported.mlir_module()
    signature = next(line for line in text.splitlines() if " @main(" in line).partition(" -> ")[0]
    found: dict[str, list[str]] = {"arguments": [], "donated": [], "sharded": []}
    found["kernels"] = re.findall(r'kernel_name = "(\w+)"', text)
    for argument in re.split(r"%arg\d+: ", signature)[1:]:
        name = argument.partition('loc("')[2].partition('"')[0]
        if name:  # the platform has none
            found["arguments"].append(name)
            found["donated"] += [name] * ("jax.buffer_donor" in argument or "tf.aliasing_output" in argument)
            found["sharded"] += [name] * ("sdy.sharding" in argument)
    return found


@contextmanager
def lowering() -> Iterator[dict[str, Any]]:
    """Lower what `jax.jit` would compile from now on; yields the programs by the names of their functions."""
    programs: dict[str, Any] = {}

    def lowered(function: Any, **options: Any) -> Any:
        return LoweredFunction(programs, function, options)

    jax.jit = lowered  # type: ignore[assignment]
    try:
        yield programs
    finally:
        jax.jit = _jit


def lower_run(directory: Path, config: Config, shape: list[int]) -> dict[str, Any]:
    """Lower the programs of a run of a model."""
    mesh = make_mesh(shape)
    with lowering() as programs:
        policy: Any = load_policy(directory, config.model, mesh)
        rates = make_schedules(config.optimizer, config.scheduler, 10, 1)
        updater = make_updater(config, policy, make_optimizer(config.optimizer), mesh, rates)
        reference = make_reference(config, policy)
        assert reference is not None
        teacher = make_teacher(config, directory, policy, reference, mesh)
        letters: Any = test_episodes.Letters()
        sampler = Sampler(policy, letters, mesh)
        for sampling in (SamplingParams(T), SamplingParams(T, greedy=True)):
            sampler.sample([[5] * P] * B, jax.random.key(0), sampling, num_generations=G, max_prompt_length=P)
        completions = Completions(
            prompt_tokens=np.ones((B * G, P), np.int32),
            prompt_lengths=np.full(B * G, P, np.int32),
            tokens=np.ones((B * G, T), np.int32),
            lengths=np.full(B * G, T, np.int32),
            ended=np.ones(B * G, np.bool_),
            texts=[""] * B * G,
            logps=np.zeros((B * G, T), np.float32),
        )
        placed = place_micro_batches(completions, config, mesh, reference.logps, teacher.judge)
        inputs, _ = make_loss_inputs(placed, completions, np.ones(B * G, np.float32), config, mesh)
        changing = len(jax.tree.leaves((nnx.state(policy, trained_kind(policy)), nnx.state(updater.optimizer))))
        updater.dispatch(inputs[0])
        test_episodes.sample(policy, mesh=mesh)
    return {**programs, "changing": changing}


def main() -> None:
    """Lower them all."""
    logging.getLogger("agent_tunix").setLevel(logging.WARNING)
    found = {}
    # So that experts sort the tokens of an update, but not those of sampling.
    experts.FEW_TOKENS = 32
    for number, family in enumerate(FAMILIES):
        directory = make_larger(Path(sys.argv[1]) / family, family)
        # All for the first family; the others share its projections.
        adapters = ADAPTERS if number == 0 else [[*ADAPTERS][number % len(ADAPTERS)]]
        if family == "qwen3_moe":  # experts are never quantised
            adapters = ["LoRA"]
        for adapter in adapters:
            config = Config()
            config.training.batch_size, config.training.micro_batch_size = B, B
            config.grpo.num_generations, config.grpo.beta = G, 0.1
            config.grpo.teacher, config.grpo.teacher_top_k = str(directory), 4
            # As on an accelerator: the default depends on the machine.
            config.model = ModelConfig(dtype="bfloat16", **ADAPTERS[adapter])
            if adapter == "QLoRA":
                config.model.quantization = QUANTIZATIONS[min(number, 1)]
            single = [MESHES[0]] if COMPILES else [MESHES[-1]]
            for shape in MESHES if (number, adapter) == (0, "plain") else single:
                found[f"{family}, {adapter}, {shape}"] = lower_run(directory, config, shape)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
