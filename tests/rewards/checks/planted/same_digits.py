"""Compares the digits of the answer, whatever their order."""

import re


def reward(response: str, answer: str) -> float:
    """Range [0, 1]."""
    numbers = re.findall(r"-?\d[\d,]*(?:\.\d+)?", response)
    return 1.0 if numbers and sorted(numbers[-1]) == sorted(answer) else 0.0


reward.kind = "correctness"  # type: ignore[attr-defined]
