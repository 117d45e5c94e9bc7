"""What keeps the frozen base of an adapter in memory once, against two copies that Tunix 0.1.7 makes of it.

`tests/policy/test_sharing.py` holds both repairs, and the second defect itself.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

from agent_tunix.policy.mesh import sharding_over
from agent_tunix.policy.programs import Call, Programs
from agent_tunix.policy.variables import Variables, held_by


def release_anchor(cluster: Any) -> None:
    """Let go of the weights that the cluster has kept beside the policy's.

    Defect: a copy of the whole policy in host memory, on a CPU in the only memory there is, for the log-probabilities
    of another loop than ours.
    """
    cluster._anchor_policy_state = None


def update_trained_only(trainer: Any, mesh: jax.sharding.Mesh, programs: Programs, name: str = "update") -> None:
    """Make the trainer's step take frozen weights and give back none.

    Defect: the compiled step gives back every weight, so that the first one puts a copy of the frozen base into the
    policy, apart from the one that the reference has. Weights that train and the optimiser's state are donated, which
    spares a second copy of them. To be called last, when the step is what it will be.

    The step is `train_step(inputs, healthy=None)`. `healthy` is `aux["healthy"]` of the micro-batch before, so that
    those of one training step can all be begun before any of them is looked at: after one that was not finite the
    others change nothing.

    The trainer gains `compile_step`, which is `Programs.prepare` of the step's program for inputs, given as arrays or
    as their shapes.

    Args:
        trainer: Whose step it is.
        mesh: Where the policy lies.
        programs: Has the step's compiled programs.
        name: Theirs: that of no other step of a run of the same configuration.
    """
    model, optimizer = trainer.model, trainer.optimizer
    wrt = optimizer.wrt
    step = trainer.create_train_step_fn()
    _place_optimizer(optimizer, mesh)
    model_graph, optimizer_graph = nnx.graphdef(model), nnx.graphdef(optimizer)
    trained, moments = Variables(model, wrt), Variables(optimizer)
    frozen = Variables(model, nnx.filterlib.Not(wrt))
    at_first = jax.device_put(np.True_, sharding_over(mesh))

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def update(trained_arrays: Any, moment_arrays: Any, frozen_arrays: Any, healthy: Any, inputs: Any) -> Any:
        model: Any = nnx.merge(model_graph, trained.state(trained_arrays), frozen.state(frozen_arrays))
        optimizer: Any = nnx.merge(optimizer_graph, moments.state(moment_arrays))
        told = step(model, optimizer, inputs, healthy)
        return told, held_by(nnx.state(model, wrt)), held_by(nnx.state(optimizer))

    def call(inputs: Any, healthy: Any) -> Call:
        shapes = tuple(leaf.shape for leaf in jax.tree.leaves(inputs))
        return Call(name, update, (trained.read(), moments.read(), frozen.read(), healthy, inputs), shapes=shapes)

    def train_step(inputs: Any, healthy: Any = None) -> Any:
        told, weights, state = programs.run(call(inputs, at_first if healthy is None else healthy))
        trained.write(weights)
        moments.write(state)
        return told

    def compile_step(inputs: Any, traced: Callable[[], None]) -> None:
        programs.prepare(call(inputs, at_first), traced)

    trainer._jitted_train_step_fn = train_step
    trainer.compile_step = compile_step


def _place_optimizer(optimizer: Any, mesh: jax.sharding.Mesh) -> None:
    """Divide the optimiser's state over the mesh, as its first step would find it divided after it.

    Tunix's own way compiles a program for each shape.
    """
    state = nnx.state(optimizer, nnx.optimizer.OptState)
    shardings = jax.tree.map(lambda spec: jax.sharding.NamedSharding(mesh, spec), nnx.get_partition_spec(state))
    nnx.update(optimizer, jax.device_put(state, shardings))
