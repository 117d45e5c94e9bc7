from typing import Any

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards.mixture.routes import ALL_ROWS, read_route
from tests.raising import raises


@pytest.mark.parametrize(
    ("written", "columns", "applies"),
    [
        (None, {}, True),
        ({"kind": "math"}, {"kind": "math"}, True),
        ({"kind": "math"}, {"kind": "Math"}, False),
        ({"kind": "math"}, {}, False),
        ({"kind": "math"}, {"kind": None}, False),
        ({"kind": ["math", "logic"]}, {"kind": "logic"}, True),
        ({"kind": ["math", "logic"]}, {"kind": "poem"}, False),
        ({"kind": "math", "level": 3}, {"kind": "math", "level": 3}, True),
        ({"kind": "math", "level": 3}, {"kind": "math", "level": 2}, False),
        ({"level": 3}, {"level": "3"}, True),
        ({"level": "3"}, {"level": 3}, True),
        ({"hard": True}, {"hard": True}, True),
        ({"hard": True}, {"hard": False}, False),
        ({"hard": True}, {"hard": "true"}, True),
        ({"hard": True}, {"hard": "1"}, False),
        ({"level": 3}, {"level": "3.0"}, True),
        ({"level": 3}, {"level": "three"}, False),
        ("kind", {"kind": "sums"}, True),
        ("kind", {"kind": "poems"}, False),
        ("rewards", {"rewards": ["poems", "sums"]}, True),
        ("rewards", {"rewards": ["poems"]}, False),
        ("rewards", {"rewards": []}, False),
    ],
)
def test_routes(written: object, columns: dict[str, Any], applies: bool) -> None:
    assert (read_route("sums", written).obstacle(columns) is None) is applies


def test_an_obstacle_says_what_was_wanted_and_what_was_found() -> None:
    route = read_route("sums", {"kind": ["math", "logic"]})
    assert route.obstacle({"kind": "poem"}) == "it applies to rows with kind = math or logic, but this one has 'poem'"


def test_what_a_route_says_of_itself_can_be_written() -> None:
    route = read_route("sums", {"kind": ["math", "logic"], "level": 3})
    assert read_route("sums", route.to_data()) == route
    assert ALL_ROWS.to_data() == {}


@pytest.mark.parametrize("written", [3, [], {}, {"kind": []}, {"kind": None}, {"kind": {"is": "math"}}])
def test_a_malformed_route_is_refused(written: object) -> None:
    with raises(RewardError, "invalid_mixture"):
        read_route("sums", written)
