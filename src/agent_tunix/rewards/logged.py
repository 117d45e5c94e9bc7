"""Metrics of what rewards return besides their value: components of a dict, and logged numbers."""

import math
from collections.abc import Mapping, Sequence

from agent_tunix.rewards.sample import Score
from agent_tunix.visible_text import one_line

_LONGEST_NAME = 200


def logged_metrics(scores: Sequence[Score]) -> dict[str, float]:
    """Return the means of nested components and logged numbers in the scores of a mixture.

    They are named `rewards/<component>/components/<name>` and `rewards/<component>/logged/<name>`. Each is the unscaled
    mean over the completions that have it.
    """
    values: dict[str, list[float]] = {}
    for score in scores:
        for component, part in score.parts.items():
            if part.components:  # most parts have none, and there are many parts
                _collect(values, f"rewards/{component}/components", part.components)
            if part.metrics:
                _collect(values, f"rewards/{component}/logged", part.metrics)
    return {name: math.fsum(found) / len(found) for name, found in values.items()}


def _collect(values: dict[str, list[float]], prefix: str, numbers: Mapping[str, float | None]) -> None:
    for name, number in numbers.items():
        if number is not None:
            values.setdefault(f"{prefix}/{one_line(name)[:_LONGEST_NAME]}", []).append(number)
