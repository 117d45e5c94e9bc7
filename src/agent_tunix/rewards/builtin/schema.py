"""Rewards for JSON that follows a schema."""

import contextlib
import functools
import json
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from agent_tunix.errors import BadReferenceError, RewardError
from agent_tunix.patterns import compile_pattern
from agent_tunix.rewards.answers.comparison import excerpt
from agent_tunix.rewards.builtin.code import extract_code
from agent_tunix.rewards.sample import Score

_LONGEST_JSON = 20_000
# Most characters of a schema, and most entries of a list in it: jsonschema compares each entry with all others.
_LONGEST_SCHEMA, _LONGEST_LIST = 20_000, 1_000
# Limit on the wall time of all checks of one response: even a small schema can make them endless.
CHECKS_S = 5.0
_STARTED: ContextVar[float] = ContextVar("started")


def json_schema_reward(response: str, schema: Any) -> Score:
    """Check that the response is JSON that follows a schema. Range [0, 1].

    - 1.0: it is JSON that follows the schema
    - 0.25: it is JSON, but breaks the schema
    - 0.0: it is not JSON, or is longer than 20,000 characters

    The JSON is the last block between ``` fences, or the text in the `<answer>` tags, or the whole response. `schema`
    is a column of the dataset or an argument: a JSON schema as a mapping or as text, without references to other files
    and of at most 20,000 characters. A schema that takes longer than five seconds to check a response is a bad
    reference. Requires the package jsonschema: `pip install agent_tunix[schema]`.

    >>> score = get_reward_function("json_schema")
    >>> schema = {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}}
    >>> [score(text, schema=schema) for text in ('{"x": 4}', '{"x": "4"}', "x is 4")]
    [1.0, 0.25, 0.0]
    """
    validator = _validator(schema)
    started = _STARTED.set(time.monotonic())
    try:
        return _score(response, validator)
    finally:
        _STARTED.reset(started)


def _score(response: str, validator: Any) -> Score:
    try:
        value = _load(extract_code(response))
    except (ValueError, RecursionError) as error:
        return Score(0.0, detail=f"it is not JSON: {error}")
    try:
        with _no_panic():
            fault = next(validator.iter_errors(value), None)
    except RecursionError:
        return Score(0.25, detail="it is nested too deeply to check")
    except OverflowError:
        return Score(0.25, detail="a number is too large to check")
    except BadReferenceError:
        raise
    except Exception as error:  # the schema has a reference that does not resolve
        raise BadReferenceError(f"the schema cannot be used: {error}") from error
    if fault is None:
        return Score(1.0, detail="it matches the schema")
    return Score(0.25, detail=f"at {fault.json_path}: {excerpt(fault.message)}")


def _validator(schema: Any) -> Any:
    try:
        import jsonschema
        import referencing
    except ImportError as error:
        raise RewardError(
            "the reward json_schema requires the package jsonschema; run `pip install agent_tunix[schema]`",
            code="missing_dependency",
        ) from error
    try:
        if isinstance(schema, str):
            schema = json.loads(schema)
        if not isinstance(schema, Mapping):
            raise BadReferenceError(f"the schema {excerpt(schema)} is not a JSON object")
        _require_small(schema)
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        with _no_panic():
            kind.check_schema(schema)
    except (ValueError, TypeError, RecursionError, jsonschema.SchemaError) as error:
        raise BadReferenceError(f"the schema cannot be used: {excerpt(str(error))}") from error
    # Behind a reference, jsonschema would use the class that `$schema` names, which has no limit on patterns.
    plain = {name: value for name, value in schema.items() if name != "$schema"}
    if "patternProperties" in (text := json.dumps(plain)) and "unevaluatedProperties" in text:
        raise BadReferenceError("a schema may have patternProperties or unevaluatedProperties, not both")
    if '"$schema": "' in text:
        raise BadReferenceError("$schema is allowed only at the top of a schema")
    return _limited(kind)(plain, registry=referencing.Registry())  # the empty registry fetches nothing


@contextlib.contextmanager
def _no_panic() -> Iterator[None]:
    """Raise RecursionError where a library of jsonschema, written in Rust, meets the end of Python's stack.

    Its `PanicException` is no Exception, so it would end the run. It cannot be imported.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise RecursionError(str(error)) from error


def _require_small(schema: Any) -> None:
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list) and len(part) > _LONGEST_LIST:
            raise BadReferenceError(f"a list in a schema may have {_LONGEST_LIST:,} entries, but has {len(part):,}")
        waiting += part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()
    if (length := len(json.dumps(schema))) > _LONGEST_SCHEMA:
        raise BadReferenceError(f"a schema may have {_LONGEST_SCHEMA:,} characters, but has {length:,}")


@functools.cache
def _limited(kind: Any) -> Any:
    """Return a class of validators with a limit on time; jsonschema's have none."""
    import jsonschema

    def check_pattern(validator: Any, pattern: str, value: Any, _: Any) -> Iterator[Any]:
        if validator.is_type(value, "string") and not _is_found(pattern, value):
            yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")

    def check_pattern_properties(validator: Any, patterns: Any, value: Any, _: Any) -> Iterator[Any]:
        if validator.is_type(value, "object"):
            for pattern, inner in patterns.items():
                for name in value:
                    if _is_found(pattern, name):
                        yield from validator.descend(value[name], inner, path=name, schema_path=pattern)

    def check_additional_properties(validator: Any, inner: Any, value: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(value, "object"):
            patterns = schema.get("patternProperties", {})
            value = {name: one for name, one in value.items() if not any(_is_found(each, name) for each in patterns)}
            without = {name: one for name, one in schema.items() if name != "patternProperties"}
            yield from kind.VALIDATORS["additionalProperties"](validator, inner, value, without)

    def check_unique(validator: Any, wanted: Any, value: Any, _: Any) -> Iterator[Any]:
        if wanted and validator.is_type(value, "array") and len(set(map(_hashable, value))) < len(value):
            yield jsonschema.ValidationError(f"{value!r} has the same item twice")

    def in_time(check: Any) -> Any:
        def check_in_time(validator: Any, *args: Any) -> Iterator[Any]:
            if _left_s() < 0:
                raise _too_long()
            yield from check(validator, *args) or ()

        return check_in_time

    own = {
        **{name: in_time(check) for name, check in kind.VALIDATORS.items()},
        "pattern": check_pattern,
        "patternProperties": check_pattern_properties,
        "additionalProperties": check_additional_properties,
        "uniqueItems": check_unique,
    }
    return jsonschema.validators.extend(kind, {name: own[name] for name in kind.VALIDATORS})


def _hashable(value: Any) -> Any:
    """Return a hashable value; those of equal JSON values, such as 1 and 1.0 but not true, are equal."""
    if isinstance(value, dict):
        return frozenset((name, _hashable(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    return str(value).encode() if isinstance(value, bool) else value


def _is_found(pattern: str, text: str) -> bool:
    try:
        return compile_pattern(pattern).search(text, timeout=max(0.001, _left_s())) is not None
    except TimeoutError:
        raise _too_long() from None
    except ValueError as error:
        raise BadReferenceError(f"the schema's pattern {excerpt(pattern)} cannot be used: {error}") from None


def _left_s() -> float:
    return _STARTED.get() + CHECKS_S - time.monotonic()


def _too_long() -> BadReferenceError:
    return BadReferenceError(f"checking the schema takes longer than {CHECKS_S:g} s")


def _load(text: str) -> Any:
    if len(text) > _LONGEST_JSON:
        raise ValueError(f"longer than {_LONGEST_JSON} characters")
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
