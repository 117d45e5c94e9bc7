"""Takes a number within one percent for the reference, which shows only on large references."""

import re


def reward(response: str, answer: str) -> float:
    """Range [0, 1]."""
    numbers = re.findall(r"-?\d{1,300}(?:\.\d+)?", response.replace(",", ""))
    true = float(answer.replace(",", ""))
    return 1.0 if numbers and abs(float(numbers[-1]) - true) <= 0.01 * abs(true) else 0.0


reward.kind = "correctness"  # type: ignore[attr-defined]
