import asyncio
import json
import math
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from agent_tunix.environments import CallOutcome, FunctionTool, SchemaTool
from agent_tunix.environments.outcomes import to_text
from agent_tunix.errors import InvalidEnvironmentError
from tests.raising import raises


def google(query: str, limit: int = 3, exact: bool | None = None) -> str:
    """Search the manual.

    Every page counts.

    Args:
        query: Words to
            look for.
        limit: Number of results.

    Returns:
        The pages.
    """
    return f"{query!r} {limit!r} {exact!r}"


def sphinx(query: str, limit: int = 3) -> str:
    """Search the manual.

    :param query: Words to look for.
    :param limit: Number of results.
    """
    return query


@dataclass
class Point:
    x: float
    y: float = 0.0


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def painted(colour: Colour, other: Colour | None = None) -> str:
    """Paint."""
    return f"{colour.value} {other}"


def typed(
    point: Point, kind: Literal["near", "far"], sizes: list[int], weight: Annotated[float, Field(gt=0)] = 1.0
) -> dict[str, Any]:
    """Place a point."""
    return {"x": point.x, "kind": kind, "sizes": sizes, "weight": weight}


def awkward(json: str, copy: int, model_config: str = "a", schema: str = "b", title: str = "c") -> str:
    """Take names that `BaseModel` uses."""
    return f"{json} {copy} {model_config} {schema} {title}"


def keywords(name: str, **rest: Any) -> str:
    """Take anything."""
    return f"{name} {rest}"


def positional(first: str, /, second: int = 2) -> str:
    """Take a positional argument."""
    return f"{first} {second}"


def all_positional(a: int = 1, b: int = 2, /) -> str:
    """Add."""
    return f"{a} {b}"


def untyped(value, other=None):  # type: ignore[no-untyped-def]
    return (value, other)


async def waits(seconds: float) -> str:
    """Wait."""
    return f"{seconds} s"


def endless(limit: float = math.inf) -> str:
    """Have a default that JSON lacks."""
    return str(limit)


def fails(kind: str) -> str:
    """Fail."""
    if kind == "exit":
        raise SystemExit(3)
    raise KeyError("of a user (really)")


def test_the_schema_comes_from_hints_and_a_google_docstring() -> None:
    declaration = FunctionTool(google).declaration()
    assert declaration == {
        "type": "function",
        "function": {
            "name": "google",
            "description": "Search the manual.\n\nEvery page counts.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "Words to look for."},
                    "limit": {"type": "integer", "default": 3, "description": "Number of results."},
                    "exact": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
                },
                "required": ["query"],
            },
        },
    }


def test_a_sphinx_docstring_says_the_same() -> None:
    properties = FunctionTool(sphinx).parameters["properties"]
    assert properties["query"]["description"] == "Words to look for."
    assert properties["limit"]["description"] == "Number of results."


@pytest.mark.parametrize(
    "function", [endless, google, sphinx, typed, awkward, keywords, positional, untyped, waits, fails]
)
def test_every_schema_is_json(function: Any) -> None:
    declaration = FunctionTool(function).declaration()
    assert json.loads(json.dumps(declaration, allow_nan=False)) == declaration


ACCEPTED: list[tuple[Any, dict[str, Any], str]] = [
    (google, {"query": "a"}, "'a' 3 None"),
    (google, {"query": "a", "limit": "7"}, "'a' 7 None"),
    (google, {"query": "a", "limit": 7.0}, "'a' 7 None"),
    (google, {"query": 12}, "'12' 3 None"),
    (google, {"query": "a", "exact": "true"}, "'a' 3 True"),
    (google, {"query": "a", "exact": None}, "'a' 3 None"),
    (
        typed,
        {"point": {"x": 1}, "kind": "far", "sizes": ["1", 2]},
        '{"x": 1.0, "kind": "far", "sizes": [1, 2], "weight": 1.0}',
    ),
    (awkward, {"json": "j", "copy": 1, "schema": "s"}, "j 1 a s c"),
    (keywords, {"name": "n", "other": [1]}, "n {'other': [1]}"),
    (positional, {"first": "f"}, "f 2"),
    (positional, {"second": 3, "first": "f"}, "f 3"),
    (all_positional, {"b": 5}, "1 5"),
    (untyped, {"value": [1, None]}, "[[1, null], null]"),
    (waits, {"seconds": 1}, "1.0 s"),
    (painted, {"colour": "red"}, "red None"),
]


@pytest.mark.parametrize(("function", "arguments", "expected"), ACCEPTED)
def test_arguments_are_converted(function: Any, arguments: dict[str, Any], expected: str) -> None:
    result = FunctionTool(function).call(arguments)
    assert (result.outcome, result.text) == (CallOutcome.OK, expected)


