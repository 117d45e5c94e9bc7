import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.rewards import RewardRecipe, register_reward_function, resolve_reward
from agent_tunix.rewards.conventions import Convention, TrlReward
from agent_tunix.rewards.execution.worker import build_reward

from .shapes import samples

MINE = """
from agent_tunix.rewards import register_reward_function

@register_reward_function("registered")
def some_function(response, scale=1.0):
    return scale

def batch(completions, scale=1.0):
    return [scale * len(completion) for completion in completions]

async def dictionary(args, sample):
    return {"score": 2.0}

class Environment:
    def __init__(self, bonus=0.0):
        self.bonus = bonus

    def compute_reward(self, rollout_id, messages, task):
        return {"a": 1.0, "bonus": self.bonus}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "custom_rewards.py").write_text("def bare(response):\n    return 5.0\n")
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def recipe_of(spec: object, **kwargs: Any) -> RewardRecipe:
    (component,) = resolve_reward(spec, **kwargs).components
    assert isinstance(component.reward, Convention)
    assert component.reward.recipe is not None
    return component.reward.recipe


def test_recipes_build_the_same_rewards_in_another_process(here: Path) -> None:
    cases: list[tuple[Any, dict[str, Any], float]] = [
        ("math", {}, 1.0),
        ("registered", {"modules": ["mine.py"], "args": {"registered": {"scale": 4.0}}}, 4.0),
        ("mine.batch", {"completions": "text", "args": {"batch": {"scale": 3.0}}}, 3.0),
        ("mine.py:dictionary", {"reward_key": "score"}, 2.0),
        ({"a": {"function": "mine.py:Environment", "args": {"bonus": 2.0}}}, {}, 3.0),
        ("bare", {}, 5.0),
    ]
    recipes = [recipe_of(spec, **kwargs) for spec, kwargs, _ in cases]
    values = [value for *_, value in cases]
    assert [build_reward(recipe).score(samples("4"))[0].value for recipe in recipes] == values
    program = """
import pickle, sys
from agent_tunix.rewards.execution.worker import build_reward
recipes, samples = pickle.load(sys.stdin.buffer)
for reward in [build_reward(recipe) for recipe in recipes]:
    print(reward.name, reward.score(samples)[0].value)
assert "jax" not in sys.modules
"""
    result = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps((recipes, samples("4"))),
        capture_output=True,
        check=True,
        cwd="/",
    )
    expected = [f"{recipe.name} {value}" for recipe, value in zip(recipes, values, strict=True)]
    assert result.stdout.decode().splitlines() == expected


def seven(response: str) -> float:
    return 7.0


def test_a_function_that_other_processes_do_not_register_is_found_by_its_place() -> None:
    register_reward_function("registered_here", seven)
    assert recipe_of("registered_here").spec == f"{__name__}.seven"


def test_what_was_settled_is_in_the_recipe(here: Path) -> None:
    (component,) = resolve_reward("mine.py:batch").components
    assert isinstance(component.reward, TrlReward)
    component.reward.score(samples("a"))
    assert component.reward.recipe is not None
    assert component.reward.recipe.completions == "text"


def test_a_function_that_no_name_leads_to_is_carried_by_value_if_it_can_be() -> None:
    lock = threading.Lock()
    for function, is_carried in ((lambda response: 1.0, True), (lambda response: float(lock.locked()), False)):
        (component,) = resolve_reward(function).components
        assert isinstance(component.reward, Convention)
        assert (component.reward.recipe is not None) is is_carried


def test_a_builtin_says_that_it_is_one_until_it_is_replaced(here: Path) -> None:
    assert resolve_reward("math").components[0].reward.is_builtin  # type: ignore[attr-defined]
    register_reward_function("math", lambda response: 1.0)
    assert not resolve_reward("math").components[0].reward.is_builtin  # type: ignore[attr-defined]
