"""Any value as JSON text and back."""

import collections
import datetime
import decimal
import enum
import math
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from agent_tunix.tracking.rollouts.encoding import Opaque, decode, encode
from tests.tracking.rollouts.support import same

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=12)  # lone surrogates too
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.binary(max_size=8)
ARRAYS = hnp.arrays(
    st.sampled_from(["<f4", "<f8", ">i4", "<i8", "u1", "bool", "<f2", "<U3"]), hnp.array_shapes(min_dims=0, min_side=0)
)
KEYS = ANY_TEXT | st.integers() | st.tuples(st.integers(), ANY_TEXT) | st.just("$type")


def nested(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(values, max_size=4)
        | st.lists(values, max_size=4).map(tuple)
        | st.dictionaries(KEYS, values, max_size=4)
        | st.dictionaries(ANY_TEXT, values, max_size=4)
    )


@given(st.recursive(SCALARS | ARRAYS | st.sets(st.integers()), nested, max_leaves=12))
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    text = encode(value)
    text.encode()  # valid Unicode
    assert same(decode(text), value)


@pytest.mark.parametrize(
    "value",
    [
        -(2**10_000),
        np.float32(0.1),
        np.float64("nan"),
        np.int64(-3),
        np.bool_(True),
        "\ud800 \udfff 😀 \x00",
        {"$type": "tuple", "items": [1]},
        {1: "a", None: "b", (2, "c"): "d"},
        frozenset({(1, 2)}),
        {"set": {1, "a"}},
        datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC),
        datetime.date(2026, 1, 2),
        decimal.Decimal("0.10"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_odd_value_comes_back_as_it_was(value: Any) -> None:
    assert same(decode(encode(value)), value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"answer": "42", "list": [1, 2.5, None, True]}, '{"answer":"42","list":[1,2.5,null,true]}'),
        ("é 数", '"é 数"'),
        (math.nan, '{"$type":"float","value":"nan"}'),
        ((1, 2), '{"$type":"tuple","items":[1,2]}'),
        (np.float32(0.5), '{"$type":"scalar","dtype":"<f4","value":0.5}'),
    ],
)
def test_what_json_has_stands_for_itself_and_all_else_is_tagged(value: Any, text: str) -> None:
    assert encode(value) == text


class Pair(NamedTuple):
    a: int


class Colour(enum.Enum):
    RED = 1


class Word(enum.StrEnum):
    YES = "yes"


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class HostileMapping(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no")


def circle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        Colour.RED,
        Hostile(),
        HostileMapping(a=1),
        Fraction(1, 3),
        Path("a"),
        np.datetime64("2026-01-01"),
        np.array([object()]),
        np.longdouble(1) / 3,
        len,
        1j,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_stored_says_what_it_was(value: Any) -> None:
    found = decode(encode({"a": value}))["a"]
    assert isinstance(found, Opaque)
    assert found.kind.endswith(type(value).__qualname__)


def test_a_circle_ends_in_words() -> None:
    assert "opaque" in encode(circle())


def test_subclasses_come_back_as_what_they_are_a_kind_of() -> None:
    found = decode(encode([Word.YES, Pair(1), collections.OrderedDict(a=1), collections.defaultdict(int, b=2)]))
    assert same(found, ["yes", (1,), {"a": 1}, {"b": 2}])


@pytest.mark.parametrize("text", ["", "{", '{"$type":"no such"}', '{"$type":"bytes","base64":"é"}', '{"$type":"int"}'])
def test_text_that_was_not_written_so_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a stored value"):
        decode(text)
