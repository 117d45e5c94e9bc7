"""Tools: functions that a model may call, described by their type hints and docstrings.

    def search(query: str, limit: int = 3) -> str:
        \"\"\"Search the manual.

        :param query: Words to look for.
        :param limit: Number of results.
        \"\"\"

The JSON schema of the arguments comes from the hints and the docstring (Google, Sphinx or NumPy style). Arguments are
validated and converted before the call: "3" becomes 3 for an `int`. Arguments that do not fit never reach the function;
the model is told what was required and what arrived.
"""

import abc
import asyncio
import inspect
import json
import math
import time
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_tunix.environments.outcomes import DEFAULT_MAX_RESULT_CHARS, CallOutcome, CallResult, cut, to_text
from agent_tunix.errors import InvalidEnvironmentError
from agent_tunix.rewards.conventions import running
from agent_tunix.rewards.conventions.base import FAULTS
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.shims import served_imports

if typing.TYPE_CHECKING:
    from pydantic import BaseModel

_SHOWN_CHARS = 80
_SHOWN_FAULTS = 5
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}


# Errors of users' code that become outcomes.
USER_FAULTS = (*FAULTS, asyncio.CancelledError)


class BadArgumentsError(Exception):
    """Error for arguments that do not fit the tool. The message is for the model."""


class Tool(abc.ABC):
    """A tool that a model may call.

    Attributes:
        name: Name in calls.
        description: Purpose, from the docstring.
        parameters: JSON schema of the arguments, an object.
        may_overlap: True if calls of one turn may run at the same time.
    """

    may_overlap = False

    def __init__(self, name: str, description: str, parameters: Mapping[str, Any]) -> None:
        self.name = name
        self.description = description
        self.parameters = dict(parameters)

    @abc.abstractmethod
    def convert(self, arguments: Mapping[str, Any]) -> Any:
        """Return the arguments as `run` takes them; raise BadArgumentsError if they do not fit."""

    @abc.abstractmethod
    def run(self, converted: Any) -> Any:
        """Return the result; errors of the user's code propagate."""

    def declaration(self) -> dict[str, Any]:
        """Return the tool as chat templates and OpenAI's API take it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def call(self, arguments: Mapping[str, Any], max_result_chars: int = DEFAULT_MAX_RESULT_CHARS) -> CallResult:
        """Call the tool with the arguments of a model. Every fault becomes an outcome with a text for the model."""
        started = time.perf_counter()
        try:
            with served_imports():
                text = to_text(self.run(self.convert(arguments)))
        except BadArgumentsError as error:
            return CallResult(cut(f"Error: {error}", max_result_chars), CallOutcome.BAD_ARGUMENTS)
        except USER_FAULTS as error:  # a user's tool may raise anything
            seconds = time.perf_counter() - started
            detail = describe_fault(error)
            message = describe_fault(error.with_traceback(None))  # paths of files are not for the model
            text = cut(f"Error: {self.name} failed: {message}", max_result_chars)
            return CallResult(text, CallOutcome.TOOL_ERROR, seconds, detail)
        outcome = CallOutcome.OK if len(text) <= max_result_chars else CallOutcome.TOO_LONG
        return CallResult(cut(text, max_result_chars), outcome, time.perf_counter() - started)


class FunctionTool(Tool):
    """A function or bound method, sync or async.

    Args:
        function: The function. Every parameter becomes an argument, `**kwargs` any further argument.
        name: Name in calls; by default that of the function.

    Raises:
        InvalidEnvironmentError: The parameters cannot be described as JSON.
    """

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        self.function = function
        name = name or str(getattr(function, "__name__", type(function).__name__))
        self._signature = _signature_of(function, name)
        description, notes = _read_docstring(function)
        self._model = _make_model(function, name, self._signature, notes)
        super().__init__(name, description, _make_schema(self._model, name))

    def convert(self, arguments: Mapping[str, Any]) -> inspect.BoundArguments:
        """Return the arguments bound to the function's parameters."""
        from pydantic import ValidationError

        try:
            model = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            faults = [_describe_error(fault) for fault in error.errors(include_url=False)]
            raise BadArgumentsError(_refusal(self, faults)) from None
        values = {str(info.alias): getattr(model, field) for field, info in type(model).model_fields.items()}
        converted = {name: value for name, value in values.items() if name in arguments}
        return _bind(self._signature, {**converted, **(model.model_extra or {})})

    def run(self, converted: inspect.BoundArguments) -> Any:
        """Return the function's result, awaited if needed."""
        result = self.function(*converted.args, **converted.kwargs)
        return running.run(running.awaited(result)) if inspect.isawaitable(result) else result


