"""Optimisers inside the learner: what their steps report, and that their state survives a checkpoint.

`tests/policy/test_optimizer.py` has each optimiser by itself.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agent_tunix.config.schema import Config, OptimizerConfig, SchedulerConfig
from agent_tunix.errors import CheckpointError
from agent_tunix.policy.optimizer import make_optimizer
from agent_tunix.policy.schedules import make_schedules
from agent_tunix.runs.weights.checkpoints import Checkpoints
from tests.raising import raises
from tests.training.support import Bench, BenchMaker, assert_same, changed

pytestmark = pytest.mark.slow

ADVANTAGES = np.tile([1.0, -0.5, 0.25, -0.75], 4)
GROUPS = {
    "embedding": {"match": "embed_tokens", "freeze": True},
    "norms": {"match": "norm", "learning_rate_scale": 0.5},
}
RATE = 0.05
NUM_UPDATES = 4


def bench_of(make_bench: BenchMaker, optimizer: OptimizerConfig, micro_batch_size: int | None = None) -> Bench:
    def adjust(config: Config) -> None:
        config.optimizer = optimizer
        config.training.micro_batch_size = micro_batch_size
        config.grpo.num_iterations = 1
        config.grpo.beta = 0.0

    # A rate that differs from update to update.
    schedules = make_schedules(replace(optimizer, warmup_ratio=0.0), SchedulerConfig(kind="linear"), NUM_UPDATES)
    return make_bench(adjust, optimizer=make_optimizer(optimizer), schedules=schedules)


@pytest.fixture(scope="module")
def adamw(make_bench: BenchMaker) -> Bench:
    return bench_of(make_bench, OptimizerConfig(learning_rate=1e-3))


@pytest.fixture(scope="module")
def sgd(make_bench: BenchMaker) -> Bench:
    """Plain gradient descent in four micro-batches an update, with groups."""
    groups = {"embedding": GROUPS["embedding"], "norms": {"match": "norm"}}
    optimizer = OptimizerConfig(kind="sgd", momentum=0.0, learning_rate=RATE, max_grad_norm=0.0, groups=groups)
    return bench_of(make_bench, optimizer, micro_batch_size=1)


def take_step(bench: Bench, step: int) -> dict[str, float | None]:
    """Metrics of a step with completions of its own and given advantages."""
    policy, finite, _ = bench.update(bench.sample(seed=step), ADVANTAGES)
    assert finite
    return policy


def number(value: float | None) -> float:
    assert value is not None
    return value


def test_a_run_that_goes_on_from_a_checkpoint_is_the_unbroken_one(make_bench: BenchMaker, tmp_path: Path) -> None:
    """Muon with a frozen group has the least usual state."""
    optimizer = OptimizerConfig(kind="muon", learning_rate=1e-3, weight_decay=0.01, groups=GROUPS)
    bench = bench_of(make_bench, optimizer, micro_batch_size=2)
    unbroken = [take_step(bench, step) for step in (1, 2, 3)]
    expected = bench.state()
    bench.reset()
    take_step(bench, 1)
    checkpoints = Checkpoints(tmp_path, max_to_keep=1)
    checkpoints.save(1, bench.read(), {})
    bench.reset()  # another process
    restored = checkpoints.restore_latest(bench.read())
    assert restored is not None
    bench.write(restored.state)
    assert [take_step(bench, step) for step in (2, 3)] == unbroken[1:]
    assert_same(bench.state(), expected)
    still = {name for name in expected["weights"] if name not in changed(expected, bench.initial)}
    assert still == {name for name in expected["weights"] if "embed_tokens" in name}


def test_a_checkpoint_of_another_optimiser_is_refused(adamw: Bench, sgd: Bench, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, max_to_keep=1)
    checkpoints.save(1, sgd.read(), {})
    with raises(CheckpointError, "checkpoint_mismatch"):
        checkpoints.restore_latest(adamw.read())


def distance(found: dict[str, np.ndarray], before: dict[str, np.ndarray], only: str = "") -> float:
    return float(np.sqrt(sum(((found[n].astype(float) - before[n]) ** 2).sum() for n in before if only in n)))


def norm(weights: dict[str, np.ndarray], only: str = "") -> float:
    return distance(weights, {name: np.zeros_like(array) for name, array in weights.items()}, only)


def test_every_group_has_norms_of_its_own(sgd: Bench) -> None:
    policy = take_step(sgd, 1)
    found, before = sgd.state()["weights"], sgd.initial["weights"]
    assert policy["update_norm/embedding"] == policy["update_ratio/embedding"] == 0.0
    moved = distance(found, before, "norm")
    assert policy["update_norm/norms"] == pytest.approx(moved, rel=1e-3)
    assert policy["update_ratio/norms"] == pytest.approx(moved / norm(before, "norm"), rel=1e-3)
    parts = [number(policy[f"update_norm/{name}"]) for name in ("embedding", "norms", "rest")]
    assert policy["update_norm"] == pytest.approx(float(np.linalg.norm(parts)), rel=1e-5)
    assert policy["update_norm"] == pytest.approx(distance(found, before), rel=1e-3)
    assert policy["update_ratio"] == pytest.approx(distance(found, before) / norm(before), rel=1e-3)
    sgd.reset()


def test_the_learner_counts_updates_and_frozen_weights_are_not_in_the_norm_of_the_gradient(sgd: Bench) -> None:
    """Gradient descent moves the weights by as large a share of the gradient as the rate of the update is."""
    for step in (1, 2, 3):
        policy = take_step(sgd, step)
        assert sgd.updater.num_updates == step
        rate = RATE * (1 - (step - 1) / NUM_UPDATES)
        assert policy["update_norm"] == pytest.approx(rate * number(policy["grad_norm"]), rel=1e-3)
    sgd.reset()


def test_an_update_that_is_not_finite_in_the_midst_of_its_micro_batches_leaves_nothing(sgd: Bench) -> None:
    take_step(sgd, 1)
    before = sgd.state()
    third_of_four = np.where(np.arange(16) == 9, np.inf, ADVANTAGES)
    _, finite, applied = sgd.update(sgd.sample(seed=2), third_of_four)
    assert (finite, applied, sgd.updater.num_updates) == (False, 0, 1)
    assert_same(sgd.state(), before)
    take_step(sgd, 3)
    after = sgd.state()
    sgd.reset()
    take_step(sgd, 1)
    take_step(sgd, 3)
    assert_same(sgd.state(), after)
    sgd.reset()
