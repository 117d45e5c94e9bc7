"""Rewards for JSON that follows a schema."""

import json
from collections.abc import Mapping
from typing import Any

from agent_tunix.errors import BadReferenceError, RewardError
from agent_tunix.rewards.answers.comparison import excerpt
from agent_tunix.rewards.builtin.code import extract_code
from agent_tunix.rewards.sample import Score

_LONGEST_JSON = 20_000


def json_schema_reward(response: str, schema: Any) -> Score:
    """Check that the response is JSON that follows a schema. Range [0, 1].

    - 1.0: it is JSON that follows the schema
    - 0.25: it is JSON, but breaks the schema
    - 0.0: it is not JSON, or is longer than 20,000 characters

    The JSON is the last block between ``` fences, or the text in the `<answer>` tags, or the whole response. `schema`
    is a column of the dataset or an argument: a JSON schema as a mapping or as text, without references to other files.
    The reward runs in worker processes, because a pattern of a schema may take forever: a check that takes longer than
    `rewards.timeout_s` is a timeout. Requires the package jsonschema: `pip install agent_tunix[schema]`.

    >>> score = get_reward_function("json_schema")
    >>> schema = {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}}
    >>> [score(text, schema=schema) for text in ('{"x": 4}', '{"x": "4"}', "x is 4")]
    [1.0, 0.25, 0.0]
    """
    validator = _validator(schema)
    try:
        value = _load(extract_code(response))
    except (ValueError, RecursionError) as error:
        return Score(0.0, detail=f"it is not JSON: {error}")
    try:
        fault = next(validator.iter_errors(value), None)
    except OverflowError:
        return Score(0.25, detail="a number is too large to check")
    except BaseException as error:
        # A library of jsonschema, written in Rust, raises a `PanicException` where it meets the end of Python's stack.
        if isinstance(error, RecursionError) or type(error).__name__ == "PanicException":
            return Score(0.25, detail="it is nested too deeply to check")
        if not isinstance(error, Exception):
            raise
        # A reference that does not resolve, or a pattern that is no regular expression.
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
            code="missing_package",
        ) from error
    try:
        if isinstance(schema, str):
            schema = json.loads(schema)
        if not isinstance(schema, Mapping):
            raise BadReferenceError(f"the schema {excerpt(schema)} is not a JSON object")
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        kind.check_schema(schema)
    except (ValueError, TypeError, RecursionError, jsonschema.SchemaError) as error:
        raise BadReferenceError(f"the schema cannot be used: {excerpt(str(error))}") from error
    return kind(schema, registry=referencing.Registry())  # the empty registry fetches nothing


def _load(text: str) -> Any:
    if len(text) > _LONGEST_JSON:
        raise ValueError(f"longer than {_LONGEST_JSON} characters")
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
