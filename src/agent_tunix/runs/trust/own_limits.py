"""The user's limits on rewards and environments, in place of those of a foreign run."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

from agent_tunix.config.schema import Config, RewardsConfig
from agent_tunix.rewards.builtin import LIMITS
from agent_tunix.rewards.builtin.code_tests import code_tests_reward
from agent_tunix.rewards.resolve import read_components, read_components_file
from agent_tunix.runs.reward_setup import components_file

# Keys of `rewards` that a foreign run decides. The user decides all others: where rewards run, and their limits.
_OF_THE_REWARD = ("modules", "args", "max_failure_rate", "on_failure", "convention", "completions", "reward_key")
# Limits that `code_tests` takes as arguments, with their defaults.
_LIMITS_OF_PROGRAMS = {name: inspect.signature(code_tests_reward).parameters[name].default for name in LIMITS}
# Keys of `environment` that the user decides for a foreign run.
_LIMITS_OF_ENVIRONMENTS = ("execution", "timeout_s", "memory_mb", "num_workers")


def apply_own_limits(config: Config, own: Config, working_directory: Path) -> Config:
    """Return a foreign run's configuration with the user's limits in place of the run's.

    Built-in rewards and environments get arguments from the run. So they run in worker processes, which have limits,
    unless the user says otherwise.
    """
    kept = {name: getattr(config.rewards, name) for name in _OF_THE_REWARD}
    kept["args"] = {name: _bounded(args, own.rewards.args.get(name)) for name, args in kept["args"].items()}
    rewards: RewardsConfig = dataclasses.replace(own.rewards, execution=_limited(own.rewards.execution), **kept)
    reward = dataclasses.replace(config.reward, components=_bounded(config.reward.components))
    spec = config.training.reward_function
    if isinstance(spec, str) and (file := components_file(spec, working_directory)):
        spec = read_components(read_components_file(file))
    training = dataclasses.replace(config.training, reward_function=_bounded(spec))
    limits = {name: getattr(own.environment, name) for name in _LIMITS_OF_ENVIRONMENTS}
    limits["execution"] = _limited(own.environment.execution)
    environment = dataclasses.replace(config.environment, args=_bounded(config.environment.args), **limits)
    return dataclasses.replace(config, rewards=rewards, reward=reward, training=training, environment=environment)


def _limited(execution: str) -> str:
    return "process" if execution == "auto" else execution


def _bounded(value: Any, own: Any = None) -> Any:
    """Return arguments of rewards with limits on programs lowered to the user's, or else to the defaults."""
    if isinstance(value, list):
        return [_bounded(one) for one in value]
    if not isinstance(value, dict):
        return value
    most = _LIMITS_OF_PROGRAMS | (own if isinstance(own, dict) else {})
    return {
        name: min(one, most[name]) if name in _LIMITS_OF_PROGRAMS and isinstance(one, int | float) else _bounded(one)
        for name, one in value.items()
    }