REFUSED: list[tuple[Any, dict[str, Any], list[str]]] = [
    (google, {}, ["`query` is required", "query (string, required)", "limit (integer)"]),
    (google, {"querry": "a"}, ["`query` is required", "no argument `querry`"]),
    (google, {"query": "a", "limit": "seven"}, ["`limit` must be", '"seven"']),
    (google, {"query": "a", "limit": 1.5}, ["`limit` must be", "1.5"]),
    (google, {"query": "a", "limit": None}, ["`limit` must be", "null"]),
    (google, {"query": ["a"]}, ["`query` must be", '["a"]']),
    (google, {"query": "a", "limit": "9" * 5000}, ["`limit` must be"]),
    (typed, {"point": {"y": 1}, "kind": "near", "sizes": []}, ["`point.x` is required"]),
    (painted, {"colour": "green"}, ["`colour` must be 'red' or 'blue'", 'colour ("red" | "blue", required)']),
    (painted, {}, ['other ("red" | "blue" | null)']),
    (typed, {"point": 1}, ["point (object, required)"]),
    (typed, {"point": {"x": 1}, "kind": "middle", "sizes": []}, ["`kind` must be 'near' or 'far'", '"middle"']),
    (typed, {"point": {"x": 1}, "kind": "near", "sizes": [1, "a"]}, ["`sizes.1` must be", '"a"']),
    (typed, {"point": {"x": 1}, "kind": "near", "sizes": [], "weight": 0}, ["`weight` must be greater than 0"]),
    (waits, {"seconds": float("nan")}, ["`seconds` must be a finite number"]),
    (positional, {"second": 1}, ["`first` is required"]),
]


@pytest.mark.parametrize(("function", "arguments", "parts"), REFUSED)
def test_wrong_arguments_are_told_with_what_was_required_and_what_arrived(
    function: Any, arguments: dict[str, Any], parts: list[str]
) -> None:
    result = FunctionTool(function).call(arguments)
    assert result.outcome is CallOutcome.BAD_ARGUMENTS
    assert [part for part in parts if part not in result.text] == []


def test_many_faults_are_told_in_short() -> None:
    arguments = {"point": {"x": 1}, "kind": "near", "sizes": ["a"] * 10_000}
    text = FunctionTool(typed).call(arguments).text
    assert "and 9995 more" in text
    assert len(text) < 1000
    assert len(FunctionTool(google).call({"x" * 10_000: 1}, max_result_chars=100).text) < 300


async def cancelled() -> str:
    """Be cancelled."""
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        {"properties": None, "required": None},
        {"properties": {"a": True}},
        {"properties": {"a": {"type": 5, "enum": 5}}},
        {"properties": {"a": {"type": [[]], "anyOf": 5}}},
    ],
)
def test_a_schema_with_parts_left_out_or_of_other_types_takes_anything(schema: Any) -> None:
    result = SchemaTool("tool", "", schema, lambda given: sorted(given)).call({"a": 1})
    assert result.outcome is CallOutcome.OK


@pytest.mark.parametrize("kind", ["raise", "exit"])
def test_an_error_of_a_tool_is_a_result_without_paths_for_the_model(kind: str) -> None:
    result = FunctionTool(fails).call({"kind": kind})
    assert result.outcome is CallOutcome.TOOL_ERROR
    assert "test_tools.py" not in result.text
    assert "test_tools.py" in result.detail
    if kind == "raise":
        assert "of a user (really)" in result.text


def test_a_result_that_is_too_long_is_cut_and_says_so() -> None:
    tool = FunctionTool(lambda: "x" * 1000, "long")
    result = tool.call({}, max_result_chars=10)
    assert result.outcome is CallOutcome.TOO_LONG
    assert result.text.startswith("x" * 10 + "\n[cut:")
    assert "1,000" in result.text
    assert tool.call({}, max_result_chars=1000).outcome is CallOutcome.OK


def stars(*words: str) -> str:
    return ""


def strange(handle: type[object.__subclasshook__]) -> str:  # type: ignore[valid-type]
    return ""


def missing(value: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821
    return ""


class Custom:
    pass


def custom(value: Custom) -> str:
    return ""


@pytest.mark.parametrize("function", [stars, missing, custom])
def test_a_function_that_cannot_be_described_is_refused_before_any_episode(function: Any) -> None:
    with raises(InvalidEnvironmentError, "invalid_tool"):
        FunctionTool(function)


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": ["string", "null"]}, "c": {}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        ({"a": 1}, True),
        ({"a": 1.0}, True),
        ({"a": 1, "b": None, "c": object()}, True),
        ({"a": True}, False),
        ({"a": 1.5}, False),
        ({"a": "1"}, False),
        ({"b": "x"}, False),
        ({"a": 1, "b": 2}, False),
        ({"a": 1, "d": 2}, False),
    ],
)
def test_a_schema_that_comes_with_a_tool_is_checked_at_its_outermost_level(arguments: Any, fits: bool) -> None:
    result = SchemaTool("tool", "", SCHEMA, lambda given: sorted(given)).call(arguments)
    assert result.outcome is (CallOutcome.OK if fits else CallOutcome.BAD_ARGUMENTS)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (None, ""),
        (1, "1"),
        (True, "true"),
        ({"a": (1, None)}, '{"a": [1, null]}'),
        pytest.param(iter([1, 2]), "[1, 2]", id="iterator"),
        (b"\xff", "�"),
        (Point(1), '{"x": 1, "y": 0.0}'),
        ([Point], f"[{json.dumps(str(Point))}]"),
    ],
)
def test_every_result_becomes_text(value: Any, text: str) -> None:
    found = to_text(value)
    assert type(found) is str
    assert found == text
