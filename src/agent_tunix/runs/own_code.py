"""Record of the user's functions and classes that a run names but no file of it holds, as those of a notebook.

`environment.json` has each with a hash of its source and of what it holds. Rewards have a fingerprint of their own.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agent_tunix.config.schema import Config
from agent_tunix.environments import registry as environments
from agent_tunix.errors import AgentTunixError, ConfigError, UnknownEnvironmentError, UnknownRewardError
from agent_tunix.own_functions import OWN_LOSSES
from agent_tunix.rewards import Mixture, registry
from agent_tunix.rewards.advantages import OWN_ESTIMATORS
from agent_tunix.rewards.fingerprint.behaviour import describe, digest

_LOGGER = logging.getLogger("agent_tunix.run")

KEY = "own_code"  # in environment.json
_REWARD, _ENVIRONMENT, _TOOL = "training.reward_function", "environment.name", "environment.tools"
_LOSS, _ESTIMATOR = "grpo.loss", "grpo.advantage_scaling"

# Key of the configuration → function that finds an object by its name, or returns None.
_FIND: dict[str, Callable[[str], Any]] = {
    _REWARD: registry.find_registered,
    _ENVIRONMENT: environments.find_registered,
    _TOOL: environments.find_registered,
    _LOSS: OWN_LOSSES.find,
    _ESTIMATOR: OWN_ESTIMATORS.find,
}
_REMEDIES = {
    _REWARD: "pass it: agent_tunix.open_run({run!r}).resume(reward=…)",
    _ENVIRONMENT: "pass it: agent_tunix.open_run({run!r}).resume(environment=…)",
    _TOOL: "pass it: agent_tunix.open_run({run!r}).resume(tools=…)",
    _LOSS: "register it with agent_tunix.register_policy_loss({name!r}), then agent_tunix.open_run({run!r}).resume()",
    _ESTIMATOR: (
        "register it with agent_tunix.register_advantage_estimator({name!r}), then agent_tunix.open_run({run!r})"
        ".resume()"
    ),
}


def describe_own_code(config: Config, mixture: Mixture) -> list[dict[str, str]]:
    """Return an entry of each registered function and class that a run uses: `key`, `name`, `object` and `hash`."""
    rewards = [component.reward for component in mixture.components]
    name = config.environment.name
    named = {
        _REWARD: [str(getattr(getattr(reward, "recipe", None), "spec", reward.name)) for reward in rewards],
        _ENVIRONMENT: [*name.values()] if isinstance(name, dict) else [name or ""],
        _TOOL: config.environment.tools,
        _LOSS: [config.grpo.loss],
        _ESTIMATOR: [config.grpo.advantage_scaling],
    }
    found = {(key, one): _FIND[key](one) for key, names in named.items() for one in names}
    return [
        {
            "key": key,
            "name": one,
            "object": _describe(thing),
            "hash": digest(json.dumps(describe(thing), sort_keys=True)),
        }
        for (key, one), thing in found.items()
        if thing is not None
    ]


def warn_of_changes(run: Path, now: list[dict[str, str]]) -> None:
    """Log the functions and classes, apart from rewards, that differ from those that a run was started with."""
    before = {(one["key"], one["name"]): one["hash"] for one in _entries(run) if one["key"] != _REWARD}
    for one in now:
        if before.get((one["key"], one["name"]), one["hash"]) != one["hash"]:
            _LOGGER.warning("changed since the run was started: %s=%s (%s)", one["key"], one["name"], one["object"])


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
        missing = [] if run is None else [one for one in _entries(run) if _FIND[one["key"]](one["name"]) is None]
        unknown = not isinstance(error, ConfigError) or error.code == "invalid_function"
        if not (missing and unknown):
            raise
        raise _explained(error, missing[0], Path(str(run))) from error


def _explained(error: AgentTunixError, entry: dict[str, str], run: Path) -> AgentTunixError:
    remedy = _REMEDIES[entry["key"]].format(run=str(run), name=entry["name"])
    message = (
        f"{entry['key']}={entry['name']} is {entry['object']} of the process that trained {run}, which no file holds, "
        f"and this process has nothing of that name; define it again and {remedy}"
    )
    return type(error)(message, code="defined_elsewhere")


def _describe(thing: Any) -> str:
    named = thing if hasattr(thing, "__qualname__") else getattr(thing, "func", type(thing))
    return f"{named.__module__}.{named.__qualname__}"


def _entries(run: Path) -> list[dict[str, str]]:
    """Return the entries of a run; none if its record is missing, damaged or of an earlier version."""
    keys = ("key", "name", "object", "hash")
    try:
        entries = json.loads((run / "environment.json").read_bytes())[KEY]
        return [{key: str(one[key]) for key in keys} for one in entries if one["key"] in _FIND]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return []
