"""Learning rates of every schedule against NumPy, over every update of a run."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.raising import raises
from tests.tiers import slow_after

from agent_tunix.config.schema import SCHEDULES, OptimizerConfig, SchedulerConfig
from agent_tunix.errors import ConfigError
from agent_tunix.policy.schedules import RateSchedule, count_warmup, make_schedule

PEAK = 0.4
SHAPES = {"linear": lambda x: 1 - x, "cosine": lambda x: (1 + np.cos(np.pi * x)) / 2, "sqrt": lambda x: 1 - np.sqrt(x)}


def rates(scheduler: SchedulerConfig, num_updates: int, updates_per_step: int = 1, **warmup: Any) -> np.ndarray:
    schedule = make_schedule(OptimizerConfig(learning_rate=PEAK, **warmup), scheduler, num_updates, updates_per_step)
    return np.asarray(schedule(jnp.arange(num_updates)))


def oracle(scheduler: SchedulerConfig, num_updates: int, warmup: int) -> np.ndarray:
    """The formulas of the module's docstring, update by update."""
    final, found = scheduler.final_ratio or 0.0, []
    decay = min(round((scheduler.decay_ratio or 0.0) * num_updates), num_updates - warmup)
    for update in range(num_updates):
        x = (update - warmup) / (num_updates - warmup)
        if update < warmup:
            share = (update + 1) / warmup
        elif scheduler.kind == "inverse_sqrt":
            width = max(warmup, 1)
            share = np.sqrt(width / (width + update - warmup))
        elif scheduler.kind == "wsd":
            x = (update - (num_updates - decay)) / decay if decay else -1.0
            share = 1.0 if x < 0 else final + (1 - final) * SHAPES[scheduler.decay_shape or ""](x)
        elif scheduler.kind == "constant":
            share = 1.0
        else:
            share = final + (1 - final) * SHAPES[scheduler.kind](x)
        found.append(PEAK * share)
    return np.array(found)


def schedulers() -> list[SchedulerConfig]:
    plain = [SchedulerConfig(kind=kind) for kind in ("constant", "inverse_sqrt")]
    plain += [SchedulerConfig(kind=kind, final_ratio=final) for kind in ("cosine", "linear") for final in (0.0, 0.1, 1)]
    wsd = [(0.0, 0.25, "linear"), (0.1, 0.25, "cosine"), (0.1, 0.9, "sqrt"), (0.1, 1.0, "linear"), (0.1, 0.0, "sqrt")]
    return plain + [
        SchedulerConfig(kind="wsd", final_ratio=final, decay_ratio=ratio, decay_shape=shape)
        for final, ratio, shape in wsd
    ]


def describe(scheduler: SchedulerConfig) -> str:
    return "-".join(str(value) for value in vars(scheduler).values() if value is not None)


@pytest.mark.parametrize("scheduler", schedulers(), ids=describe)
@pytest.mark.parametrize(("num_updates", "warmup"), slow_after(2, [(20, 4), (1, 0), (20, 0), (2, 1)]))
def test_rates_are_a_warm_up_and_then_the_schedulers(scheduler: SchedulerConfig, num_updates: int, warmup: int) -> None:
    found = rates(scheduler, num_updates, warmup_ratio=warmup / num_updates)
    np.testing.assert_allclose(found, oracle(scheduler, num_updates, warmup), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("num_updates", [1, 3, 30])
@pytest.mark.parametrize("warmup_ratio", [0.5, 1.0])
def test_every_update_learns_and_none_above_the_peak(kind: str, num_updates: int, warmup_ratio: float) -> None:
    found = rates(SchedulerConfig(kind=kind), num_updates, warmup_ratio=warmup_ratio)
    assert (found > 0).all()
    assert (found <= PEAK * (1 + 1e-6)).all()
    assert found.max() == pytest.approx(PEAK)


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_setting_that_is_left_out_has_the_documented_default(kind: str) -> None:
    defaults: dict[str, Any] = dict(SCHEDULES[kind])
    np.testing.assert_array_equal(
        rates(SchedulerConfig(kind=kind), 20), rates(SchedulerConfig(kind=kind, **defaults), 20)
    )


@pytest.mark.parametrize("kind", SCHEDULES)
def test_one_program_serves_every_rate_warm_up_and_length(kind: str) -> None:
    traced = []

    @jax.jit
    def compiled(schedule: RateSchedule, count: jax.Array) -> jax.Array:
        traced.append(count)
        return schedule(count)

    for peak, num_updates, warmup in ((PEAK, 20, 0.2), (2 * PEAK, 30, 0.0), (PEAK, 1, 0.0)):
        optimizer = OptimizerConfig(learning_rate=peak, warmup_ratio=warmup)
        schedule = make_schedule(optimizer, SchedulerConfig(kind=kind), num_updates)
        for update in range(num_updates):
            assert compiled(schedule, np.int32(update)) == pytest.approx(float(schedule(np.int32(update))), rel=1e-5)
    assert len(traced) == 1


def test_a_warm_up_in_steps_counts_the_updates_of_each_step() -> None:
    scheduler = SchedulerConfig(kind="constant")
    found = rates(scheduler, 20, updates_per_step=2, warmup_steps=3)
    np.testing.assert_allclose(found, oracle(scheduler, 20, warmup=6), rtol=1e-5)


def test_no_warm_up_in_steps_is_none_whatever_the_ratio() -> None:
    assert count_warmup(OptimizerConfig(warmup_ratio=0.5, warmup_steps=0), 20) == 0


@pytest.mark.parametrize("steps", [10, 11])
def test_a_warm_up_as_long_as_the_run_is_refused(steps: int) -> None:
    with raises(ConfigError, "invalid_config"):
        make_schedule(OptimizerConfig(warmup_steps=steps), SchedulerConfig(), 20, updates_per_step=2)
