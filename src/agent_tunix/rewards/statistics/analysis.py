"""The highest and lowest rewards of a run, and its failures."""

import heapq
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from agent_tunix.rewards.rounding import are_equal
from agent_tunix.rewards.sample import Outcome, Sample, Score


def _moments(values: Sequence[float]) -> dict[str, float | int | None]:
    """Return count, mean, variance (divisor n), skew, minimum and maximum of the values; None without values."""
    if not values:
        return {"count": 0, "mean": None, "variance": None, "skew": None, "min": None, "max": None}
    values_N = np.asarray(values)
    low, high, mean, variance = float(values_N.min()), float(values_N.max()), values_N.mean(), values_N.var()
    varies = not are_equal(low, high) and variance > 0
    return {
        "count": len(values),
        "mean": float(mean),
        "variance": float(variance) if varies else 0.0,
        "skew": float((((values_N - mean) / np.sqrt(variance)) ** 3).mean()) if varies else 0.0,
        "min": low,
        "max": high,
    }


@dataclass(slots=True)
class RewardAnalysis:
    """The highest and lowest rewards of a run, and its failures. Of other completions it keeps numbers alone.

    Attributes:
        num_examples: Number of examples to keep of the best, of the worst and of each failure. Earlier ones win ties.
        longest_text: Prompts, responses, answers and details are cut to this many characters.
    """

    num_examples: int = 20
    longest_text: int = 2000
    _totals: "array[float]" = field(default_factory=lambda: array("d"))
    _components: "dict[str, array[float]]" = field(default_factory=dict)
    _top: list[tuple[float, int, dict[str, Any]]] = field(default_factory=list)
    _bottom: list[tuple[float, int, dict[str, Any]]] = field(default_factory=list)
    _outcomes: Counter[str] = field(default_factory=Counter)
    _failures: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, samples: Iterable[Sample], scores: Iterable[Score], step: int | None = None) -> None:
        """Add the completions and scores of a step, whose number is by default that of each sample."""
        for sample, score in zip(samples, scores, strict=True):
            sample = sample if step is None or sample.step == step else replace(sample, step=step)
            self._outcomes[score.outcome] += 1
            for name, value in score.components.items():
                if value is not None:
                    self._components.setdefault(name, array("d")).append(value)
            if score.value is None:
                failures = self._failures.setdefault(score.outcome, [])
                if len(failures) < self.num_examples:
                    failures.append(self._example(sample, score))
                continue
            self._totals.append(score.value)
            self._keep(self._top, score.value, sample, score)
            self._keep(self._bottom, -score.value, sample, score)

    def report(self) -> dict[str, Any]:
        """Return everything as data for JSON."""
        return {
            "total": _moments(self._totals),
            "components": {name: _moments(values) for name, values in self._components.items()},
            "outcomes": {outcome.value: self._outcomes[outcome] for outcome in Outcome},
            "top": [example for _, _, example in sorted(self._top, key=_rank)],
            "bottom": [example for _, _, example in sorted(self._bottom, key=_rank)],
            "failures": dict(self._failures),
        }

    def _keep(self, heap: list[tuple[float, int, dict[str, Any]]], rank: float, sample: Sample, score: Score) -> None:
        """Keep an example if it ranks among the highest."""
        if len(heap) == self.num_examples and rank <= heap[0][0]:
            return
        # The count is unique, so examples are never compared. Of equal values, the later example leaves first.
        entry = (rank, -len(self._totals), self._example(sample, score))
        if len(heap) < self.num_examples:
            heapq.heappush(heap, entry)
        else:
            heapq.heappushpop(heap, entry)

    def _example(self, sample: Sample, score: Score) -> dict[str, Any]:
        return {
            "rollout_id": sample.rollout_id,
            "step": sample.step,
            "prompt": sample.prompt[: self.longest_text],
            "response": sample.response[: self.longest_text],
            "answer": str(sample.answer)[: self.longest_text],
            "total": score.value,
            "components": dict(score.components),
            "outcome": score.outcome.value,
            "detail": score.detail[: self.longest_text],
        }


def _rank(entry: tuple[float, int, dict[str, Any]]) -> tuple[float, int]:
    return (-entry[0], -entry[1])
