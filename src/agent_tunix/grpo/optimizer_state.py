"""The optimizer's state between two updates, whether or not it accumulates gradients.

`optax.MultiSteps` accumulates the gradients of micro-batches; it wraps the state of the optimizer proper.
"""

from typing import Any

import jax
from flax import nnx


def read_optimizer(optimizer: nnx.Optimizer[Any]) -> dict[str, Any]:
    """Return the state of the optimizer proper.

    Returns:
        `step`, the number of updates, and `opt_state`, if the optimizer has one.
    """
    state: Any = nnx.state(optimizer)
    step, accumulator = state["step"], _accumulator(state) or state
    if accumulator is not state:
        step = step.replace(accumulator["gradient_step"].get_value().astype(step.get_value().dtype))
    name = _state_name(accumulator, state)
    return {"step": step} | ({"opt_state": accumulator[name]} if name in accumulator else {})


def write_optimizer(optimizer: nnx.Optimizer[Any], values: dict[str, Any], accumulation: int) -> None:
    """Restore what `read_optimizer` returned.

    Args:
        optimizer: Optimizer to restore. It drops accumulated gradients.
        values: State of an optimizer of the same kind, which may accumulate over another number of micro-batches.
        accumulation: Micro-batches of an update.
    """
    state: Any = nnx.state(optimizer)
    accumulator, updates = _accumulator(state) or state, values["step"].get_value()
    if accumulator is not state:
        _clear(accumulator)
        done = accumulator["gradient_step"]
        accumulator["gradient_step"] = done.replace(updates.astype(done.get_value().dtype))
    if "opt_state" in values:
        accumulator[_state_name(accumulator, state)] = values["opt_state"]
    # Flax counts micro-batches.
    state["step"] = state["step"].replace(updates * accumulation)
    nnx.update(optimizer, state)


def reset_accumulation(optimizer: nnx.Optimizer[Any]) -> None:
    """Drop the gradients of micro-batches whose update has not happened."""
    state: Any = nnx.state(optimizer)
    if (accumulator := _accumulator(state)) is not None:
        # Flax has counted the micro-batches that are dropped.
        state["step"] = jax.tree.map(
            lambda step, mini_step: step - mini_step.astype(step.dtype),
            state["step"],
            state["step"].replace(accumulator["mini_step"].get_value()),
        )
        _clear(accumulator)
        nnx.update(optimizer, state)


def accumulated_mean(state: Any, gradients: Any) -> list[jax.Array]:
    """Return the mean of all gradients accumulated so far, as `optax.MultiSteps` computes it.

    Args:
        state: State of the optimizer before these gradients.
        gradients: Gradients of a micro-batch.
    """
    leaves: list[jax.Array] = jax.tree.leaves(gradients)
    if (accumulator := _accumulator(state)) is None:
        return leaves
    done, means = accumulator["mini_step"].get_value(), jax.tree.leaves(accumulator["acc_grads"])
    return [mean + (new - mean) / (done + 1) for mean, new in zip(means, leaves, strict=True)]


def _accumulator(state: Any) -> Any:
    """Return the state of `optax.MultiSteps`, or None without one."""
    return state["opt_state"] if "opt_state" in state and "acc_grads" in state["opt_state"] else None


def _state_name(accumulator: Any, state: Any) -> str:
    return "opt_state" if accumulator is state else "inner_opt_state"


def _clear(accumulator: Any) -> None:
    for name in ("mini_step", "acc_grads"):
        accumulator[name] = jax.tree.map(jax.numpy.zeros_like, accumulator[name])
