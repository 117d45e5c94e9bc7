"""Metric values as plain Python."""

import json
import math
from typing import Any

import numpy as np
import pytest

from agent_tunix.tracking.values import is_histogram, is_number, to_plain


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (0.5, 0.5),
        (3, 3),
        (True, True),
        (None, None),
        ("text", "text"),
        (math.nan, None),
        (-math.inf, None),
        (np.float32(0.5), 0.5),
        (np.float64("nan"), None),
        (np.int64(2**40), 2**40),
        (np.bool_(True), True),
        (np.array(0.25), 0.25),
        (np.array([1.0, np.nan]), [1.0, None]),
        ([np.float32(1), (2, math.inf)], [1.0, [2, None]]),
        ({"counts": np.array([1, 2]), "edges": [0.0, np.float16(0.5), 1.0]}, {"counts": [1, 2], "edges": [0, 0.5, 1]}),
    ],
)
def test_value_becomes_plain(value: Any, plain: Any) -> None:
    assert to_plain(value) == plain
    assert type(to_plain(value)) is type(plain)
    json.dumps(to_plain(value), allow_nan=False)


@pytest.mark.parametrize(
    ("value", "histogram"),
    [
        ({"counts": [1, 2], "edges": [0, 0.5, 1]}, True),
        ({"counts": [1, 2], "edges": [0, 1]}, False),
        ({"counts": [1], "edges": [0, None]}, False),
        ({"counts": [], "edges": [0]}, False),
        ({"counts": [1]}, False),
        (0.5, False),
        (None, False),
    ],
)
def test_histogram_is_recognised(value: Any, histogram: bool) -> None:
    assert is_histogram(value) is histogram


def test_number_is_recognised() -> None:
    assert [is_number(value) for value in (1, 0.5, True, None, "1", [1])] == [True, True, True, False, False, False]
