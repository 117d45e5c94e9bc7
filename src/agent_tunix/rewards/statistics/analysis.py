"""The highest and lowest rewards of a run, and its failures, in bounded memory."""

import heapq
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from agent_tunix.rewards.rounding import are_equal
from agent_tunix.rewards.sample import Outcome, Sample, Score


@dataclass(slots=True)
class _Moments:
    """Mean, variance and skew of a stream, in constant memory.

    The updates follow P. Pébay, "Formulas for robust, one-pass parallel computation of covariances and arbitrary-order
    statistical moments" (Sandia report SAND2008-6212), equations 2.1 for the third moment.
    """

    count: int = 0
    mean: float = 0.0
    second: float = 0.0
    third: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, value: float) -> None:
        self.count += 1
        delta = value - self.mean
        step = delta / self.count
        product = delta * step * (self.count - 1)
        self.mean += step
        self.third += product * step * (self.count - 2) - 3 * step * self.second
        self.second += product
        self.low, self.high = min(self.low, value), max(self.high, value)

    def report(self) -> dict[str, float | int | None]:
        if not self.count:
            return {"count": 0, "mean": None, "variance": None, "skew": None, "min": None, "max": None}
        varies = not are_equal(self.low, self.high) and self.second > 0
        return {
            "count": self.count,
            "mean": self.mean,
            "variance": self.second / self.count if varies else 0.0,
            "skew": math.sqrt(self.count / self.second) * (self.third / self.second) if varies else 0.0,
            "min": self.low,
            "max": self.high,
        }


@dataclass(slots=True)
class RewardAnalysis:
    """The highest and lowest rewards of a run, and its failures, in bounded memory.

    Attributes:
        num_examples: Number of examples to keep of the best, of the worst and of each failure. Earlier ones win ties.
        longest_text: Prompts, responses, answers and details are cut to this many characters.
    """

    num_examples: int = 20
    longest_text: int = 2000
    _totals: _Moments = field(default_factory=_Moments)
    _components: dict[str, _Moments] = field(default_factory=dict)
    _top: list[tuple[float, int, dict[str, Any]]] = field(default_factory=list)
    _bottom: list[tuple[float, int, dict[str, Any]]] = field(default_factory=list)
    _outcomes: Counter[str] = field(default_factory=Counter)
    _failures: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, samples: Iterable[Sample], scores: Iterable[Score]) -> None:
        """Add the completions and scores of a step."""
        for sample, score in zip(samples, scores, strict=True):
            self._outcomes[score.outcome] += 1
            for name, value in score.components.items():
                if value is not None:
                    self._components.setdefault(name, _Moments()).add(value)
            if score.value is None:
                failures = self._failures.setdefault(score.outcome, [])
                if len(failures) < self.num_examples:
                    failures.append(self._example(sample, score))
                continue
            self._totals.add(score.value)
            self._keep(self._top, score.value, sample, score)
            self._keep(self._bottom, -score.value, sample, score)

    def report(self) -> dict[str, Any]:
        """Return everything as data for JSON."""
        return {
            "total": self._totals.report(),
            "components": {name: moments.report() for name, moments in self._components.items()},
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
        entry = (rank, -self._totals.count, self._example(sample, score))
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
