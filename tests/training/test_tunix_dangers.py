"""Dangers of Tunix that no other file holds, some of them as proofs that fail once upstream has mended them."""

import numpy as np
import optax
import pytest
from tunix.rl import reward_manager
from tunix.rl.grpo import grpo_learner

from agent_tunix.config.checks import check
from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError
from agent_tunix.policy import compat
from tests.training.support import BenchMaker

pytestmark = pytest.mark.slow


def test_at_learning_rate_0_every_importance_ratio_is_one(make_bench: BenchMaker) -> None:
    """Tunix's own engine leaves the temperature out of the old log-probabilities: 1.146 at 0.7."""

    def adjust(config: Config) -> None:
        config.grpo.num_iterations = 2
        config.grpo.beta = 0.3
        config.generation.temperature, config.generation.top_k, config.generation.top_p = 1.5, 20, 0.8

    still = make_bench(adjust, optimizer=optax.sgd(0.0))
    completions = still.sample()
    example = still.example(completions, np.ones(16))
    # The sampler's own, of the same distribution, before top-k and top-p.
    assert np.array_equal(np.asarray(example.old_logps), completions.logps[:, : example.tokens.shape[1]])
    for _ in range(2):
        record = still.updater.dispatch(example)
        assert float(record["ratio_max"]) == pytest.approx(1.0, abs=5e-5)  # two programs' rounding
        assert float(record["ratio_mean"]) == pytest.approx(1.0, abs=1e-6)
        assert float(record["sampler_mismatch_kl"]) == pytest.approx(0.0, abs=1e-9)
        assert float(record["kl"]) == pytest.approx(0.0, abs=1e-9)


def test_tunix_still_defaults_to_k1_which_cannot_be_configured() -> None:
    config = Config()
    config.grpo.kl_estimator = grpo_learner.GRPOConfig().kl_loss_mode
    assert config.grpo.kl_estimator == "kl"
    with pytest.raises(ConfigError, match=r"grpo.kl_estimator must be one of"):
        check(config)


def test_tunixs_own_reward_manager_still_turns_nan_into_0() -> None:
    """Ours avoids that."""

    def one_nan(prompts: list[str], completions: list[str], **_: object) -> list[float]:
        return [float("nan"), 1.0]

    config = grpo_learner.GRPOConfig(num_generations=2)
    with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
        found = reward_manager.SequenceRewardManager([one_nan], config)(["p", "p"], ["a", "b"])
    assert np.asarray(found["rewards"]).tolist() == [0.0, 1.0]


def test_another_tunix_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    compat.check_version()
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.1.8")
    with pytest.raises(ImportError, match=r"needs google-tunix 0\.1\.7, found 0\.1\.8"):
        compat.check_version()