class SchemaTool(Tool):
    """A tool that comes with its own JSON schema, as those of benchmax do.

    Only the outermost level is checked: required arguments, types, and unknown arguments if `additionalProperties` is
    false. The tool checks the rest.

    Args:
        function: Called with the arguments as a mapping; sync or async.
    """

    def __init__(
        self,
        name: str,
        description: str,
        parameters: Mapping[str, Any] | None,
        function: Callable[[dict[str, Any]], Any],
    ) -> None:
        super().__init__(name, description, _completed(parameters or {}))
        self.function = function

    def convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments."""
        properties = self.parameters["properties"]
        faults = [f"`{name}` is required, but missing" for name in self.parameters["required"] if name not in arguments]
        for name, value in arguments.items():
            if name not in properties:
                if self.parameters.get("additionalProperties") is False:
                    faults.append(f"there is no argument `{name}`")
            elif not _has_type(value, properties[name]):
                faults.append(
                    f"`{name}` must be of type {_type_of(properties[name], self.parameters)}, not {_show(value)}"
                )
        if faults:
            raise BadArgumentsError(_refusal(self, faults))
        return dict(arguments)

    def run(self, converted: dict[str, Any]) -> Any:
        """Return the function's result, awaited if needed."""
        result = self.function(converted)
        return running.run(running.awaited(result)) if inspect.isawaitable(result) else result


class DeclaredTool(Tool):
    """The declaration of a tool that runs in another process."""

    def convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Raise TypeError: the tool is called in its own process."""
        raise TypeError(f"{self.name} runs in another process")

    def run(self, converted: Any) -> Any:
        """Raise TypeError: the tool is called in its own process."""
        raise TypeError(f"{self.name} runs in another process")


def _signature_of(function: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise InvalidEnvironmentError(
            f"the tool {name!r} must have a readable signature: {error}; wrap it in a function", code="invalid_tool"
        ) from error
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in signature.parameters.values()):
        raise InvalidEnvironmentError(
            f"the tool {name!r} takes *args, which a model cannot name; give it named parameters", code="invalid_tool"
        )
    return signature


def _read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the description of a function and of its parameters."""
    import docstring_parser

    text = inspect.getdoc(function) or ""
    try:
        docstring = docstring_parser.parse(text)
    except docstring_parser.ParseError:  # a docstring need not follow any style
        return text, {}
    parts = [docstring.short_description, docstring.long_description]
    notes = {one.arg_name: " ".join((one.description or "").split()) for one in docstring.params}
    return "\n\n".join(part for part in parts if part), notes


def _make_model(
    function: Callable[..., Any], name: str, signature: inspect.Signature, notes: Mapping[str, str]
) -> "type[BaseModel]":
    """Return a model of the arguments. Its fields are numbered, because some names are taken by `BaseModel`."""
    from pydantic import ConfigDict, Field, create_model
    from pydantic.errors import PydanticUserError

    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # a user's annotation may raise anything
        raise InvalidEnvironmentError(
            f"the type hints of the tool {name!r} cannot be read: {describe_fault(error)}; import what they name",
            code="invalid_tool",
        ) from error
    fields: dict[str, Any] = {}
    takes_any = False
    for place, parameter in enumerate(signature.parameters.values()):
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_any = True
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        field = Field(default, alias=parameter.name, description=notes.get(parameter.name) or None)
        fields[f"argument_{place}"] = (hints.get(parameter.name, Any), field)
    config = ConfigDict(extra="allow" if takes_any else "forbid", coerce_numbers_to_str=True, allow_inf_nan=False)
    try:
        model: type[BaseModel] = create_model(name, __config__=config, **fields)
    except (PydanticUserError, TypeError) as error:
        raise InvalidEnvironmentError(
            f"the parameters of the tool {name!r} cannot be described as JSON: {str(error).splitlines()[0]}; use "
            "str, int, float, bool, list, dict, Literal or a dataclass",
            code="invalid_tool",
        ) from error
    return model


