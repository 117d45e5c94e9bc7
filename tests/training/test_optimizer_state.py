"""Every optimiser inside the learner: what its steps report, and that its state survives a checkpoint."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agent_tunix.config.optimizers import OPTIMIZERS
from agent_tunix.config.schema import Config, OptimizerConfig
from agent_tunix.errors import CheckpointError
from agent_tunix.policy.optimizer import make_optimizer
from agent_tunix.training.checkpoints import Checkpoints
from agent_tunix.training.state import read_state, write_state
from tests.training.support import Bench, BenchMaker, assert_same, changed

ADVANTAGES = np.tile([1.0, -0.5, 0.25, -0.75], 4)
GROUPS = {
    "embedding": {"match": "embed_tokens", "freeze": True},
    "norms": {"match": "norm", "learning_rate_scale": 0.5},
}


def bench_of(make_bench: BenchMaker, optimizer: OptimizerConfig, **grpo: Any) -> Bench:
    def adjust(config: Config) -> None:
        config.optimizer = optimizer
        config.training.micro_batch_size = grpo.pop("micro_batch_size", None)
        config.grpo.beta = 0.0
        for name, value in grpo.items():
            setattr(config.grpo, name, value)

    # A rate that differs from update to update.
    rate = optimizer.learning_rate
    return make_bench(adjust, optimizer=make_optimizer(optimizer, lambda count: rate / (count + 1)))


def take_step(bench: Bench, step: int) -> dict[str, float | None]:
    """Metrics of a step with completions of its own and given advantages."""
    policy, finite, _ = bench.update(bench.sample(seed=step), ADVANTAGES)
    assert finite
    return policy


def number(value: float | None) -> float:
    assert value is not None
    return value


@pytest.mark.parametrize("groups", [{}, GROUPS], ids=["plain", "groups"])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_run_that_goes_on_from_a_checkpoint_is_the_unbroken_one(
    make_bench: BenchMaker, tmp_path: Path, kind: str, groups: dict[str, Any]
) -> None:
    optimizer = OptimizerConfig(kind=kind, learning_rate=1e-3, weight_decay=0.01, groups=groups)
    bench = bench_of(make_bench, optimizer, micro_batch_size=2)
    unbroken = [take_step(bench, step) for step in (1, 2, 3)]
    expected = bench.state()
    bench.reset()
    take_step(bench, 1)
    checkpoints = Checkpoints(tmp_path, max_to_keep=1)
    checkpoints.save(1, read_state(bench.learner), {})
    bench.reset()  # another process
    restored = checkpoints.restore_latest(read_state(bench.learner))
    assert restored is not None
    write_state(bench.learner, restored.state)
    assert [take_step(bench, step) for step in (2, 3)] == unbroken[1:]
    assert_same(bench.state(), expected)
    still = {name for name in expected["weights"] if name not in changed(expected, bench.initial)}
    assert still == {name for name in expected["weights"] if groups and "embed_tokens" in name}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_run_goes_on_with_another_number_of_micro_batches(make_bench: BenchMaker, kind: str) -> None:
    optimizer = OptimizerConfig(kind=kind, learning_rate=1e-3)
    whole, halves = (bench_of(make_bench, optimizer, micro_batch_size=size, num_iterations=1) for size in (None, 2))
    for bench, other in ((whole, halves), (halves, whole)):
        bench.reset()
        take_step(bench, 1)
        write_state(other.learner, jax.tree.map(jnp.copy, read_state(bench.learner)))
        assert_same(other.state(), bench.state())
        assert other.learner.num_updates == 1
        completions = bench.sample(seed=2)
        for one in (bench, other):
            one.update(completions, ADVANTAGES)
        assert bench.learner.num_updates == other.learner.num_updates == 2
        for name, found in other.state()["weights"].items():
            np.testing.assert_allclose(found, bench.state()["weights"][name], atol=2e-5)


def test_gradients_are_summed_up_only_where_an_update_has_several_micro_batches(make_bench: BenchMaker) -> None:
    for size, sums in ((None, False), (2, True)):
        bench = bench_of(make_bench, OptimizerConfig(), micro_batch_size=size)
        assert hasattr(bench.learner.rl_cluster.actor_trainer.optimizer.opt_state, "acc_grads") is sums
        assert not any("acc_grads" in name for name in read_state(bench.learner)["optimizer"])


def test_a_checkpoint_of_another_optimiser_is_refused(make_bench: BenchMaker, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, max_to_keep=1)
    checkpoints.save(1, read_state(bench_of(make_bench, OptimizerConfig(kind="sgd")).learner), {})
    with pytest.raises(CheckpointError, match="does not fit this model and optimiser"):
        checkpoints.restore_latest(read_state(bench_of(make_bench, OptimizerConfig(kind="adamw")).learner))


def distance(found: dict[str, np.ndarray], before: dict[str, np.ndarray], only: str = "") -> float:
    return float(np.sqrt(sum(((found[n].astype(float) - before[n]) ** 2).sum() for n in before if only in n)))


def norm(weights: dict[str, np.ndarray], only: str = "") -> float:
    return float(np.sqrt(sum((array.astype(float) ** 2).sum() for name, array in weights.items() if only in name)))


@pytest.mark.parametrize("micro_batch_size", [None, 2])
def test_the_update_norm_is_how_far_the_weights_went(make_bench: BenchMaker, micro_batch_size: int | None) -> None:
    bench = bench_of(make_bench, OptimizerConfig(learning_rate=1e-3), micro_batch_size=micro_batch_size)
    policy = take_step(bench, 1)
    moved = distance(bench.state()["weights"], bench.initial["weights"])
    assert policy["update_norm"] == pytest.approx(moved, rel=1e-3)
    assert policy["update_ratio"] == pytest.approx(moved / norm(bench.initial["weights"]), rel=1e-3)


def test_every_group_has_norms_of_its_own(make_bench: BenchMaker) -> None:
    bench = bench_of(make_bench, OptimizerConfig(learning_rate=1e-3, groups=GROUPS))
    policy = take_step(bench, 1)
    found, before = bench.state()["weights"], bench.initial["weights"]
    assert policy["update_norm/embedding"] == policy["update_ratio/embedding"] == 0.0
    moved = distance(found, before, "norm")
    assert policy["update_norm/norms"] == pytest.approx(moved, rel=1e-3)
    assert policy["update_ratio/norms"] == pytest.approx(moved / norm(before, "norm"), rel=1e-3)
    parts = [number(policy[f"update_norm/{name}"]) for name in ("embedding", "norms", "rest")]
    assert policy["update_norm"] == pytest.approx(float(np.linalg.norm(parts)), rel=1e-5)


def test_frozen_weights_are_not_in_the_norm_of_the_gradient(make_bench: BenchMaker) -> None:
    def grad_norm(groups: dict[str, Any]) -> float:
        optimizer = OptimizerConfig(kind="sgd", momentum=0.0, learning_rate=1.0, max_grad_norm=0.0, groups=groups)
        policy = take_step(bench_of(make_bench, optimizer), 1)
        if groups:  # at a rate of 1 the update is the gradient
            assert policy["grad_norm"] == pytest.approx(policy["update_norm"], rel=1e-3)
        return number(policy["grad_norm"])

    still = {"embedding": {"match": "embed_tokens", "freeze": True}}
    assert 0.0 < grad_norm(still) < grad_norm({})


@pytest.mark.parametrize("micro_batch_size", [None, 2])
def test_the_learner_counts_updates(make_bench: BenchMaker, micro_batch_size: int | None) -> None:
    """Gradient descent at rate 1 / (n + 1) moves the weights by that share of the gradient: the rate that is logged."""
    optimizer = OptimizerConfig(kind="sgd", momentum=0.0, learning_rate=1.0, max_grad_norm=0.01)
    bench = bench_of(make_bench, optimizer, num_iterations=1, micro_batch_size=micro_batch_size)
    for step in (1, 2, 3):
        policy = take_step(bench, step)
        assert bench.learner.num_updates == step
        assert policy["update_norm"] == pytest.approx(0.01 / step, rel=1e-3)


def test_the_learner_counts_the_updates_of_iterations(make_bench: BenchMaker) -> None:
    bench = bench_of(make_bench, OptimizerConfig(), num_iterations=2)
    take_step(bench, 1)
    assert bench.learner.num_updates == 2


def test_an_update_that_is_not_finite_has_no_norm_and_is_not_counted(make_bench: BenchMaker) -> None:
    bench = bench_of(make_bench, OptimizerConfig())
    policy, finite, _ = bench.update(bench.sample(), np.full(16, np.inf))
    assert not finite
    assert np.isnan([number(policy["update_norm"]), number(policy["update_ratio"])]).all()
    assert bench.learner.num_updates == 0


@pytest.mark.parametrize("groups", [{}, GROUPS], ids=["plain", "groups"])
def test_an_update_that_is_not_finite_in_the_midst_of_its_micro_batches_leaves_nothing(
    make_bench: BenchMaker, groups: dict[str, Any]
) -> None:
    optimizer = OptimizerConfig(kind="sgd", momentum=0.0, learning_rate=0.1, groups=groups)
    bench = bench_of(make_bench, optimizer, micro_batch_size=1, num_iterations=1)
    take_step(bench, 1)
    before = bench.state()
    third_of_four = np.where(np.arange(16) == 9, np.inf, ADVANTAGES)
    _, finite, applied = bench.update(bench.sample(seed=2), third_of_four)
    assert (finite, applied, bench.learner.num_updates) == (False, 0, 1)
    assert_same(bench.state(), before)
    take_step(bench, 3)
    after = bench.state()
    bench.reset()
    take_step(bench, 1)
    take_step(bench, 3)
    assert_same(bench.state(), after)
