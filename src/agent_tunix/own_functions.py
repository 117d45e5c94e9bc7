"""Functions that users register by name, and the registry of policy losses.

The registry of advantage estimators is in `rewards.advantages`. Importing this module loads neither JAX nor Hydra.
"""

import difflib
import functools
import re
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

from agent_tunix.errors import ConfigError

Function = TypeVar("Function", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def is_of_main(thing: object) -> bool:
    """Return True for what a notebook or the script of this process defines, and for an object of such a class."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    return getattr(thing, "__module__", None) == "__main__"


class OwnFunctions(Generic[Function]):
    """Users' functions of one kind, by registered name or by the path that a configuration gives.

    Args:
        kind: Noun for messages, such as `policy loss`.
        key: Key of the configuration that chooses one.
        builtin: Names that are built in, which no registration may take.
    """

    def __init__(self, kind: str, key: str, builtin: Collection[str]) -> None:
        self._kind, self._key, self._builtin = kind, key, builtin
        self._found: dict[str, Function] = {}

    def register(self, name: str, overwrite: bool = False) -> Callable[[Function], Function]:
        """Return a decorator that registers a function under a name, and returns the function.

        A function of a notebook or script replaces the one of that name, as when a cell is run again.

        Raises:
            ConfigError: The name is malformed, built in, or taken by another function.
        """
        if _NAME.fullmatch(name) is None:
            raise ConfigError(
                f"the name of a {self._kind} must have at most 100 letters, digits and `_`, and start with a letter or "
                f"`_`, but is {name!r}; choose another name",
                code="invalid_function",
            )

        def register(function: Function) -> Function:
            previous = self._found.get(name)
            may_replace = overwrite or is_of_main(function) or _place(previous) == _place(function)
            is_taken = previous is not None and not may_replace
            if is_taken or name in self._builtin:
                owner = previous if is_taken else "built in"
                raise ConfigError(
                    f"a {self._kind} must have a name of its own, but {name!r} is {owner}; choose another name",
                    code="invalid_function",
                )
            self._found[name] = function
            return function

        return register

    def add(self, path: str, function: Function) -> None:
        """Store a function under its path: a dotted path or `file.py:function`."""
        self._found[path] = function

    def find(self, name: str) -> Function | None:
        """Return the function of a name or path; None if there is none, as for what is built in."""
        return self._found.get(name)

    def get(self, name: str) -> Function:
        """Return the function of a name or path.

        Raises:
            ConfigError: There is none; the message gives the closest match.
        """
        if name in self._found:
            return self._found[name]
        raise self.unknown(name, "name your own as file.py:function, or register it in a module of grpo.modules")

    def unknown(self, name: str, advice: str = "name your own as file.py:function") -> ConfigError:
        """Return the error for a name that is not known, with the closest match."""
        known = [*self._builtin, *self._found]
        near = difflib.get_close_matches(name, known, n=1)
        return ConfigError(
            f"{self._key} must be one of {', '.join(known)}, not {name!r}"
            f"{f'; did you mean {near[0]}?' if near else ''}; {advice}",
            code="invalid_function",
        )


def _place(function: Callable[..., Any] | None) -> tuple[Any, Any]:
    return getattr(function, "__module__", None), getattr(function, "__qualname__", function)


# Function from `LossBatch` and `ObjectiveSettings`, which need JAX, to the losses of the tokens, or `TokenLosses`.
PolicyLoss = Callable[[Any, Any], Any]

# Built-in values of `grpo.loss`; `grpo.losses` has their functions.
POLICY_LOSSES = ("grpo", "gspo", "gspo_token", "cispo", "sapo", "gmpo", "dppo_tv", "dppo_kl", "reinforce", "none")
OWN_LOSSES: OwnFunctions[PolicyLoss] = OwnFunctions("policy loss", "grpo.loss", POLICY_LOSSES)


def register_policy_loss(name: str, *, overwrite: bool = False) -> Callable[[PolicyLoss], PolicyLoss]:
    """Register a function as a policy loss, for `grpo.loss=NAME`.

    The function takes a `LossBatch` and `ObjectiveSettings` of `agent_tunix.grpo.losses` and returns the loss of each
    token, an array of the shape of `batch.logps`, or `TokenLosses`. JAX compiles and differentiates it. The pipeline
    aggregates the losses and adds the KL penalty.

    Args:
        name: Letters, digits and `_`; no built-in name.
        overwrite: Replace another function of this name.

    Returns:
        A decorator that returns the function unchanged.

    Raises:
        ConfigError: The name is malformed or taken.
    """
    return OWN_LOSSES.register(name, overwrite)
