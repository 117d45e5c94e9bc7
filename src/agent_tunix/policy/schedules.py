"""Learning rates over the updates of a run.

With N updates, of which the first W warm up, the rate at update u (from 0), as a share of the peak, is

- (u + 1) / W while u < W. The first update already learns, and the last update of the warm-up has the peak.
- afterwards, with x = (u - W) / (N - W) and f = `final_ratio`:
  cosine f + (1 - f)(1 + cos πx) / 2; linear f + (1 - f)(1 - x); constant 1;
  inverse_sqrt √(w / (w + u - W)) with w = max(W, 1);
- wsd: 1 until the last D = `decay_ratio` · N updates (fewer if the warm-up reaches into them). In these, with
  x = (u - (N - D)) / D, it is f + (1 - f) · shape(x), where shape is 1 - x, (1 + cos πx) / 2 or 1 - √x.

Every kind is a warm-up, then the peak, then a decay, and any of the three may be empty. Only the shape of the decay is
part of a compiled program. The numbers are its inputs, so that runs of other rates and lengths share the program.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax

from agent_tunix.config.optimizers import REST, filled, parameter_groups
from agent_tunix.config.schema import OptimizerConfig, SchedulerConfig
from agent_tunix.errors import ConfigError

# Name of a group of weights → function from the update number to the learning rate; `REST` for weights without a group.
Schedules = Mapping[str, optax.Schedule]

# Shape of a decay → function of u, the updates since the decay began, and 1 / D. It returns the share of the decay that
# is left. Multiplying by 1 / D instead of dividing by D rounds as XLA does where D is a constant.
_SHAPES: dict[str, Callable[[Any, Any], Any]] = {
    "linear": lambda u, inverse: 1.0 - u * inverse,
    "cosine": lambda u, inverse: 0.5 * (1.0 + jnp.cos(u * (jnp.pi * inverse))),
    "sqrt": lambda u, inverse: 1.0 - jnp.sqrt(u * inverse),
}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RateSchedule:
    """A function from the update number to the learning rate; a JAX pytree of its numbers.

    Attributes:
        shape: Shape of the decay: `linear`, `cosine`, `sqrt`, `inverse_sqrt`, or `constant` for none.
        peak: Rate after the warm-up.
        rise: Rate of the first update minus the peak.
        warmup: Updates of the warm-up.
        start: First update of the decay.
        length: Updates of the decay, at least 1.
        final_ratio: Rate at the end of the decay, as a share of the peak.
        scale: Factor of all rates.
    """

    shape: str = field(metadata={"static": True})
    peak: Any
    rise: Any
    warmup: Any
    start: Any
    length: Any
    final_ratio: Any
    scale: Any = 1.0

    def __call__(self, count: Any) -> jax.Array:
        """Return the rate of the update with this number, from 0."""
        last = jnp.maximum(self.warmup - 1, 1)
        warming = self.rise * (1.0 - jnp.clip(count, 0, last) * (1.0 / last)) + self.peak
        rate = jnp.where(count < self.start, self.peak, self._decayed(count - self.start))
        scaled: jax.Array = self.scale * jnp.where(count < self.warmup, warming, rate)
        return scaled

    def _decayed(self, since: Any) -> Any:
        if self.shape == "constant":
            return self.peak
        if self.shape == "inverse_sqrt":
            width = jnp.maximum(self.warmup, 1)
            return self.peak * jnp.sqrt(width / (width + since))
        left = _SHAPES[self.shape](jnp.clip(since, 0, self.length), 1.0 / self.length)
        return self.peak * ((1.0 - self.final_ratio) * left + self.final_ratio)


def make_schedules(
    optimizer: OptimizerConfig, scheduler: SchedulerConfig, num_updates: int, updates_per_step: int = 1
) -> dict[str, RateSchedule]:
    """Return the schedule of each group of weights that trains, and under `REST` that of the other weights.

    The arguments are those of `make_schedule`.
    """
    rest, peak = make_schedule(optimizer, scheduler, num_updates, updates_per_step), optimizer.learning_rate
    groups = [group for group in parameter_groups(optimizer) if not group.freeze]
    return {REST: rest} | {
        group.name: replace(rest, scale=group.learning_rate / peak if peak else 0.0) for group in groups
    }


def make_schedule(
    optimizer: OptimizerConfig, scheduler: SchedulerConfig, num_updates: int, updates_per_step: int = 1
) -> RateSchedule:
    """Return the schedule: a warm-up to the peak, then the shape that the scheduler selects.

    Args:
        optimizer: Peak and warm-up.
        scheduler: Shape after the warm-up.
        num_updates: Optimiser updates of the whole run, at least 1.
        updates_per_step: Updates on each batch of prompts. `warmup_steps` counts batches.

    Raises:
        ConfigError: The warm-up is as long as the run.
    """
    scheduler, peak = filled(scheduler), optimizer.learning_rate
    warmup = count_warmup(optimizer, num_updates, updates_per_step)
    decay, shape = num_updates - warmup, scheduler.kind
    if scheduler.kind == "wsd":
        decay = min(round((scheduler.decay_ratio or 0.0) * num_updates), decay)
        shape = scheduler.decay_shape or "linear"
    return RateSchedule(
        shape=shape,
        peak=float(peak),
        rise=peak / max(warmup, 1) - peak,
        warmup=warmup,
        start=num_updates - decay,
        length=max(decay, 1),
        final_ratio=float(scheduler.final_ratio or 0.0),
    )


def count_warmup(optimizer: OptimizerConfig, num_updates: int, updates_per_step: int = 1) -> int:
    """Return the number of warm-up updates, which is below `num_updates`.

    Raises:
        ConfigError: `warmup_steps` leaves no update after the warm-up.
    """
    if optimizer.warmup_steps is None:
        return min(round(optimizer.warmup_ratio * num_updates), num_updates - 1)
    warmup = optimizer.warmup_steps * updates_per_step
    if warmup >= num_updates:
        raise ConfigError(
            f"optimizer.warmup_steps must be below the {num_updates // updates_per_step} steps of the run, or the "
            f"peak is never reached, not {optimizer.warmup_steps}; lower it, or use optimizer.warmup_ratio"
        )
    return warmup
