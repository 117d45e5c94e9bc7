"""What rewards say beside their value, as metrics: the components of a dict, and the numbers that they logged."""

import math
from collections.abc import Mapping, Sequence

from agent_tunix.rewards.sample import Score
from agent_tunix.visible_text import one_line

_LONGEST_NAME = 200


def logged_metrics(scores: Sequence[Score]) -> dict[str, float]:
    """The means of a step's components of components, and of the numbers that rewards logged.

    Args:
        scores: A mixture's.

    Returns:
        `rewards/<component>/components/<name>` and `rewards/<component>/logged/<name>`, each the mean over the
        completions that have it, unscaled.
    """
    values: dict[str, list[float]] = {}
    for score in scores:
        for component, part in score.parts.items():
            if part.components:  # most have none, and there are many
                _collect(values, f"rewards/{component}/components", part.components)
            if part.metrics:
                _collect(values, f"rewards/{component}/logged", part.metrics)
    return {name: math.fsum(found) / len(found) for name, found in values.items()}


def _collect(values: dict[str, list[float]], prefix: str, numbers: Mapping[str, float | None]) -> None:
    for name, number in numbers.items():
        if number is not None:
            values.setdefault(f"{prefix}/{one_line(name)[:_LONGEST_NAME]}", []).append(number)
