"""What keeps the frozen base of an adapter in memory once, against two copies that Tunix 0.1.7 makes of it.

`tests/policy/test_sharing.py` holds both repairs, and the second defect itself.
"""

import functools
from typing import Any

import jax
from flax import nnx


def release_anchor(cluster: Any) -> None:
    """Let go of the weights that the cluster has kept beside the policy's.

    Defect: a copy of the whole policy in host memory, on a CPU in the only memory there is, for the log-probabilities
    of another loop than ours.
    """
    cluster._anchor_policy_state = None


def update_trained_only(trainer: Any, mesh: jax.sharding.Mesh) -> None:
    """Make the trainer's step take frozen weights and give back none.

    Defect: the compiled step gives back every weight, so that the first one puts a copy of the frozen base into the
    policy, apart from the one that the reference has. Weights that train and the optimiser's state are donated, which
    spares a second copy of them. To be called last, when the step is what it will be.

    The trainer gains `compile_step`, which compiles the step for inputs, given as arrays or as their shapes, and does
    nothing else.
    """
    model, optimizer = trainer.model, trainer.optimizer
    wrt = optimizer.wrt
    step = trainer.create_train_step_fn()
    _place_optimizer(optimizer, mesh)
    model_graph = nnx.graphdef(model)
    optimizer_graph = nnx.graphdef(optimizer)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def update(trained: Any, moments: Any, frozen: Any, inputs: Any) -> Any:
        model: Any = nnx.merge(model_graph, trained, frozen)
        optimizer: Any = nnx.merge(optimizer_graph, moments)
        told = step(model, optimizer, inputs)
        return told, nnx.state(model, wrt), nnx.state(optimizer)

    def train_step(inputs: Any) -> Any:
        trained, frozen = nnx.split_state(nnx.state(model), wrt, ...)
        told, trained, moments = update(trained, nnx.state(optimizer), frozen, inputs)
        nnx.update(model, trained)
        nnx.update(optimizer, moments)
        return told

    def compile_step(inputs: Any) -> None:
        trained, frozen = nnx.split_state(nnx.state(model), wrt, ...)
        update.lower(trained, nnx.state(optimizer), frozen, inputs).compile()

    trainer._jitted_train_step_fn = train_step
    trainer.compile_step = compile_step


def _place_optimizer(optimizer: Any, mesh: jax.sharding.Mesh) -> None:
    """Divide the optimiser's state over the mesh, as its first step would find it divided after it.

    Tunix's own way compiles a program for each shape.
    """
    state = nnx.state(optimizer, nnx.optimizer.OptState)
    shardings = jax.tree.map(lambda spec: jax.sharding.NamedSharding(mesh, spec), nnx.get_partition_spec(state))
    nnx.update(optimizer, jax.device_put(state, shardings))
