"""A user's function, object or class, and calls of it."""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from agent_tunix.errors import RewardError, RewardSignatureError
from agent_tunix.rewards.conventions.values import own_copy
from agent_tunix.rewards.unavailable import CallWatch


class Target:
    """A user's function or object, or the object that a user's class makes from the configured arguments.

    A class is instantiated at first use, so that only the process that scores pays for a costly one. Its constructor
    gets the arguments that it names. If it takes a `config` dataclass, the arguments that name fields of the dataclass
    become its values.
    """

    def __init__(self, definition: Any, args: Mapping[str, Any], name: str) -> None:
        self.definition = definition
        self.name = name
        self.is_class = inspect.isclass(definition)
        self._config_class: type | None = None
        self._constructor_args: dict[str, Any] = {}
        self._config_args: dict[str, Any] = {}
        self.call_args = dict(args)
        self.missed: list[str] = []  # what the constructor needed and did not get
        if self.is_class:
            self._split_args(args)

    def offer(self, parameter: str, value: Any) -> None:
        """Pass a value to the constructor if it has this parameter and the configuration does not set it."""
        if self.is_class and parameter in self._parameters:
            self._constructor_args.setdefault(parameter, value)

    @cached_property
    def object(self) -> Any:
        """The function or object itself."""
        if not self.is_class:
            return self.definition
        arguments = own_copy(self._constructor_args)
        if self._config_class is not None:
            arguments["config"] = self._config_class(**own_copy(self._config_args))
        with CallWatch() as watch:
            instance = self.definition(**arguments)
        self.missed = watch.missed
        return instance

    @property
    def settable(self) -> list[str]:
        """Names of the constructor's parameters and of the fields of its `config`."""
        if not self.is_class:
            return []
        return [name for name in [*self._parameters, *self._config_fields] if name != "config"]

    def check_constructor(self) -> None:
        """Raise RewardSignatureError if the configuration lacks an argument that the constructor requires."""
        if not self.is_class:
            return
        for parameter in self._parameters.values():
            if parameter.default is parameter.empty and parameter.name not in self._constructor_args:
                if parameter.name == "config" and self._config_class is not None:
                    continue
                raise RewardSignatureError(
                    f"reward {self.name!r}: the constructor of {self.definition.__qualname__} requires "
                    f"`{parameter.name}`; set rewards.args.{self.name}.{parameter.name}",
                    code="invalid_reward_args",
                )

    def _split_args(self, args: Mapping[str, Any]) -> None:
        self._constructor_args = {name: value for name, value in args.items() if name in self._parameters}
        self._config_args = {
            name: value
            for name, value in args.items()
            if name in self._config_fields and name not in self._constructor_args
        }
        if self._config_args and "config" not in self._constructor_args:
            self._config_class = self._config_type
        if isinstance(config := self._constructor_args.get("config"), Mapping) and self._config_type is not None:
            self._config_class, self._config_args = self._config_type, dict(config)
        used_names = {*self._constructor_args, *self._config_args}
        self.call_args = {name: value for name, value in args.items() if name not in used_names}

    @cached_property
    def _parameters(self) -> dict[str, inspect.Parameter]:
        try:
            parameters = inspect.signature(self.definition).parameters
        except (TypeError, ValueError):
            return {}
        return {name: p for name, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}

    @cached_property
    def _config_type(self) -> type | None:
        """The dataclass that the constructor takes as `config`."""
        if "config" not in self._parameters:
            return None
        try:
            hint = typing.get_type_hints(self.definition.__init__).get("config")
        except Exception:  # annotations of a user's class may raise any error
            return None
        kinds = [kind for kind in (typing.get_args(hint) or (hint,)) if dataclasses.is_dataclass(kind)]
        return kinds[0] if kinds and isinstance(kinds[0], type) else None

    @cached_property
    def _config_fields(self) -> list[str]:
        return [field.name for field in dataclasses.fields(self._config_type)] if self._config_type else []


