"""Optimizer updates of the policy, by Tunix's `PeftTrainer`.

`PeftTrainer` differentiates the loss and applies the optimizer. Around it this module

- refuses updates that are not finite: neither weights nor the optimizer's state change, and the updates that were
  dispatched after it change nothing either;
- can measure a step without updating;
- measures each update;
- keeps the frozen base of an adapter out of the program's results, so that policy and reference share one copy, and
  donates the arrays that change, so that no second copy of them exists.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from tunix.sft import peft_trainer

from agent_tunix.grpo.optimizer_state import accumulated_mean, reset_accumulation
from agent_tunix.policy import compat
from agent_tunix.policy.mesh import fetch, place_numbers, sharding_over
from agent_tunix.policy.schedules import RateSchedule
from agent_tunix.policy.variables import Variables, held_by
from agent_tunix.startup.compiled_function import CompiledFunction

# Takes the policy and a micro-batch; returns the loss and statistics by name.
Loss = Callable[[Any, Any], tuple[jax.Array, dict[str, jax.Array]]]


class PolicyUpdater:
    """Updater that applies the gradients of a loss to a policy.

    Args:
        policy: Policy to train. With an adapter, only the adapter trains.
        optimizer: Optimizer to apply.
        loss: Loss of a micro-batch; the gradient of an update is the mean over its micro-batches.
        mesh: Mesh of the policy.
        accumulation: Micro-batches of an update.
        labels: Function from a tree of weights to the name of each weight's parameter group; None without groups.
        frozen: Names of the groups that do not train.
        schedules: Learning rates of each group, for an optimizer of `make_optimizer`.

    Attributes:
        policy: The policy.
        optimizer: Its optimizer and the optimizer's state.
        accumulation: Micro-batches of an update.
    """

    def __init__(
        self,
        policy: nnx.Module,
        optimizer: optax.GradientTransformation,
        loss: Loss,
        mesh: jax.sharding.Mesh,
        *,
        accumulation: int = 1,
        labels: Callable[[Any], Any] | None = None,
        frozen: Collection[str] = (),
        schedules: Mapping[str, RateSchedule] | None = None,
    ) -> None:
        compat.check_version()
        # On one device, one program creates all arrays. On several devices the state is laid out like the weights.
        optimizer = optax.GradientTransformationExtraArgs(
            jax.jit(optimizer.init) if mesh.size == 1 else optimizer.init,
            optax.with_extra_args_support(optimizer).update,
        )
        # MultiSteps costs as much memory as the weights that train, so a single micro-batch does not use it.
        config = peft_trainer.TrainingConfig(
            eval_every_n_steps=1, gradient_accumulation_steps=None if accumulation == 1 else accumulation
        )
        self._trainer = peft_trainer.PeftTrainer(policy, optimizer, config)
        self.policy = policy
        self.optimizer: nnx.Optimizer[Any] = self._trainer.optimizer
        self.accumulation = accumulation
        self._labels, self._frozen = labels, frozen
        self._mesh = mesh
        # These are inputs of the program, so that it serves every learning rate and number of updates.
        self._schedules = place_numbers(mesh, dict(schedules or {}))
        self._place_optimizer()
        self.use_loss(loss)

    @property
    def num_updates(self) -> int:
        """Number of optimizer updates so far, including those before resuming."""
        return int(self.optimizer.step.get_value()) // self.accumulation

    def use_loss(self, loss: Loss) -> None:
        """Train by another loss from now on."""
        self._trainer.with_loss_fn(loss, has_aux=True).with_gen_model_input_fn(lambda example: {"example": example})
        wrt = self.optimizer.wrt
        policy_graph, optimizer_graph = nnx.graphdef(self.policy), nnx.graphdef(self.optimizer)
        self._trained, self._moments = Variables(self.policy, wrt), Variables(self.optimizer)
        self._base = Variables(self.policy, nnx.filterlib.Not(wrt))
        trained, moments, base = self._trained, self._moments, self._base

        def update(
            trained_arrays: Any, moment_arrays: Any, base_arrays: Any, schedules: Any, healthy: Any, example: Any
        ) -> Any:
            policy: Any = nnx.merge(policy_graph, trained.state(trained_arrays), base.state(base_arrays))
            optimizer: Any = nnx.merge(optimizer_graph, moments.state(moment_arrays))
            record = self._guarded_step(policy, optimizer, schedules, example, healthy)
            return record, held_by(nnx.state(policy, wrt)), held_by(nnx.state(optimizer))

        self._update = CompiledFunction(update, donate_argnums=(0, 1))

    def measure(self, examples: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the records of `apply` for one pass that changes neither weights nor the optimizer's state.

        The norms of gradient and update are those of an update that does not happen.
        """
        untouched = jax.device_put(np.False_, sharding_over(self._mesh))
        return list(_until_failure(fetch([self.dispatch(example, untouched) for example in examples])))

    def apply(self, examples: Sequence[Any], num_passes: int = 1) -> list[dict[str, Any]]:
        """Train on the micro-batches of a step.

        All updates are dispatched before the first result is read. An update that is not finite ends the step: the
        device skips those that follow.

        Args:
            examples: Micro-batches of the step.
            num_passes: Number of passes over them.

        Returns:
            One record for each micro-batch, up to the first that is not finite: the statistics of the loss and those
            of `_guarded_step`.
        """
        dispatched: list[dict[str, Any]] = []
        for example in itertools.chain.from_iterable(itertools.repeat(examples, num_passes)):
            dispatched.append(self.dispatch(example, dispatched[-1]["healthy"] if dispatched else None))
        records = list(_until_failure(fetch(dispatched)))
        if not records[-1]["finite"]:
            reset_accumulation(self.optimizer)
        return records

    def dispatch(self, example: Any, healthy: jax.Array | None = None) -> dict[str, Any]:
        """Begin the update of one micro-batch.

        Args:
            example: The micro-batch.
            healthy: `healthy` of the micro-batch before it; None for the first of a step. If False, nothing changes.
        """
        record, weights, state = self._update(*self._arguments(example, healthy))
        self._trained.write(weights)
        self._moments.write(state)
        metrics: dict[str, Any] = record
        return metrics

    def compile_ahead(self, executor: Executor, example: Any) -> None:
        """Begin to compile the update of a micro-batch; see `CompiledFunction.compile_ahead`."""
        self._update.compile_ahead(executor, *self._arguments(example, None))

    def _arguments(self, example: Any, healthy: jax.Array | None) -> tuple[Any, ...]:
        if healthy is None:
            healthy = jax.device_put(np.True_, sharding_over(self._mesh))
        return self._trained.read(), self._moments.read(), self._base.read(), self._schedules, healthy, example

    def _guarded_step(self, policy: Any, optimizer: Any, schedules: Any, example: Any, healthy: Any) -> dict[str, Any]:
        """Update policy and optimizer, unless this micro-batch or one before it is not finite.

        Tunix applies a NaN gradient like any other.

        Returns:
            The loss's statistics, and `loss`; `finite`, True if loss and gradient are finite; `healthy`, True if this
            and all micro-batches before it in the step are finite; `grad_norm`, the norm of the mean gradient
            accumulated so far, without frozen weights; `update_norm` and `weight_norm`, the norms of the change of the
            weights (NaN if not finite) and of the weights before it, by parameter group ("" for all weights).
        """
        before, before_state = nnx.state(policy, optimizer.wrt), nnx.state(optimizer)
        before, before_state = jax.tree.map(lambda x: x, (before, before_state))
        names = jax.tree.leaves(self._labels(before)) if self._labels else [""] * len(jax.tree.leaves(before))
        recorder = _GradientRecorder(optimizer, schedules)
        loss, statistics, grad_norm = self._trainer.create_train_step_fn()(policy, recorder, example)
        finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
        healthy = finite & healthy
        gradients = accumulated_mean(before_state, recorder.gradients)
        # XLA fuses these reductions with the subtraction, so that the weights are not copied.
        added = jax.tree.map(
            lambda new, old: jnp.where(finite, _sum_of_squares(new - old), jnp.nan),
            nnx.state(policy, optimizer.wrt),
            before,
        )

        def keep(new: Any, old: Any) -> Any:
            return jax.tree.map(lambda n, o: jnp.where(healthy, n, o), new, old)

        nnx.update(policy, keep(nnx.state(policy, optimizer.wrt), before))
        nnx.update(optimizer, keep(nnx.state(optimizer), before_state))
        return {
            **statistics,
            "loss": loss,
            "finite": finite,
            "healthy": healthy,
            "grad_norm": jnp.sqrt(
                sum(
                    _sum_of_squares(gradient)
                    for gradient, name in zip(gradients, names, strict=True)
                    if name not in self._frozen
                )
            ),
            "update_norm": _norms(jax.tree.leaves(added), names),
            "weight_norm": _norms([_sum_of_squares(weight) for weight in jax.tree.leaves(before)], names),
        }

    def _place_optimizer(self) -> None:
        """Lay the optimizer's state out over the mesh as an update would. This saves a second compilation."""
        state = nnx.state(self.optimizer, nnx.optimizer.OptState)
        specs = nnx.get_partition_spec(state)
        shardings = jax.tree.map(lambda spec: jax.sharding.NamedSharding(self._mesh, spec), specs)
        nnx.update(self.optimizer, jax.device_put(state, shardings))


class _GradientRecorder:
    """An optimizer that remembers the gradients it was given, and applies them with given schedules."""

    def __init__(self, optimizer: nnx.Optimizer[Any], schedules: Any) -> None:
        self._optimizer, self._schedules = optimizer, schedules
        self.gradients: Any = None

    def update(self, policy: nnx.Module, gradients: Any) -> None:
        self.gradients = gradients
        self._optimizer.update(policy, gradients, schedules=self._schedules)


def _until_failure(records: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Yield the records up to the first that is not finite."""
    for record in records:
        yield record
        if not record["finite"]:
            return


def _sum_of_squares(array: Any) -> Any:
    return (array.astype(jnp.float32) ** 2).sum()


def _norms(squares: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """Return norms by group, and under "" that of all weights."""
    norms = {"": jnp.sqrt(sum(squares))}
    for name in dict.fromkeys(names):
        if name:
            norms[name] = jnp.sqrt(sum(s for s, own in zip(squares, names, strict=True) if own == name))
    return norms
