"""Users' own policy losses and advantage estimators: registered, found by path, refused."""

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from agent_tunix import register_advantage_estimator, register_policy_loss
from agent_tunix.config.checks import check
from agent_tunix.config.schema import Config
from agent_tunix.errors import AgentTunixError, ConfigError, RewardError
from agent_tunix.grpo.losses import LOSSES, ObjectiveSettings, log_ratios
from agent_tunix.own_functions import POLICY_LOSSES
from agent_tunix.rewards import compute_advantages
from agent_tunix.runs.algorithm_setup import register_own_algorithm
from tests.grpo.losses.support import Batch
from tests.grpo.losses.test_objective import as_jax, value_and_gradient
from tests.raising import raises

OWN = """\
from agent_tunix import register_advantage_estimator, register_policy_loss

@register_policy_loss("own_loss")
def loss(batch, settings):
    return -batch.advantages[:, None] * batch.logps

@register_advantage_estimator("own_estimator")
def estimator(rewards):
    return rewards - 0.5
"""


def config_of(**keys: Any) -> Config:
    return dataclasses.replace(Config(), grpo=dataclasses.replace(Config().grpo, **keys))


def test_the_names_of_losses_are_those_of_the_functions() -> None:
    assert tuple(LOSSES) == POLICY_LOSSES


def test_a_registered_loss_is_differentiated() -> None:
    @register_policy_loss("squared_ratio", overwrite=True)
    def squared_ratio(batch: Any, settings: Any) -> Any:
        return -batch.advantages[:, None] * jnp.exp(2.0 * log_ratios(batch)) * settings.epsilon

    logps, old = np.full((2, 3), -1.0), np.array([[-1.0, -1.5, -1.0], [-0.5, -1.0, -1.0]])
    mask = np.array([[True, True, False], [True, False, False]])
    batch = Batch(logps, old, logps, np.array([1.0, -2.0]), mask)
    value, slope = value_and_gradient(as_jax(batch, "token-mean"), ObjectiveSettings("squared_ratio", epsilon=0.5))
    gains = 0.5 * batch.advantages[:, None] * np.exp(2.0 * (logps - old)) * mask
    np.testing.assert_allclose(value, -gains.sum() / 3, rtol=1e-6)
    np.testing.assert_allclose(slope, -2.0 * gains / 3, rtol=1e-6)


def test_a_registered_estimator_gives_unscored_completions_nothing() -> None:
    register_advantage_estimator("doubled", overwrite=True)(lambda rewards: 2.0 * rewards)
    assert compute_advantages([1.0, np.nan, -1.0, 3.0], 2, "doubled").tolist() == [2.0, 0.0, -2.0, 6.0]


@pytest.mark.parametrize("returned", [np.zeros(4), np.full((2, 2), np.nan)])
def test_an_estimator_without_an_advantage_for_each_completion_is_refused(returned: Any) -> None:
    register_advantage_estimator("broken", overwrite=True)(lambda rewards: returned)
    with raises(RewardError, "invalid_function"):
        compute_advantages([1.0, 0.0, 0.0, 1.0], 2, "broken")


@pytest.mark.parametrize(
    ("loss", "code"),
    [
        (lambda batch, settings: batch.logps.mean(), "invalid_function"),
        (lambda batch, settings: batch.nothing, "invalid_function"),
    ],
)
def test_a_loss_that_is_already_a_mean_or_fails_is_refused(loss: Any, code: str) -> None:
    register_policy_loss("broken", overwrite=True)(loss)
    ones = np.ones((1, 2))
    batch = Batch(ones, ones, ones, np.ones(1), np.ones((1, 2), bool))
    with raises(ConfigError, code):
        value_and_gradient(as_jax(batch, "token-mean"), ObjectiveSettings("broken"))


@pytest.mark.parametrize(("name", "code"), [("grpo", "invalid_function"), ("a b", "invalid_function")])
def test_a_name_that_cannot_be_registered_is_refused(name: str, code: str) -> None:
    with raises(ConfigError, code):
        register_policy_loss(name)(lambda batch, settings: batch.logps)


def test_another_function_of_the_same_name_is_refused() -> None:
    def one(rewards: Any) -> Any:
        return rewards

    def other(rewards: Any) -> Any:
        return rewards

    register_advantage_estimator("taken", overwrite=True)(one)
    register_advantage_estimator("taken")(one)
    with raises(ConfigError, "invalid_function"):
        register_advantage_estimator("taken")(other)


def test_a_function_of_a_notebook_replaces_the_one_of_its_name() -> None:
    for factor in (1.0, 2.0):
        estimator = eval("lambda rewards: factor * rewards", {"__name__": "__main__", "factor": factor})
        register_advantage_estimator("of_a_cell")(estimator)
    assert compute_advantages([1.0, -1.0], 2, "of_a_cell").tolist() == [2.0, -2.0]


@pytest.mark.parametrize(
    "keys",
    [
        {"loss": "own.py:loss", "advantage_scaling": "own.py:estimator"},
        {"loss": "own.loss", "advantage_scaling": "own.estimator"},
        {"loss": "own_loss", "advantage_scaling": "own_estimator", "modules": ["own.py"]},
        {"loss": "own_loss", "advantage_scaling": "own_estimator", "modules": ["own"]},
    ],
)
def test_own_functions_are_found_as_rewards_are(keys: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN.replace('("own_', f'("{tmp_path.name}_'))
    keys = {key: f"{tmp_path.name}_{x[4:]}" if str(x).startswith("own_") else x for key, x in keys.items()}
    config = config_of(**keys)
    check(config)
    register_own_algorithm(config, tmp_path)
    assert compute_advantages([1.0, 0.0], 2, config.grpo.advantage_scaling).tolist() == [0.5, -0.5]


@pytest.mark.parametrize(
    ("keys", "code", "told"),
    [
        ({"loss": "own_los", "modules": ["own.py"]}, "invalid_function", "did you mean own_loss?"),
        ({"advantage_scaling": "grup", "modules": ["own.py"]}, "invalid_function", "did you mean group?"),
        ({"loss": "gspo-token"}, "invalid_function", "did you mean gspo_token?"),
        ({"advantage_scaling": "leave-one-out"}, "invalid_function", "did you mean leave_one_out?"),
        ({"loss": "own.py:los"}, "invalid_function", "did you mean 'loss'?"),
        ({"loss": "nowhere.py:loss"}, "invalid_function", "nowhere.py"),
        ({"advantage_scaling": "nowhere.estimator"}, "invalid_function", "nowhere"),
        ({"loss": "broken.py:loss"}, "reward_import_failed", "broken.py"),
    ],
)
def test_what_is_not_found_is_told_before_anything_loads(
    keys: dict[str, Any], code: str, told: str, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN.replace('")', '", overwrite=True)'))
    (tmp_path / "broken.py").write_text("1 / 0\n")
    config = config_of(**keys)
    check(config)
    with raises(AgentTunixError, code, told):
        register_own_algorithm(config, tmp_path)