class Call:
    """A function, or a method of an object, called with the arguments that its signature names.

    Without `method` it calls the object itself.

    Raises:
        RewardSignatureError: The signature is not available.
    """

    def __init__(self, target: Target, method: str = "") -> None:
        self.target = target
        self.method = method
        self.signature = _signature_of(target, method)
        self.is_async = _is_async(target, method)
        parameters = self.signature.parameters.values()
        self.names = [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        self.takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._positional = [p for p in parameters if p.kind is p.POSITIONAL_ONLY]
        self._named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]

    @property
    def has_positional_only(self) -> bool:
        """True if a parameter is positional only."""
        return bool(self._positional)

    @property
    def required(self) -> list[str]:
        """Names of the parameters without a default."""
        parameters = (p for p in self.signature.parameters.values() if p.name in self.names)
        return [p.name for p in parameters if p.default is p.empty]

    def __call__(self, available: Mapping[str, Any], lazily: Mapping[str, Callable[[], Any]] | None = None) -> Any:
        """Call the function with the available arguments that it names, or with all if it takes `**kwargs`.

        Mutable values of `available` are copied for each call. The values of `lazily` are computed only if the function
        takes them.
        """
        lazily = lazily or {}

        def take(name: str) -> Any:
            return lazily[name]() if name in lazily else own_copy(available[name])

        positional = []
        for parameter in self._positional:
            if parameter.name in available or parameter.name in lazily:
                positional.append(take(parameter.name))
            elif parameter.default is not parameter.empty:
                positional.append(parameter.default)
            else:
                raise RewardSignatureError(
                    f"the row has no column for a required parameter of {self.signature}", code="invalid_mixture"
                )
        if self.takes_any:
            by_position = {parameter.name for parameter in self._positional}
            names = [name for name in {**available, **lazily} if name not in by_position]
        else:
            names = [name for name in self._named if name in available or name in lazily]
        return self.function(*positional, **{name: take(name) for name in names})

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The function or bound method that is called."""
        owner = self.target.object
        function: Callable[..., Any] = getattr(owner, self.method) if self.method else owner
        # A `BaseReward` checks the whole returned list. This package checks each value instead.
        unchecked = getattr(type(owner).__call__, "unchecked", None) if not self.method else None
        return function if unchecked is None else functools.partial(unchecked, owner)


def _signature_of(target: Target, method: str) -> inspect.Signature:
    definition = target.definition
    if not target.is_class and not method and not callable(definition):
        raise RewardSignatureError(f"reward {target.name!r} must be callable, but is {definition!r}; name a function")
    if target.is_class and not method and not any("__call__" in vars(kind) for kind in definition.__mro__):
        raise RewardSignatureError(
            f"reward {target.name!r} is the class {definition.__qualname__}, which must have `__call__` or "
            "`compute_reward`, but has neither; name a function, or write one of these methods"
        )
    if target.is_class and (missing := sorted(getattr(definition, "__abstractmethods__", ()))):
        raise RewardSignatureError(
            f"reward {target.name!r} is the class {definition.__qualname__}, which lacks required methods of its base "
            f"class: {', '.join(missing)}; write them, or name a class that has them"
        )
    function = getattr(definition, method or "__call__") if target.is_class or method else definition
    try:
        signature = _outermost(function, inspect.signature(function))
    except (TypeError, ValueError) as error:
        raise RewardSignatureError(
            f"reward {target.name!r} has no readable signature: {error}; wrap it in a function"
        ) from error
    if target.is_class and not isinstance(inspect.getattr_static(definition, method or "__call__"), staticmethod):
        if isinstance(inspect.getattr_static(definition, method or "__call__"), classmethod):
            return signature
        return signature.replace(parameters=list(signature.parameters.values())[1:])
    return signature


def _outermost(function: Any, signature: inspect.Signature) -> inspect.Signature:
    """Return the wrapped function's signature, or the wrapper's own if it cannot be called with the wrapped one.

    `inspect.signature` shows the wrapped function of `functools.wraps`. A wrapper that makes a batch reward of a
    function of one response, for instance, requires `completions`.
    """
    if not hasattr(function, "__wrapped__"):
        return signature
    try:
        own = inspect.signature(function, follow_wrapped=False)
    except ValueError:  # a wrapper in C, such as that of `functools.lru_cache`, takes what the wrapped function takes
        return signature
    parameters = signature.parameters.values()
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    own_parameters = {p.name: None for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    try:
        own.bind(*positional, **own_parameters)
    except TypeError:
        return own
    return signature


def _is_async(target: Target, method: str) -> bool:
    definition = target.definition
    function = getattr(definition, method) if method else (definition.__call__ if target.is_class else definition)
    candidates = [function, getattr(function, "__call__", None), inspect.unwrap(function)]  # noqa: B004
    return any(inspect.iscoroutinefunction(candidate) for candidate in candidates)


def refuse_unknown(name: str, args: Mapping[str, Any], settable: list[str], takes_any: bool, where: str) -> None:
    """Raise RewardError if the configuration sets an argument that nothing takes."""
    for argument in args:
        if argument not in settable and not takes_any:
            raise RewardError(
                f"reward {name!r} has no argument {argument!r}; it has: {', '.join(settable) or 'none'}. ({where})",
                code="invalid_reward_args",
            )
