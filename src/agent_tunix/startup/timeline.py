"""What the time of a run went to: imports, configuration, checks, data, model, compilation, steps, report.

A program begins a `Timeline`; whatever is worth a name of its own in it is done within `spend("data")`, which costs
nothing where no timeline was begun. Time within two of them counts for the inner one, so that the phases and the rest
add up to the whole. Loads no JAX.
"""

import contextlib
import contextvars
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agent_tunix.startup.devices import Compilations

_LOGGER = logging.getLogger("agent_tunix.run")
_CURRENT: contextvars.ContextVar["Timeline | None"] = contextvars.ContextVar("timeline", default=None)
_REST = "other"


class Timeline:
    """Wall time by phase.

    Args:
        spent: What was spent before this was made.
        clock: Gives seconds.

    Attributes:
        seconds: Phase → seconds, in the order in which they first ended.
    """

    def __init__(
        self, spent: Mapping[str, float] | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clock = clock
        self.seconds = dict(spent or {})
        self._began = clock() - sum(self.seconds.values())
        self._inner = [0.0]  # of each open phase, what the phases within it took

    @contextlib.contextmanager
    def spend(self, phase: str) -> Iterator[None]:
        """Count what is done within as a phase's, whether it succeeds or not."""
        began = self._clock()
        self._inner.append(0.0)
        try:
            yield
        finally:
            whole = self._clock() - began
            self.seconds[phase] = self.seconds.get(phase, 0.0) + whole - self._inner.pop()
            self._inner[-1] += whole

    def to_data(self) -> dict[str, Any]:
        """Ready for JSON: `total_s` so far, and `phases_s`, which add up to it."""
        total = self._clock() - self._began
        phases = {**self.seconds, _REST: max(0.0, total - sum(self.seconds.values()))}
        return {"total_s": round(total, 3), "phases_s": {name: round(value, 3) for name, value in phases.items()}}


@contextlib.contextmanager
def begin(spent: Mapping[str, float] | None = None) -> Iterator[Timeline]:
    """Begin a timeline, which is that of all that is done within, in this thread.

    Args:
        spent: What was spent before; it counts as well.
    """
    timeline = Timeline(spent)
    token = _CURRENT.set(timeline)
    try:
        yield timeline
    finally:
        _CURRENT.reset(token)


def current() -> Timeline | None:
    """The timeline of this program; None where none was begun."""
    return _CURRENT.get()


@contextlib.contextmanager
def spend(phase: str) -> Iterator[None]:
    """Count what is done within as a phase of the current timeline, if there is one."""
    timeline = _CURRENT.get()
    with contextlib.nullcontext() if timeline is None else timeline.spend(phase):
        yield


@contextlib.contextmanager
def recorded(path: Path) -> Iterator[None]:
    """Log and write down what the time of a run went to, however it ends, with the programs that JAX compiled for it.

    Args:
        path: The file: `total_s`, `phases_s`, and `programs` with `compiled`, `from_cache` and `seconds`.
    """
    with contextlib.ExitStack() as stack:
        timeline = current() or stack.enter_context(begin())
        compilations = stack.enter_context(Compilations())
        try:
            yield
        finally:
            data = {**timeline.to_data(), "programs": compilations.to_data()}
            _LOGGER.info("%s", describe(data))
            try:
                path.write_text(json.dumps(data, indent=1) + "\n")
            except OSError as error:  # What it tells of is done.
                _LOGGER.error("%s was not written: %s", path, error.strerror)


def describe(data: Mapping[str, Any]) -> str:
    """What stands in `timings.json`, in one line; phases of less than a twentieth of a second are left out."""
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in data["phases_s"].items() if seconds >= 0.05)
    programs = data["programs"]
    return (
        f"time: {data['total_s']:.1f} s: {phases}; within these, {programs['seconds']:.1f} s for"
        f" {programs['compiled']} compiled programs and {programs['from_cache']} from the cache"
    )


def age_of_process() -> float:
    """Seconds since this process began; 0 where the system does not say."""
    try:
        # After the program's name, which may hold anything; the 22nd field, in clock ticks since the machine began.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0
