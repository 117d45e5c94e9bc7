import tracemalloc

import numpy as np
import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards import normalize_reward
from agent_tunix.rewards.transforms import Clip, Map, Normalize, Rank, apply_transforms, read_transforms
from tests.raising import raises


@pytest.mark.parametrize(
    ("value", "options", "expected"),
    [
        (0.5, {}, 0.0),
        (0.7, {}, 1.0),
        (0.3, {}, -1.0),
        (1.1, {}, 3.0),
        (50.0, {}, 3.0),
        (-50.0, {}, -3.0),
        (3.0, {"mean": 1.0, "std": 2.0}, 1.0),
        (0.41, {"std": 0.3}, -0.3),
    ],
)
def test_rewards_are_standardised_after_clipping_to_three_deviations(
    value: float, options: dict[str, float], expected: float
) -> None:
    assert normalize_reward(value, **options) == pytest.approx(expected)
    assert transformed({"normalize": options} if options else "normalize", [value]) == [
        normalize_reward(value, **options)
    ]


@pytest.mark.parametrize("std", [0.0, -1.0, float("nan")])
def test_a_std_that_is_not_positive_is_refused(std: float) -> None:
    with pytest.raises(ValueError, match="std must be above 0"):
        normalize_reward(0.5, std=std)


NAN = float("nan")


def transformed(written: object, values: list[float], groups: list[int] | None = None) -> list[float]:
    made = read_transforms("x", written)
    result = apply_transforms(made, np.array(values), np.array(groups or [0] * len(values)))
    return [float(value) for value in result]


@pytest.mark.parametrize(
    ("written", "values", "expected"),
    [
        (None, [1.0, 2.0], [1.0, 2.0]),
        ({"clip": [0, 1]}, [-1.0, 0.5, 7.0, NAN], [0.0, 0.5, 1.0, NAN]),
        ("normalize", [0.5, 0.7, 9.0, NAN], [0.0, 1.0, 3.0, NAN]),
        ({"normalize": {"mean": 1, "std": 2}}, [3.0, -100.0], [1.0, -3.0]),
        ("rank", [3.0, 1.0, 2.0], [1.0, 0.0, 0.5]),
        ("rank", [3.0, 1.0, 3.0, 3.0, 1.0], [0.75, 0.125, 0.75, 0.75, 0.125]),
        ("rank", [2.0, 2.0], [0.5, 0.5]),
        ("rank", [2.0, NAN], [0.5, NAN]),
        ({"map": {0: -1, 0.5: 0, "1": 2}}, [0.0, 0.5, 1.0, NAN], [-1.0, 0.0, 2.0, NAN]),
        ({"map": {0.3: 1.0}}, [0.1 + 0.2, 0.31], [1.0, NAN]),
        (["rank", {"clip": [0.25, 0.75]}], [1.0, 2.0, 3.0], [0.25, 0.5, 0.75]),
        ([{"clip": [0, 1]}, "rank"], [5.0, 9.0, 0.0], [0.75, 0.75, 0.0]),
    ],
)
def test_transforms(written: object, values: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(transformed(written, values), expected, atol=1e-12)


def test_ranks_are_those_within_a_group() -> None:
    assert transformed("rank", [1.0, 100.0, 2.0, 50.0], [0, 1, 0, 1]) == [0.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("written", "code", "told"),
    [
        ("clip", "invalid_mixture", "{clip: [LOW, HIGH]}"),
        ({"clip": [1, 0]}, "invalid_mixture", "with LOW below HIGH"),
        ({"clip": [0, "1"]}, "invalid_mixture", "with LOW below HIGH"),
        ({"normalize": {"std": 0}}, "invalid_mixture", "with std above 0"),
        ({"normalize": {"sigma": 1}}, "invalid_mixture", "with std above 0"),
        ({"rank": 1}, "invalid_mixture", "as the word alone"),
        ({"map": {}}, "invalid_mixture", "with numbers"),
        ({"map": {"a": 1}}, "invalid_mixture", "with numbers"),
        ({"map": {0: "high"}}, "invalid_mixture", "with numbers"),
        ("squash", "invalid_mixture", "clip, normalize, rank, map"),
        (["rank", 3], "invalid_mixture", "clip, normalize, rank, map"),
        ({"clip": [0, 1], "rank": None}, "invalid_mixture", "a list"),
    ],
)
def test_a_malformed_transform_is_refused_with_its_form(written: object, code: str, told: str) -> None:
    with raises(RewardError, code, told):
        read_transforms("x", written)


@pytest.mark.parametrize(
    "transform", [Clip(0.0, 1.0), Normalize(1.0, 2.0), Rank(), Map({0.5: 1.0, 1 / 3: 2.0, 1234567.0: 3.0})]
)
def test_what_a_transform_says_of_itself_can_be_written(transform: Clip | Normalize | Rank | Map) -> None:
    assert read_transforms("x", transform.to_data()) == (transform,)


def test_ranks_of_a_large_group_take_little_memory() -> None:
    tracemalloc.start()
    try:
        Rank()(np.arange(5000.0), np.zeros(5000, dtype=np.int64))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
