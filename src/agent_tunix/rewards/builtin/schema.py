"""Rewards for JSON that follows a schema."""

import json
from collections.abc import Mapping
from typing import Any

from agent_tunix.errors import BadReferenceError, RewardError
from agent_tunix.rewards.answers.comparison import excerpt
from agent_tunix.rewards.builtin.code import code_blocks
from agent_tunix.rewards.sample import Score

_LONGEST_JSON = 20_000


def json_schema_reward(response: str, schema: Any) -> Score:
    """Check that the response is JSON that follows a schema. Range [0, 1].

    - 1.0: it is JSON that follows the schema
    - 0.25: it is JSON, but breaks the schema
    - 0.0: it is not JSON, or is longer than 20,000 characters

    The JSON is the last block between ``` fences, or the text in the `<answer>` tags, or the whole response. `schema`
    is a column of the dataset or an argument: a JSON schema as a mapping or as text, without references to other files.
    Requires the package jsonschema: `pip install agent_tunix[schema]`.

    >>> score = get_reward_function("json_schema")
    >>> schema = {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}}
    >>> [score(text, schema=schema) for text in ('{"x": 4}', '{"x": "4"}', "x is 4")]
    [1.0, 0.25, 0.0]
    """
    validator = _validator(schema)
    try:
        value = _load(_json_text(response))
    except (ValueError, RecursionError) as error:
        return Score(0.0, detail=f"it is not JSON: {error}")
    try:
        fault = next(validator.iter_errors(value), None)
    except RecursionError:
        return Score(0.25, detail="it is nested too deeply to be checked")
    except Exception as error:  # the schema has a reference that does not resolve
        raise BadReferenceError(f"the schema cannot be used: {error}") from error
    if fault is None:
        return Score(1.0, detail="it follows the schema")
    return Score(0.25, detail=f"at {fault.json_path}: {excerpt(fault.message)}")


def _validator(schema: Any) -> Any:
    try:
        import jsonschema
        import referencing
    except ImportError as error:
        raise RewardError(
            "json_schema needs jsonschema: pip install agent_tunix[schema]", code="missing_dependency"
        ) from error
    try:
        if isinstance(schema, str):
            schema = json.loads(schema)
        if not isinstance(schema, Mapping):
            raise BadReferenceError(f"the schema {excerpt(schema)} is not a JSON object")
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        kind.check_schema(schema)
    except (ValueError, RecursionError, jsonschema.SchemaError) as error:
        raise BadReferenceError(f"the schema cannot be used: {excerpt(str(error))}") from error
    return kind(schema, registry=referencing.Registry())  # the empty registry fetches nothing


def _json_text(response: str) -> str:
    blocks = code_blocks(response)
    if blocks:
        return blocks[-1][1]
    _, opening, rest = response.rpartition("<answer>")
    return rest.partition("</answer>")[0] if opening else response


def _load(text: str) -> Any:
    if len(text) > _LONGEST_JSON:
        raise ValueError(f"longer than {_LONGEST_JSON} characters")
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
