"""Registry of rewards by name.

    @register_reward_function("is_polite")
    def is_polite(response):
        return 1.0 if "please" in response else 0.0

List the file with this code in `rewards.modules`, or call it `custom_rewards.py` and put it in the working directory.
An installed package offers rewards without being imported, by entry points of the group `agent_tunix.rewards`:

    [project.entry-points."agent_tunix.rewards"]
    is_polite = "polite_rewards:is_polite"
"""

import contextlib
import functools
import importlib
import importlib.metadata
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, overload

from agent_tunix.errors import RewardError, UnknownRewardError
from agent_tunix.own_functions import is_of_main
from agent_tunix.rewards.builtin import FAMILIES
from agent_tunix.rewards.conventions import CallSettings, Convention, PlainReward, adapt
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.judges import JUDGES, load_judge
from agent_tunix.rewards.reward_model import REWARD_MODELS, load_reward_model
from agent_tunix.rewards.shims import served_imports

logger = logging.getLogger("agent_tunix.rewards")

Function = TypeVar("Function", bound=Callable[..., Any])

ENTRY_POINTS = "agent_tunix.rewards"

# A reward's name is the leaf of its metrics, so it must differ from these leaves.
_TAKEN_BY_METRICS = frozenset({"total", "outcomes", "dead_groups"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")

_registered: dict[str, Convention] = {}


@overload
def register_reward_function(
    name: str, fn: None = None, *, overwrite: bool = False, convention: str = "auto"
) -> Callable[[Function], Function]: ...


@overload
def register_reward_function(
    name: str, fn: Function, *, overwrite: bool = False, convention: str = "auto"
) -> Function: ...


def register_reward_function(
    name: str, fn: Function | None = None, *, overwrite: bool = False, convention: str = "auto"
) -> Function | Callable[[Function], Function]:
    """Register a function or class as a reward, by a call or as a decorator.

    Registering a built-in's name replaces the built-in for the whole run and logs a warning. Registering the name of
    another registered reward is an error, unless it is the same function, as when a module is imported twice, or comes
    from a notebook or a script, as when a cell is run again.

    Args:
        name: Letters, digits, `_` and `-`.
        fn: The reward, in any convention. Without it, a decorator is returned.
        overwrite: Replace any reward of this name, without a warning.
        convention: Convention of the reward, such as `plain` or `trl`, if its signature does not tell it.

    Returns:
        The function, unchanged; or the decorator.

    Raises:
        RewardError: The name is malformed or taken.
        RewardSignatureError: The function fits no convention, or several.
    """
    check_name(name)

    def register(function: Function) -> Function:
        reward = adapt(function, name, settings=CallSettings(convention=convention))
        previous = _registered.get(name)
        may_replace = overwrite or is_of_main(function)
        if previous is not None and not may_replace and not _is_same(previous, reward):
            raise RewardError(
                f"a reward named {name!r} is already registered: {previous.describe()}; choose another name, or pass "
                "overwrite=True"
            )
        if previous is None and is_shipped(name) and not overwrite:
            logger.warning("the built-in reward %r is replaced by %s", name, reward.describe())
        _registered[name] = reward
        return function

    return register if fn is None else register(fn)


@contextlib.contextmanager
def registered_apart() -> Iterator[None]:
    """Forget the registrations of the block at its end; those from before do not exist in it.

    Several uploads of one file in a process would otherwise register the same names.
    """
    before = dict(_registered)
    _registered.clear()
    try:
        yield
    finally:
        _registered.clear()
        _registered.update(before)


def get_reward_function(name: str) -> Convention:
    """Return the reward of a name; call it as `reward(response, answer="4")`.

    Registered rewards take precedence over built-in ones, and built-in ones over those of installed packages.

    Raises:
        UnknownRewardError: No reward has this name.
        RewardError: The installed package that offers it cannot be imported.
    """
    if name in _registered:
        return _registered[name]
    if is_entry_point(name):
        return _load_entry_point(name, installed_rewards(name))
    return get_builtin(name)


def find_registered(name: str) -> Any:
    """Return the function, class or object that a user has registered in this process; None if there is none."""
    return _registered[name].definition if name in _registered else None


def get_builtin(name: str) -> PlainReward:
    """Return the built-in reward of a name, even if a user's registration has replaced it.

    Raises:
        UnknownRewardError: No built-in reward has this name.
    """
    if name in JUDGES:
        judge: PlainReward = load_judge(name)  # a judge has every method of a PlainReward that is used
        return judge
    if name in REWARD_MODELS:
        model: PlainReward = load_reward_model(name)
        return model
    if name not in FAMILIES:
        raise UnknownRewardError(
            f"no reward is registered as {name!r}; registered are: {', '.join(list_reward_functions())}"
        )
    module = importlib.import_module(f"agent_tunix.rewards.builtin.{FAMILIES[name]}")
    return PlainReward(getattr(module, f"{name}_reward"), name)


def list_reward_functions() -> list[str]:
    """Return the sorted names of all rewards: built-in, registered, and of installed packages."""
    names_installed = (point.name for point in installed_rewards() if is_name(point.name))
    return sorted({*FAMILIES, *JUDGES, *REWARD_MODELS, *_registered, *names_installed})


def is_entry_point(name: str) -> bool:
    """Return True if the name belongs to a reward of an installed package."""
    return name not in _registered and not is_shipped(name) and bool(installed_rewards(name))


def is_name(name: object) -> bool:
    """Return True if a specification has the form of a name, not of a path."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(name: object) -> None:
    """Raise RewardError if a reward or component may not have this name."""
    if not is_name(name):
        raise RewardError(
            f"{name!r} cannot be the name of a reward; use at most 100 letters, digits, `_` and `-`, starting with a "
            "letter or `_`"
        )
    if name in _TAKEN_BY_METRICS:
        raise RewardError(
            f"{name!r} cannot be the name of a reward, because `rewards/{name}` is a built-in metric; choose another "
            "name"
        )


def is_shipped(name: str) -> bool:
    """Return True if the name belongs to a reward of this package."""
    return name in FAMILIES or name in JUDGES or name in REWARD_MODELS


def _is_same(one: Convention, other: Convention) -> bool:
    """Return True if two rewards are one function, perhaps imported twice."""
    return one.definition is other.definition or one.origin == other.origin is not None


def installed_rewards(name: str | None = None) -> list[importlib.metadata.EntryPoint]:
    """Return the entry points of installed packages, without duplicates: all, or those of one name."""
    points = _read_points(tuple((path, _changed_at(path)) for path in sys.path))
    return list({(p.name, p.value): p for p in points if name is None or p.name == name}.values())


@functools.lru_cache(maxsize=4)
def _read_points(state: tuple[tuple[str, int], ...]) -> tuple[importlib.metadata.EntryPoint, ...]:
    """Return the entry points, read once for each state of the directories of `sys.path`: reading takes 10 ms."""
    return tuple(importlib.metadata.entry_points(group=ENTRY_POINTS))


def _changed_at(path: str) -> int:
    try:
        return os.stat(path or ".").st_mtime_ns
    except OSError:
        return 0


def _load_entry_point(name: str, points: list[importlib.metadata.EntryPoint]) -> Convention:
    if len(points) > 1:
        raise RewardError(
            f"several installed packages have a reward {name!r}; name the intended one by its dotted path: "
            f"training.reward_function={' or '.join(point.value.replace(':', '.') for point in points)}"
        )
    (point,) = points
    try:
        with served_imports():
            definition = point.load()
    except (Exception, SystemExit) as error:  # an installed package may raise anything
        raise RewardError(
            f"the reward {name!r} ({point.value}) could not be loaded: {describe_fault(error)}",
            code="reward_import_failed",
        ) from error
    return adapt(definition, name)
