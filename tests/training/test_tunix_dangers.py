"""Tunix's dangers that no other file holds, and proofs that a repair is still needed: mended upstream, they fail.

Where the others are held: sampling keys, the end-of-sequence token and
greedy sampling in test_sampler.py, resuming and the
number of steps in test_run.py, over-long prompts in tests/data.
"""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax import nnx
from tunix.rl import common, function_registry, reward_manager
from tunix.rl.grpo import grpo_learner
from tunix.sft import peft_trainer

from agent_tunix.config.checks import check
from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError
from agent_tunix.grpo.loss import make_policy_loss
from agent_tunix.grpo.losses import KL_ESTIMATORS
from agent_tunix.policy import compat
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
    example = still.example(completions, np.ones(16))
    # The sampler's own, of the same distribution, before top-k and top-p.
    assert np.array_equal(np.asarray(example.old_logps), completions.logps[:, : example.tokens.shape[1]])
    for _ in range(2):
        record = still.updater.dispatch(example)
        assert float(record["ratio_max"]) == pytest.approx(1.0, abs=5e-5)  # two programs' rounding
        assert float(record["ratio_mean"]) == pytest.approx(1.0, abs=1e-6)
        assert float(record["kl"]) == pytest.approx(0.0, abs=1e-9)


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
    model = bench.policy
    example = bench.example(bench.sample(), np.tile([1.0, -0.5, 0.25, -0.75], 4))
    old_logps = jax.numpy.asarray(example.old_logps) - 0.3 * (example.advantages[:, None] > 0.5)
    example = dataclasses.replace(example, old_logps=old_logps)
    tunixs = grpo_learner.GRPOConfig(num_generations=4, beta=0.3, kl_loss_mode="low_var_kl", epsilon=0.2)
    tunixs.temperature = bench.config.generation.temperature
    prompts = jax.numpy.repeat(example.prompts, 4, axis=0)  # Tunix has each completion with a prompt of its own
    given = grpo_learner.TrainExample(
        prompt_ids=prompts,
        prompt_mask=prompts != 0,
        completion_ids=example.tokens,
        completion_mask=example.mask,
        advantages=example.advantages,
        ref_per_token_logps=example.reference_logps,
        old_per_token_logps=old_logps,
    )
    tunix_loss = functools.partial(function_registry.get_policy_loss_fn("grpo"), algo_config=tunixs, pad_id=0, eos_id=1)
    (our_loss, our_aux), our_gradient = nnx.jit(nnx.value_and_grad(make_policy_loss(bench.config), has_aux=True))(
        model, example
    )
    (loss, aux), gradient = nnx.jit(nnx.value_and_grad(tunix_loss, has_aux=True))(model, given)
    assert float(our_aux["clip_share_high"]) == pytest.approx(float(aux["pg_clipfrac"]))
    assert float(our_aux["clip_share_high"]) > 0
    assert float(our_loss) == pytest.approx(float(loss), rel=1e-5)
    assert float(our_aux["entropy"]) == pytest.approx(float(aux["entropy"]), rel=1e-5)
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5), our_gradient, gradient
    )


def test_tunixs_own_reward_manager_still_turns_nan_into_0() -> None:
    """Ours avoids that."""

    def one_nan(prompts: list[str], completions: list[str], **_: object) -> list[float]:
        return [float("nan"), 1.0]

    config = grpo_learner.GRPOConfig(num_generations=2)
    with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
        found = reward_manager.SequenceRewardManager([one_nan], config)(["p", "p"], ["a", "b"])
    assert np.asarray(found["rewards"]).tolist() == [0.0, 1.0]


def test_tunixs_own_train_step_still_takes_a_loss_that_is_not_finite(still: Bench) -> None:
    """At learning rate 0 weights stay even then: 0 × NaN is NaN."""
    example = still.example(still.sample(), np.full(16, np.inf))
    trainer = peft_trainer.PeftTrainer(still.policy, optax.sgd(0.0), peft_trainer.TrainingConfig(eval_every_n_steps=1))
    trainer.with_loss_fn(make_policy_loss(still.config), has_aux=True)
    trainer.with_gen_model_input_fn(lambda example: {"example": example})
    nnx.jit(trainer.create_train_step_fn())(still.policy, trainer.optimizer, example)
    weights = still.state()["weights"]
    still.reset()
    assert any(np.isnan(array).any() for array in weights.values())


def test_another_tunix_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    compat.check_version()
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.1.8")
    with pytest.raises(ImportError, match=r"needs google-tunix 0\.1\.7, found 0\.1\.8"):
        compat.check_version()