def _make_schema(model: "type[BaseModel]", name: str) -> dict[str, Any]:
    from pydantic.errors import PydanticUserError

    try:
        schema: dict[str, Any] = _without_titles(model.model_json_schema(by_alias=True))
        json.dumps(schema)
    except (PydanticUserError, TypeError, ValueError) as error:
        raise InvalidEnvironmentError(
            f"the parameters of the tool {name!r} cannot be described as JSON: {str(error).splitlines()[0]}; use "
            "str, int, float, bool, list, dict, Literal or a dataclass",
            code="invalid_tool",
        ) from error
    schema.pop("additionalProperties", None)
    return {"type": "object", "properties": {}, **schema}


def _without_titles(schema: Any, is_properties: bool = False) -> Any:
    """Return a schema without the titles that pydantic makes of names; a property may itself be named `title`."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_titles(value, key in ("properties", "$defs") and not is_properties)
        for key, value in schema.items()
        if is_properties or (key != "title" and not _is_infinite(value))
    }


def _is_infinite(value: Any) -> bool:
    """Return True for a default that JSON does not have."""
    return isinstance(value, float) and not math.isfinite(value)


def _completed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of arguments, with the parts that its author left out."""
    properties, required = schema.get("properties"), schema.get("required")
    return {
        **schema,
        "type": "object",
        "properties": dict(properties) if isinstance(properties, Mapping) else {},
        "required": [str(name) for name in required] if isinstance(required, list | tuple) else [],
    }


def _bind(signature: inspect.Signature, values: Mapping[str, Any]) -> inspect.BoundArguments:
    keywords, positional = dict(values), []
    alone = [one for one in signature.parameters.values() if one.kind is one.POSITIONAL_ONLY]
    while alone and alone[-1].name not in keywords:
        alone.pop()
    for parameter in alone:  # one before a given one is given too
        positional.append(keywords.pop(parameter.name, parameter.default))
    return signature.bind(*positional, **keywords)


def _describe_error(fault: Mapping[str, Any]) -> str:
    """Return one fault that pydantic found, as a sentence for the model."""
    place = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "missing":
        return f"`{place}` is required, but missing"
    if fault["type"] == "extra_forbidden":
        return f"there is no argument `{place}`"
    message = str(fault["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    return f"`{place}` must be {message}, not {_show(fault.get('input'))}"


def _refusal(tool: Tool, faults: Sequence[str]) -> str:
    more = f"; and {len(faults) - _SHOWN_FAULTS} more" if len(faults) > _SHOWN_FAULTS else ""
    reasons = "; ".join(faults[:_SHOWN_FAULTS]) + more
    required = tool.parameters.get("required", ())
    takes = [
        f"{name} ({_type_of(schema, tool.parameters)}{', required' if name in required else ''})"
        for name, schema in (tool.parameters.get("properties") or {}).items()
    ]
    return f"bad arguments for {tool.name}: {reasons}. It takes: {', '.join(takes) or 'no arguments'}."


def definition_of(schema: Mapping[str, Any], parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the definition in `$defs` that a schema names by `$ref`, or the schema; {} for an unknown definition."""
    if "$ref" not in schema:
        return schema
    definitions = parameters.get("$defs")
    definition = definitions.get(str(schema["$ref"]).rpartition("/")[2]) if isinstance(definitions, Mapping) else None
    return definition if isinstance(definition, Mapping) else {}


def _type_of(schema: Any, parameters: Mapping[str, Any]) -> str:
    if not isinstance(schema, Mapping):
        return "any"
    if "$ref" in schema:
        definition = definition_of(schema, parameters)
        return _type_of(
            {key: definition[key] for key in ("enum", "type") if key in definition} or {"type": "object"}, {}
        )
    if isinstance(schema.get("enum"), list):
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    if isinstance(schema.get("anyOf"), list):
        return " | ".join(_type_of(option, parameters) for option in schema["anyOf"])
    return str(schema.get("type", "any"))


def _has_type(value: Any, schema: Any) -> bool:
    kinds = schema.get("type") if isinstance(schema, Mapping) else None
    types = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str)]
    classes = tuple(kind for one in types for kind in _JSON_TYPES.get(one, (object,)))
    if not classes:
        return True
    if isinstance(value, bool) and bool not in classes and object not in classes:
        return False
    return isinstance(value, classes) or ("integer" in types and isinstance(value, float) and value.is_integer())


def _show(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
