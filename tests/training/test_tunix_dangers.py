"""Tunix's dangers that no other file holds, and proofs that a repair is still needed: mended upstream, they fail.

Where the others are held: rope in tests/policy/test_compat.py, sampling keys, the end-of-sequence token and
greedy sampling in test_rollout.py, unscored completions and arguments of rewards in test_bridge.py, resuming and the
number of steps in test_run.py, over-long prompts in tests/data.
"""

import functools
import sys
from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax import nnx
from jax._src import monitoring
from tunix.rl import common, function_registry, reward_manager
from tunix.rl.grpo import grpo_learner
from tunix.sft import metrics_logger

from agent_tunix.config.checks import check
from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError
from agent_tunix.policy import compat
from agent_tunix.training.bridge import estimate_advantages
from agent_tunix.grpo.losses import KL_ESTIMATORS
from agent_tunix.grpo.loss import policy_loss
from tests.training.support import Bench, BenchMaker

pytestmark = pytest.mark.slow


def make_still(make_bench: BenchMaker, **generation: Any) -> Bench:
    """μ = 2, learning rate 0."""

    def adjust(config: Config) -> None:
        config.grpo.num_iterations = 2
        config.grpo.beta = 0.3
        for name, value in generation.items():
            setattr(config.generation, name, value)

    return make_bench(adjust, optimizer=optax.sgd(0.0))


@pytest.fixture(scope="module")
def still(make_bench: BenchMaker) -> Bench:
    """At the temperature 0.7."""
    return make_still(make_bench)


def test_at_learning_rate_0_every_importance_ratio_is_one(make_bench: BenchMaker) -> None:
    """Tunix's own engine leaves the temperature out of the old log-probabilities: 1.146 at 0.7."""
    still = make_still(make_bench, temperature=1.5, top_k=20, top_p=0.8)
    completions = still.sample()
    learner = still.learner
    example = still.example(completions, np.ones(16))
    # The sampler's own, of the same distribution, before top-k and top-p.
    assert np.array_equal(example.old_per_token_logps, completions.logps[:, : example.completion_ids.shape[1]])
    with compat.entered(learner._mesh()):
        train_step, _ = learner.rl_cluster.actor_trainer.jit_train_and_eval_step(cache_nnx_graph=True)
        for _ in range(2):
            _, aux, _ = train_step(example)
            assert float(aux["ratio_max"]) == pytest.approx(1.0, abs=5e-5)  # two programs' rounding
            assert float(aux["ratio_mean"]) == pytest.approx(1.0, abs=1e-6)
            assert float(aux["kl"]) == pytest.approx(0.0, abs=1e-9)


def test_tunix_still_defaults_to_k1_which_cannot_be_configured() -> None:
    config = Config()
    config.grpo.kl_estimator = grpo_learner.GRPOConfig().kl_loss_mode
    assert config.grpo.kl_estimator == "kl"
    with pytest.raises(ConfigError, match=r"grpo.kl_estimator must be one of"):
        check(config)


@pytest.mark.parametrize("estimator", ["low_var_kl", "mse_kl"])
def test_our_estimators_are_those_that_tunix_calls_so(estimator: str) -> None:
    logps, reference = jax.numpy.array([[-1.0, -2.0]]), jax.numpy.array([[-1.5, -1.0]])
    found = common.compute_kl_divergence(logps, reference, method=estimator)
    np.testing.assert_allclose(found, KL_ESTIMATORS[estimator](logps, reference), rtol=1e-5)


