"""Mixtures whose components say what the rows hold, and the metrics of such rows."""

from typing import Any

from agent_tunix.rewards import Mixture, Sample
from agent_tunix.rewards.statistics import summarise
from tests.rewards.support import by_column


def mixture_of(*names: str, **weights: float) -> Mixture:
    """Components that return what the sample's columns of their names hold."""
    return Mixture([by_column(name, weights.get(name, 1.0)) for name in names])


def metrics_of(
    mixture: Mixture, rows: list[dict[str, Any]], size: int, scaling: str = "group", **options: Any
) -> dict[str, Any]:
    """The metrics of a step whose groups have `size` members."""
    samples = [Sample("x", columns=row, group_id=index // size) for index, row in enumerate(rows)]
    scores = mixture.score(samples)
    return summarise(
        scores,
        mixture.totals(scores),
        mixture.advantages(scores, size, scaling),
        num_generations=size,
        weights=mixture.weights(1),
        scaling=scaling,
        **options,
    )
