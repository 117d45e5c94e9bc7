"""What detectors are made of: the rows of a run in, detections out, in memory that does not grow."""

import abc
import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from agent_tunix.rewards.sample import Outcome
from agent_tunix.workbench.diagnosis.context import RunContext
from agent_tunix.workbench.diagnosis.findings import Severity
from agent_tunix.workbench.diagnosis.views import Pick, Views, any_of

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Detection:
    """What a detector sees at a step.

    Attributes:
        name: Of the finding.
        severity: How grave it is.
        measure: How bad it is, above 0; a finding is repeated when this has grown clearly.
        summary: A sentence.
        subject: The component, or "".
        evidence: Figures by name.
        edits: Overrides.
        pick: Which completions of this step show it.
        tell: What these completions add to the summary; "" for nothing.
    """

    name: str
    severity: Severity
    measure: float
    summary: str
    subject: str = ""
    evidence: Mapping[str, float | str] = field(default_factory=dict)
    edits: tuple[str, ...] = ()
    pick: Pick = any_of
    tell: Callable[[Views], str] = lambda views: ""


class Detector(abc.ABC):
    """Watches for one kind of trouble.

    Args:
        context: The run.
    """

    names: ClassVar[tuple[str, ...]]
    """The findings it can make."""

    def __init__(self, context: RunContext) -> None:
        self.context = context

    @abc.abstractmethod
    def observe(self, step: int, row: Row) -> Iterator[Detection]:
        """Take in a training step's row; say what is there as of this step, each time anew while it is."""


def number(row: Row, name: str) -> float | None:
    """A metric that is a finite number; None where it is not, or is missing."""
    value = row.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def count_completions(row: Row) -> int:
    """How many completions the step had."""
    return int(sum(number(row, f"rewards/outcomes/{outcome}") or 0 for outcome in Outcome))


class Window:
    """A metric at the start of a run and of late.

    Args:
        size: How many values make the start, and how many the recent past.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._first: list[float] = []
        self._recent: deque[float] = deque(maxlen=size)
        self._count = 0

    def add(self, value: float | None) -> None:
        """Take in a step's value; None is passed over."""
        if value is None:
            return
        self._count += 1
        if len(self._first) < self._size:
            self._first.append(value)
        self._recent.append(value)

    @property
    def is_full(self) -> bool:
        """Whether the recent past is known."""
        return len(self._recent) == self._size

    @property
    def is_past_start(self) -> bool:
        """Whether the recent past no longer overlaps the start."""
        return self._count >= 2 * self._size

    @property
    def start(self) -> float:
        """The mean at the start."""
        return statistics.fmean(self._first)

    @property
    def mean(self) -> float:
        """The mean of late."""
        return statistics.fmean(self._recent)

    @property
    def low(self) -> float:
        """The least of late."""
        return min(self._recent)

    @property
    def high(self) -> float:
        """The most of late."""
        return max(self._recent)

    @property
    def rise(self) -> float:
        """How far the mean has come since the start; negative where it fell."""
        return self.mean - self.start

    @property
    def noise(self) -> float:
        """The standard error of `rise`, from the spread within the two windows."""
        if self._size < 2:
            return 0.0
        spread = statistics.variance(self._first) + statistics.variance(self._recent)
        return math.sqrt(spread / self._size)

    def is_rising(self, least: float, errors: float = 3.0) -> bool:
        """Whether it has risen by at least so much, and by so many standard errors."""
        return self.is_past_start and self.rise >= max(least, errors * self.noise)

    def is_falling(self, least: float, errors: float = 3.0) -> bool:
        """Whether it has fallen by at least so much, and by so many standard errors."""
        return self.is_past_start and -self.rise >= max(least, errors * self.noise)


def span_of(context: RunContext, row: Row) -> float:
    """The width of the total's range: the declared one, else that of the step; 0 where all are equal."""
    if context.range is not None:
        return context.range[1] - context.range[0]
    low, high = number(row, "rewards/total/min"), number(row, "rewards/total/max")
    return 0.0 if low is None or high is None else high - low