def test_our_objective_has_the_value_and_gradient_of_tunixs_own_loss(still: Bench) -> None:
    """The two are meant to be the same for GRPO, one micro-batch, and completions that all have a token."""
    bench = still
    model = bench.learner.rl_cluster.actor_trainer.model
    example = bench.example(bench.sample(), np.tile([1.0, -0.5, 0.25, -0.75], 4))
    example = example.replace(
        old_per_token_logps=example.old_per_token_logps - 0.3 * (example.advantages[:, None] > 0.5)
    )
    ours = bench.learner.algo_config
    tunixs = grpo_learner.GRPOConfig(num_generations=4, beta=0.3, kl_loss_mode="low_var_kl", epsilon=0.2)
    tunixs.temperature = ours.temperature
    prompts = jax.numpy.repeat(example.prompt_ids, 4, axis=0)  # Tunix has each completion with a prompt of its own
    found = {
        name: nnx.jit(
            nnx.value_and_grad(functools.partial(loss, algo_config=config, pad_id=0, eos_id=1), has_aux=True)
        )(model, given)
        for name, loss, config, given in (
            ("ours", policy_loss, ours, example),
            (
                "tunix",
                function_registry.get_policy_loss_fn("grpo"),
                tunixs,
                example.replace(prompt_ids=prompts, prompt_mask=prompts != 0),
            ),
        )
    }
    ((our_loss, our_aux), our_gradient), ((loss, aux), gradient) = found["ours"], found["tunix"]
    assert float(our_aux["clip_share_high"]) == pytest.approx(float(aux["pg_clipfrac"]))
    assert float(our_aux["clip_share_high"]) > 0
    assert float(our_loss) == pytest.approx(float(loss), rel=1e-5)
    assert float(our_aux["entropy"]) == pytest.approx(float(aux["entropy"]), rel=1e-5)
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5), our_gradient, gradient
    )


def test_our_loss_is_registered_and_what_tunix_would_do_beside_is_switched_off(still: Bench) -> None:
    """Its metrics, checkpoints, limits, sequence packing, and Weights & Biases although that is installed."""
    still.run_step(1)
    cluster = still.learner.rl_cluster
    training = cluster.cluster_config.training_config
    assert function_registry.get_policy_loss_fn(still.learner.algo_config.policy_loss_fn) is policy_loss
    assert still.learner.algo_config.temperature == still.config.generation.temperature == 0.7
    assert training.metrics_logging_options is None
    assert training.checkpoint_root_directory is None
    assert training.max_steps is None
    assert training.max_seq_token_per_tpu is None
    for logger in (cluster.actor_trainer.metrics_logger, cluster._rl_metrics_logger):
        assert isinstance(logger, metrics_logger.MetricsLogger)
        assert logger._backends == []
    assert monitoring.get_scalar_listeners() == []
    assert sys.modules.get("wandb") is None or sys.modules["wandb"].run is None


def test_tunixs_own_reward_manager_still_turns_nan_into_0() -> None:
    """Ours avoids that."""

    def one_nan(prompts: list[str], completions: list[str], **_: object) -> list[float]:
        return [float("nan"), 1.0]

    config = grpo_learner.GRPOConfig(num_generations=2)
    with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
        found = reward_manager.SequenceRewardManager([one_nan], config)(["p", "p"], ["a", "b"])
    assert np.asarray(found["rewards"]).tolist() == [0.0, 1.0]


def test_an_infinite_total_never_becomes_an_advantage() -> None:
    with pytest.raises(ValueError, match="finite"):
        estimate_advantages(np.array([1.0, np.inf]), 2)


def test_tunixs_own_train_step_still_takes_a_loss_that_is_not_finite(still: Bench) -> None:
    """At learning rate 0 weights stay even then: 0 × NaN is NaN."""
    trainer = still.learner.rl_cluster.actor_trainer
    completions = still.sample()
    example = still.example(completions, np.full(16, np.inf))
    with compat.entered(still.learner._mesh()):
        nnx.jit(functools.partial(type(trainer)._train_step, trainer))(trainer.model, trainer.optimizer, example)
    weights = still.state()["weights"]
    still.reset()
    assert any(np.isnan(array).any() for array in weights.values())


def test_another_tunix_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    compat.check_version()
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.1.8")
    with pytest.raises(ImportError, match=r"needs google-tunix 0\.1\.7, found 0\.1\.8"):
        compat.check_version()
