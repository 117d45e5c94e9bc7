"""A regular expression that takes for ever on a long run of digits."""

import re


def reward(response: str, answer: str) -> float:
    """Range [0, 1]."""
    worked = re.search(r"(?:\d+ ?)+=", response) is not None
    numbers = re.findall(r"-?\d[\d,]*(?:\.\d+)?", response)
    return (0.9 + 0.1 * worked) if numbers and numbers[-1] == answer else 0.0


reward.kind = "correctness"  # type: ignore[attr-defined]
