import doctest
import math
from datetime import UTC, datetime
from types import ModuleType

import pytest

from agent_tunix.service.inspector import formats, login, showing


@pytest.mark.parametrize("module", [formats, login, showing])
def test_the_examples_hold(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (-0.0, "0"), (1.0, "1"), (100.0, "100"), (0.1 + 0.2, "0.3"), (-0.0004, "−0.0004"), (1e9, "1e+09"),
     (math.nan, "–"), (-math.inf, "–"), (10**400, "–")],
)  # fmt: skip
def test_a_number_is_short_and_true(value: float, shown: str) -> None:
    assert formats.number(value) == shown


def test_a_moment_is_told_in_utc() -> None:
    assert formats.moment(datetime(2026, 1, 2, 3, 4, tzinfo=UTC)) == "2026-01-02 03:04 UTC"
