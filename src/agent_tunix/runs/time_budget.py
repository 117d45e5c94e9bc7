"""Time budget of a run, `training.max_hours`: the last step that leaves time for all that follows it.

After the last step come the evaluation, the checkpoint, the report, and perhaps an export. The longest time that each
part took so far, plus a reserve, is expected of its next time. The fewer times were measured, the larger the reserve.
A part that was not measured yet counts as a share of the budget, unless its size tells more.
"""

import contextlib
import enum
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from agent_tunix.startup.timeline import age_of_process


class TimedPart(enum.Enum):
    """A part of a run whose time is measured."""

    STEP = enum.auto()
    EVALUATION = enum.auto()
    CHECKPOINT = enum.auto()
    REPORT = enum.auto()
    EXPORT = enum.auto()
    END = enum.auto()  # of the process: trackers upload, and devices are released


# Share of the budget, and the least number of seconds, that a part takes until more is known. The first step compiles.
_SHARES = dict.fromkeys(TimedPart, 0.01) | {TimedPart.STEP: 0.1, TimedPart.EVALUATION: 0.02}
_LEAST_S = 5.0
# Reserve after one measurement and after many, relative to the longest time.
_FIRST_RESERVE, _LEAST_RESERVE = 1.5, 0.1


class TimeBudget:
    """The hours that a run may take, and the times of its parts so far.

    Args:
        max_hours: Hours from the start of the process to the end of the run; None without a limit.
        age: Returns the seconds since the process started.
    """

    def __init__(self, max_hours: float | None, age: Callable[[], float] = age_of_process) -> None:
        self._max_hours = max_hours
        self._age = age
        self._times: defaultdict[TimedPart, list[float]] = defaultdict(list)
        self._expectations: dict[TimedPart, float] = {}

    @contextlib.contextmanager
    def measured(self, part: TimedPart) -> Iterator[None]:
        """Measure the time within this context; a part that fails is not counted."""
        began = self._age()
        yield
        self._times[part].append(self._age() - began)

    def remember(self, part: TimedPart, times: Iterable[float]) -> None:
        """Add times of a part that an earlier attempt of the run measured, in seconds."""
        self._times[part].extend(times)

    def last(self, part: TimedPart) -> float:
        """Return the seconds that a part took when it was last measured."""
        return self._times[part][-1]

    def expect(self, part: TimedPart, seconds: float) -> None:
        """Expect these seconds of a part until it is measured."""
        self._expectations[part] = seconds

    def reason_to_stop(self) -> str | None:
        """Return the reason to take no further step; None if there is time left for one, or no limit."""
        if self._max_hours is None:
            return None
        # One checkpoint may be under way already.
        needed, age = sum(map(self._expected, TimedPart)) + self._expected(TimedPart.CHECKPOINT), self._age()
        if age + needed <= 3600 * self._max_hours:
            return None
        return (
            f"training.max_hours={self._max_hours:g} leaves no time for another step: {_clock_time(age)} passed since "
            f"the process started, and that step and the end of the run may take {_clock_time(needed)}"
        )

    def _expected(self, part: TimedPart) -> float:
        times = self._times[part]
        if part is TimedPart.STEP and len(times) > 1:
            times = times[1:]  # the first one compiles
        if times:
            return max(times) * (1 + max(_FIRST_RESERVE / len(times), _LEAST_RESERVE))
        return self._expectations.get(part, max(3600 * (self._max_hours or 0.0) * _SHARES[part], _LEAST_S))


def _clock_time(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds: `8:05:30`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
