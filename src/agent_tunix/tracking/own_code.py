"""Record of the user's functions and classes that a run names but no file of it holds, as those of a notebook.

`environment.json` describes each by its name and a hash of its source and of what it holds. Rewards have a fingerprint
of their own.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agent_tunix.config.schema import Config
from agent_tunix.environments import registry as environments
from agent_tunix.errors import ConfigError, UnknownEnvironmentError, UnknownRewardError
from agent_tunix.own_functions import OWN_LOSSES
from agent_tunix.rewards import Mixture, registry
from agent_tunix.rewards.advantages import OWN_ESTIMATORS
from agent_tunix.rewards.fingerprint.behaviour import describe

_LOGGER = logging.getLogger("agent_tunix.run")

KEY = "own_code"  # in environment.json
_REWARD, _LOSS, _ESTIMATOR = "training.reward_function", "grpo.loss", "grpo.advantage_scaling"
# Key of the configuration → function that returns the object of a name, or None; the decorator of `agent_tunix` that
# registers it; and the argument of `Run.resume` that takes it, if one does.
_KINDS: dict[str, tuple[Callable[[str], Any], str, str | None]] = {
    _REWARD: (registry.find_registered, "register_reward_function", "reward=…"),
    "environment.name": (environments.find_registered, "environments.register_environment", "environment=…"),
    "environment.tools": (environments.find_registered, "environments.register_tool", "tools=[…]"),
    "environment.agent": (environments.find_registered, "environments.agents.register_agent", "agent=…"),
    _LOSS: (OWN_LOSSES.find, "register_policy_loss", None),
    _ESTIMATOR: (OWN_ESTIMATORS.find, "register_advantage_estimator", None),
}


def describe_own_code(config: Config, mixture: Mixture) -> list[dict[str, str]]:
    """Return an entry of each registered function and class that a run uses: `key`, `name` and `object`."""
    rewards = [component.reward for component in mixture.components]
    environment = config.environment.name
    named = {
        _REWARD: [str(getattr(getattr(reward, "recipe", None), "spec", reward.name)) for reward in rewards],
        "environment.name": [*environment.values()] if isinstance(environment, dict) else [environment or ""],
        "environment.tools": config.environment.tools,
        "environment.agent": [config.environment.agent.function or ""],
        _LOSS: [config.grpo.loss],
        _ESTIMATOR: [config.grpo.advantage_scaling],
    }
    found = {(key, name): _KINDS[key][0](name) for key, names in named.items() for name in names}
    return [
        {"key": key, "name": name, "object": str(describe(thing))}
        for (key, name), thing in found.items()
        if thing is not None
    ]


def warn_of_changes(run: Path, now: list[dict[str, str]]) -> None:
    """Log the functions and classes, apart from rewards, that differ from those that a run was started with."""
    before = {(one["key"], one["name"]): one["object"] for one in _entries(run) if one["key"] != _REWARD}
    for one in now:
        earlier = before.get((one["key"], one["name"]), one["object"])
        if earlier != one["object"]:
            text = "changed since the run was started: %s=%s was %s and is now %s"
            _LOGGER.warning(text, one["key"], one["name"], earlier, one["object"])


@contextlib.contextmanager
def explaining_missing(run: Path | None) -> Iterator[None]:
    """Say how to provide a function or class of another process if the block does not find what a run names.

    Args:
        run: Directory of the run that the configuration belongs to; None for a new one.

    Raises:
        UnknownRewardError, UnknownEnvironmentError, ConfigError: The block raised it; the message names the object.
    """
    try:
        yield
    except (UnknownRewardError, UnknownEnvironmentError, ConfigError) as error:
        entries = [] if run is None else _entries(run)
        missing = next((one for one in entries if _KINDS[one["key"]][0](one["name"]) is None), None)
        if missing is None or (isinstance(error, ConfigError) and error.code != "invalid_function"):
            raise
        _, decorator, argument = _KINDS[missing["key"]]
        message = (
            f"{missing['key']}={missing['name']} is {missing['object']} of the process that trained {run}, and this "
            f"process has nothing of that name; in Python, define it again, register it with "
            f"agent_tunix.{decorator}({missing['name']!r}), and repeat the call; to resume, "
            f"agent_tunix.open_run({str(run)!r}).resume({argument or ''}){' registers it' if argument else ''}"
        )
        raise type(error)(message, code="defined_elsewhere") from error


def _entries(run: Path) -> list[dict[str, str]]:
    """Return the entries of a run; none if its record is missing, damaged or of an earlier version."""
    try:
        entries = json.loads((run / "environment.json").read_bytes())[KEY]
        return [{key: str(one[key]) for key in ("key", "name", "object")} for one in entries if one["key"] in _KINDS]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return []
