"""Objects of Python as what a configuration says: each is registered under its name, and the configuration names it.

So `config.yaml`, resuming and replays are those of any run.
"""

from collections.abc import Mapping
from typing import Any

from agent_tunix.errors import RewardError
from agent_tunix.rewards.finding import function_name
from agent_tunix.rewards.registry import check_name, is_shipped, register_reward_function


def name_reward(reward: Any) -> Any:
    """Register the objects of a reward, and return the value of `training.reward_function` that names them.

    Args:
        reward: A name or path, a function or object, a list of these, or a mapping from components to these or to
            settings (`function`, `weight`, `requires` …).

    Raises:
        RewardError: An object is no reward.
    """
    taken: set[str] = set()
    if isinstance(reward, list | tuple):
        return [_name(one, None, taken) for one in reward]
    if isinstance(reward, Mapping):
        return {name: _component(name, one, taken) for name, one in reward.items()}
    return _name(reward, None, taken)


def _component(name: str, component: Any, taken: set[str]) -> dict[str, Any]:
    settings = dict(component) if isinstance(component, Mapping) else {"function": component}
    if "function" in settings:
        settings["function"] = _name(settings["function"], name, taken)
    return settings


def _name(reward: Any, component: str | None, taken: set[str]) -> str:
    """Return the name of a reward; an object is registered under the name of its component, or its own."""
    if isinstance(reward, str):
        return reward
    name = component or function_name(reward)
    name = _free_name(name, taken)
    check_name(name)
    if not callable(reward) and not hasattr(reward, "score"):
        raise RewardError(f"{reward!r} must be a reward: a name, a function, a class or an object that scores")
    register_reward_function(name, reward, overwrite=True)
    taken.add(name)
    return name


def _free_name(name: str, taken: set[str]) -> str:
    """Return a name that no built-in reward and no other object of this reward has."""
    base = f"my_{name}" if is_shipped(name) else name
    number, free = 1, base
    while free in taken:
        number += 1
        free = f"{base}_{number}"
    return free
