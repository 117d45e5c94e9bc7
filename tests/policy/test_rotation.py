"""Frequencies of rotary positions, stretched and not."""

import math

import numpy as np
import pytest

from agent_tunix.policy.architecture import Rope
from agent_tunix.policy.network.rotation import frequencies


@pytest.mark.parametrize(
    ("rope", "expected_ratio"),
    [
        (Rope(10_000.0), [1.0, 1.0, 1.0, 1.0]),
        (Rope(10_000.0, "linear", 8.0), [1 / 8] * 4),
        # Wavelengths are 6.3, 63, 628 and 6283 tokens: below 200/4 kept, above 200/1 stretched.
        (Rope(10_000.0, "llama3", 8.0, 1.0, 4.0, 200), [1.0, None, 1 / 8, 1 / 8]),
    ],
    ids=lambda value: value.kind if isinstance(value, Rope) else "",
)
def test_frequencies_are_stretched_as_their_kind_says(rope: Rope, expected_ratio: list[float | None]) -> None:
    found = np.asarray(frequencies(rope, 8), np.float64) / 10_000.0 ** (-np.arange(0, 8, 2) / 8)
    between = 1 / 8 + 7 / 8 * (200 / (2 * math.pi * 10) - 1) / 3
    np.testing.assert_allclose(found, [between if ratio is None else ratio for ratio in expected_ratio], rtol=1e-6)


def test_frequencies_are_right_to_the_last_bit_of_float32() -> None:
    """An error is multiplied by the position, up to 131,072 of them."""
    exact = 500_000.0 ** (-np.arange(0, 128, 2) / 128)
    np.testing.assert_array_equal(np.asarray(frequencies(Rope(500_000.0), 128)), exact.astype(np.float32))
