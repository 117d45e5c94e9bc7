"""Components that return what the rows hold, for tests of mixtures, statistics and replays."""

from collections.abc import Callable
from typing import Any

from agent_tunix.rewards import Component
from agent_tunix.rewards.conventions import PlainReward


def component(name: str, function: Callable[..., Any], **settings: Any) -> Component:
    """A component around a function."""
    return Component(name, PlainReward(function, name), **settings)


def by_column(name: str, weight: Any = 1.0, **settings: Any) -> Component:
    """A component that returns the value of the sample's column of its name."""
    return component(name, lambda metadata, response="": metadata[name], weight=weight, **settings)


def one(name: str, **settings: Any) -> Component:
    """A component that gives every response a 1."""
    return component(name, lambda response: 1.0, **settings)
