"""The mixture and the group advantage, as Tunix finds and calls them."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from tunix.rl import function_registry

from agent_tunix.errors import RewardSignatureError
from agent_tunix.rewards import Component, Mixture, Outcome, Sample, resolve_reward
from agent_tunix.rewards.calling import RewardFunction
from agent_tunix.training import bridge
from agent_tunix.training.building import GrpoAlgorithm

G = 4


def samples_of(responses: Sequence[str], columns: Mapping[str, Any] | None = None) -> list[Sample]:
    return [
        Sample(response, columns=columns or {}, group_id=row // G, step=3, max_steps=9)
        for row, response in enumerate(responses)
    ]


def manage(reward: Any, samples: Sequence[Sample], **settings: Any) -> dict[str, Any]:
    """Call the manager of that name as Tunix's learner does."""
    bridge.register_with_tunix()
    manager = function_registry.get_reward_manager(bridge.NAME)(
        reward_fns=resolve_reward(reward, **settings), algo_config=GrpoAlgorithm(beta=0.77, epsilon=0.66)
    )
    found: dict[str, Any] = manager(
        prompts=[sample.prompt for sample in samples],
        completions=[sample.response for sample in samples],
        samples=samples,
    )
    return found


def length(response: str) -> float:
    return float(len(response))


def test_tunixs_registries_hold_ours_by_name() -> None:
    bridge.register_with_tunix()
    bridge.register_with_tunix()
    assert function_registry.get_reward_manager(bridge.NAME) is bridge.MixtureManager
    assert function_registry.get_advantage_estimator(bridge.NAME) is bridge.estimate_advantages


def test_totals_and_scores_come_in_the_order_of_the_samples() -> None:
    found = manage(length, samples_of(["", "a", "bb", "ccc"]))
    assert found["rewards"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert [score.value for score in found["scores"]] == [0.0, 1.0, 2.0, 3.0]


def test_a_number_of_completions_that_does_not_fit_is_an_error() -> None:
    manager = bridge.MixtureManager(resolve_reward(length), None)
    with pytest.raises(ValueError, match="2 completions but 1 samples"):
        manager(prompts=["", ""], completions=["a", "b"], samples=samples_of(["a"]))


@pytest.mark.parametrize("returned", [float("nan"), float("inf"), -float("inf"), [1.0], "1", None, 1j])
def test_what_is_no_finite_number_leaves_the_completion_unscored(returned: Any) -> None:
    """Tunix would make 0 of NaN and spread one number over all completions."""

    def odd(response: str) -> Any:
        return returned if response == "x" else 1.0

    found = manage(odd, samples_of(["a", "x", "b", "c"]))
    assert np.isnan(found["rewards"]).tolist() == [False, True, False, False]


def test_an_unscored_completion_gets_no_advantage_and_does_not_move_its_group() -> None:
    with_gap = bridge.estimate_advantages(np.array([1.0, np.nan, 3.0, 5.0, 2.0, 2.5, 4.0, 1.0]), G)
    assert with_gap[1] == 0.0
    alone = bridge.estimate_advantages(np.array([1.0, 3.0, 5.0]), 3)
    np.testing.assert_array_equal(with_gap[[0, 2, 3]], alone)
    assert with_gap.dtype == np.float32
    np.testing.assert_array_equal(with_gap[4:], bridge.estimate_advantages(np.array([2.0, 2.5, 4.0, 1.0]), G))
    assert bridge.estimate_advantages(np.array([np.nan] * 4), G).tolist() == [0.0] * 4


@pytest.mark.parametrize(("on_failure", "total"), [("zero", 0.0), ("exclude", None)])
def test_on_failure_counts_a_failed_completion_as_zero_or_leaves_it_out(on_failure: str, total: float | None) -> None:
    def fails_on_x(response: str) -> float:
        if response == "x":
            raise ValueError("x")
        return 2.0

    found = manage(fails_on_x, samples_of(["a", "x", "b", "c"]), on_failure=on_failure)
    np.testing.assert_array_equal(found["rewards"], [2.0, np.nan if total is None else total, 2.0, 2.0])
    assert found["scores"][1].outcome is Outcome.ERROR


def test_a_reward_gets_the_step_and_the_columns_rather_than_settings_of_grpo() -> None:
    """Tunix would hand it the settings."""

    def named(response: str, step: int, max_steps: int, beta: float, epsilon: float = 5.0) -> float:
        return step / max_steps + beta + epsilon

    found = manage(named, samples_of(["a"] * G, {"beta": 0.25}))
    assert found["rewards"].tolist() == [3 / 9 + 0.25 + 5.0] * G


@pytest.mark.parametrize("name", ["beta", "temperature"])
def test_a_parameter_named_like_a_setting_of_grpo_is_missing_without_a_column(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def reward(response, {name}): return 1.0", scope)
    mixture = resolve_reward({"mine": {"function": scope["reward"]}})
    with pytest.raises(RewardSignatureError, match=f"the parameter `{name}`"):
        mixture.check_parameters(["answer", "question"])


def scaled(response: str, factor: float = 1.0) -> float:
    return factor * len(response)


class Scaled:
    def __call__(self, response: str) -> float:
        return 3.0 * len(response)


@pytest.mark.parametrize("function", [functools.partial(scaled, factor=3.0), Scaled()], ids=["partial", "object"])
def test_a_reward_without_a_name_of_its_own_works(function: Any) -> None:
    assert not hasattr(function, "__name__")
    mixture = Mixture([Component("tripled", RewardFunction(function, "tripled"))])
    responses = ["", "a", "bb", "ccc"]
    found = bridge.MixtureManager(mixture, None)(
        prompts=responses, completions=responses, samples=samples_of(responses)
    )
    assert found["rewards"].tolist() == [0.0, 3.0, 6.0, 9.0]


@pytest.mark.parametrize("error", [StopIteration, StopAsyncIteration, SystemExit])
def test_what_a_reward_raises_to_stop_something_is_an_outcome(error: type[BaseException]) -> None:
    def stopping(response: str) -> float:
        if response == "x":
            raise error
        return 1.0

    found = manage(stopping, samples_of(["a", "x", "b", "c"]))
    assert [score.outcome for score in found["scores"]][:2] == [Outcome.SCORED, Outcome.ERROR]
    assert error.__name__ in found["scores"][1].detail
