"""Base classes and helpers of detectors. Rows of a run go in, detections come out, in constant memory."""

import abc
import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from agent_tunix.rewards.sample import Outcome
from agent_tunix.workbench.diagnosis import edits
from agent_tunix.workbench.diagnosis.context import RunContext
from agent_tunix.workbench.diagnosis.findings import Severity
from agent_tunix.workbench.diagnosis.views import Pick, Views, any_of

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Detection:
    """A fault that a detector sees at a step."""

    name: str
    severity: Severity
    measure: float  # Size of the fault, above 0. The finding is repeated once this has grown clearly.
    summary: str
    subject: str = ""  # component that it concerns, or ""
    evidence: Mapping[str, float | str] = field(default_factory=dict)
    edits: tuple[str, ...] = ()  # overrides that may help
    pick: Pick = any_of  # chooses the completions of the step that show it
    tell: Callable[[Views], str] = lambda views: ""  # returns text about these completions for the summary, or ""


class Detector(abc.ABC):
    """Detector of one kind of fault.

    Attributes:
        has_accuracy: True if the run has measured its accuracy, so that the references fit `evaluation.correct`.
    """

    names: ClassVar[tuple[str, ...]]
    """Names of the findings that it can make."""

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self.has_accuracy = False

    def pay_for_answer(self) -> tuple[str, ...]:
        """Return the override that pays for correct answers; empty if the run cannot recognise them."""
        return edits.pay_for_answer(self.context) if self.has_accuracy else ()

    def observe(self, step: int, row: Row) -> Iterator[Detection]:
        """Add the row of a training step, and yield the current faults. Yield a lasting fault again in each step."""
        return self._detect(step, row)

    @abc.abstractmethod
    def _detect(self, step: int, row: Row) -> Iterator[Detection]: ...


def number(row: Row, name: str) -> float | None:
    """Return a metric that is a finite number; None if it is missing or anything else."""
    value = row.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def count_completions(row: Row) -> int:
    """Return the number of completions of the step."""
    return int(sum(number(row, f"rewards/outcomes/{outcome}") or 0 for outcome in Outcome))


class Window:
    """First `size` values of a metric (the start) and its last `size` values (the recent past).

    Attributes:
        count: Number of values added.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._first: list[float] = []
        self._recent: deque[float] = deque(maxlen=size)
        self.count = 0

    def add(self, value: float | None) -> None:
        """Add the value of a step; None is ignored."""
        if value is None:
            return
        self.count += 1
        if len(self._first) < self._size:
            self._first.append(value)
        self._recent.append(value)

    @property
    def is_full(self) -> bool:
        """True if the recent past has all its values."""
        return len(self._recent) == self._size

    @property
    def is_past_start(self) -> bool:
        """True if the recent past no longer overlaps the start."""
        return self.count >= 2 * self._size

    @property
    def start(self) -> float:
        """Mean of the start."""
        return statistics.fmean(self._first)

    @property
    def mean(self) -> float:
        """Mean of the recent past."""
        return statistics.fmean(self._recent)

    @property
    def low(self) -> float:
        """Minimum of the recent past."""
        return min(self._recent)

    @property
    def high(self) -> float:
        """Maximum of the recent past."""
        return max(self._recent)

    @property
    def rise(self) -> float:
        """Change of the mean since the start; negative if it fell."""
        return self.mean - self.start

    @property
    def noise(self) -> float:
        """Standard error of `rise`, from the spread within the two windows."""
        if self._size < 2:
            return 0.0
        spread = statistics.variance(self._first) + statistics.variance(self._recent)
        return math.sqrt(spread / self._size)

    def is_rising(self, least: float) -> bool:
        """Return True if the mean has risen by at least `least`, and by at least three standard errors."""
        return self.is_past_start and self.rise >= max(least, 3.0 * self.noise)


FALLEN_STEPS = 3
"""Steps that make the start, and the recent past."""
FALLEN_SHARE = 0.5
"""Largest share that is left of the total at the start, both measured from the least possible total."""


class Fall:
    """Fall of the mean total since the start. Limits and sampling are not at fault for its consequences.

    A fall that only follows from weights is none.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._floor = None if context.range is None else context.range[0]
        self._total = Window(FALLEN_STEPS)

    def add(self, row: Row) -> None:
        """Add the row of a step."""
        total, low = settled_mean(self._context, row), number(row, "rewards/total/min")
        if total is not None and low is not None:
            self._floor = low if self._floor is None else min(self._floor, low)
            self._total.add(total)

    @property
    def is_deep(self) -> bool:
        """True if most of the total at the start is lost."""
        if not self._total.is_past_start or self._floor is None:
            return False
        start = self._total.start - self._floor
        return start > 0 and self._total.mean - self._floor <= FALLEN_SHARE * start


def settled_mean(context: RunContext, row: Row) -> float | None:
    """Return the mean total that the scores of a step would have with the final weights of schedules; None without one.

    So the totals of steps can be compared: a scheduled weight moves them although the policy does not change.
    """
    mean = number(row, "rewards/total/mean")
    if mean is None:
        return None
    num = count_completions(row)
    for component in context.components:
        weight, name = number(row, f"rewards/{component.name}/weight"), component.name
        if component.start_weight is None or weight is None:
            continue
        earned = number(row, f"rewards/{name}/transformed/mean" if component.transforms else f"rewards/{name}/mean")
        shut = (number(row, f"rewards/{name}/gate_shut") or 0.0) / num if num else 0.0
        mean += (component.weight - weight) * (earned or 0.0) * (1.0 - shut)
    return mean


def span_of(context: RunContext, row: Row) -> float:
    """Return the width of the total's range: the declared one, or else that of the step; 0 if all totals are equal."""
    return observed_span(row) if context.range is None else context.range[1] - context.range[0]


def observed_span(row: Row) -> float:
    """Return the difference of the highest and the lowest total of a step."""
    low, high = number(row, "rewards/total/min"), number(row, "rewards/total/max")
    return 0.0 if low is None or high is None else high - low
