"""Learning rates over the updates of a run.

With N updates, of which the first W warm up, the rate at update u (from 0), as a share of the peak, is

- (u + 1) / W while u < W. The first update already learns, and the last update of the warm-up has the peak.
- afterwards, with x = (u - W) / (N - W) and f = `final_ratio`:
  cosine f + (1 - f)(1 + cos πx) / 2; linear f + (1 - f)(1 - x); constant 1;
  inverse_sqrt √(w / (w + u - W)) with w = max(W, 1);
- wsd: 1 until the last D = `decay_ratio` · N updates (fewer if the warm-up reaches into them). In these, with
  x = (u - (N - D)) / D, it is f + (1 - f) · shape(x), where shape is 1 - x, (1 + cos πx) / 2 or 1 - √x.
"""

import jax.numpy as jnp
import optax

from agent_tunix.config.optimizers import filled
from agent_tunix.config.schema import OptimizerConfig, SchedulerConfig
from agent_tunix.errors import ConfigError


def make_schedule(
    optimizer: OptimizerConfig, scheduler: SchedulerConfig, num_updates: int, updates_per_step: int = 1
) -> optax.Schedule:
    """Return the schedule: a warm-up to the peak, then the shape that the scheduler selects.

    Args:
        optimizer: Peak and warm-up.
        scheduler: Shape after the warm-up.
        num_updates: Optimiser updates of the whole run, at least 1.
        updates_per_step: Updates on each batch of prompts. `warmup_steps` counts batches.

    Raises:
        ConfigError: The warm-up is as long as the run.
    """
    peak = optimizer.learning_rate
    warmup = count_warmup(optimizer, num_updates, updates_per_step)
    decay = _after_warmup(filled(scheduler), peak, warmup, num_updates)
    if warmup == 0:
        return decay
    # The ramp begins at peak / warmup, not at 0, so that the first update learns.
    ramp = optax.linear_schedule(peak / warmup, peak, warmup - 1) if warmup > 1 else optax.constant_schedule(peak)
    return optax.join_schedules([ramp, decay], [warmup])


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
            f"optimizer.warmup_steps {optimizer.warmup_steps} must be below the {num_updates // updates_per_step} steps"
            f" of the run, or the peak would never be held; lower it, or use optimizer.warmup_ratio",
            code="warmup_too_long",
        )
    return warmup


def _after_warmup(scheduler: SchedulerConfig, peak: float, warmup: int, num_updates: int) -> optax.Schedule:
    after = max(num_updates - warmup, 1)
    final = scheduler.final_ratio or 0.0
    if scheduler.kind == "cosine":
        return optax.cosine_decay_schedule(peak, after, alpha=final)
    if scheduler.kind == "linear":
        return optax.linear_schedule(peak, peak * final, after)
    if scheduler.kind == "inverse_sqrt":
        width = max(warmup, 1)
        return lambda count: peak * jnp.sqrt(width / (width + count))
    if scheduler.kind == "wsd":
        decay = min(round((scheduler.decay_ratio or 0.0) * num_updates), after)
        stable = optax.constant_schedule(peak)
        if decay == 0:
            return stable
        return optax.join_schedules([stable, _final_decay(scheduler, peak, decay)], [after - decay])
    return optax.constant_schedule(peak)


def _final_decay(scheduler: SchedulerConfig, peak: float, length: int) -> optax.Schedule:
    """Return the decay from the peak to its `final_ratio` over `length` updates."""
    final = scheduler.final_ratio or 0.0
    if scheduler.decay_shape == "cosine":
        return optax.cosine_decay_schedule(peak, length, alpha=final)
    if scheduler.decay_shape == "sqrt":
        # Joined schedules are also evaluated outside their own part, with a count below 0.
        return lambda count: peak * (final + (1 - final) * (1 - jnp.sqrt(jnp.clip(count / length, 0.0, 1.0))))
    return optax.linear_schedule(peak, peak * final, length)
