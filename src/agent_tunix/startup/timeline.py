"""Wall time of a run by phase: imports, configuration, checks, data, model, compilation, steps, report.

A program begins a `Timeline`. The code of a phase runs within a context such as `spend("data")`, which does nothing
without a timeline. If phases are nested, the time counts for the inner one. So phases and rest add up to the total.
This module does not load JAX.
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
        spent: Seconds by phase from before this timeline.

    Attributes:
        seconds: Seconds by phase, in the order in which the phases first ended.
    """

    def __init__(
        self, spent: Mapping[str, float] | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clock = clock
        self.seconds = dict(spent or {})
        self._began = clock() - sum(self.seconds.values())
        self._inner = [0.0]  # for each open phase, the seconds spent in the phases within it

    @contextlib.contextmanager
    def spend(self, phase: str) -> Iterator[None]:
        """Count the time within this context for a phase, also if an error ends it."""
        began = self._clock()
        self._inner.append(0.0)
        try:
            yield
        finally:
            whole = self._clock() - began
            self.seconds[phase] = self.seconds.get(phase, 0.0) + whole - self._inner.pop()
            self._inner[-1] += whole

    def to_data(self) -> dict[str, Any]:
        """Return JSON-ready data: `total_s` so far, and `phases_s`, which add up to it."""
        total = self._clock() - self._began
        phases = {**self.seconds, _REST: max(0.0, total - sum(self.seconds.values()))}
        return {"total_s": round(total, 3), "phases_s": {name: round(value, 3) for name, value in phases.items()}}


@contextlib.contextmanager
def begin(spent: Mapping[str, float] | None = None) -> Iterator[Timeline]:
    """Begin a timeline. It is the current one within this context, in this thread.

    Args:
        spent: Seconds by phase from before; they count too.
    """
    timeline = Timeline(spent)
    token = _CURRENT.set(timeline)
    try:
        yield timeline
    finally:
        _CURRENT.reset(token)


def current() -> Timeline | None:
    """Return the timeline of this program, or None if none was started."""
    return _CURRENT.get()


@contextlib.contextmanager
def spend(phase: str) -> Iterator[None]:
    """Count the time within this context for a phase of the current timeline, if there is one."""
    timeline = _CURRENT.get()
    with contextlib.nullcontext() if timeline is None else timeline.spend(phase):
        yield


@contextlib.contextmanager
def recorded(path: Path, replaces: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Log and write the time of a run by phase and the programs that JAX compiled, however the run ends.

    Args:
        path: File to write, with `total_s`, `phases_s`, and `programs` with `compiled`, `from_cache` and `seconds`.
        replaces: Called at the end; returns False to keep an earlier file.
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
                if replaces() or not path.exists():
                    path.write_text(json.dumps(data, indent=1) + "\n")
            except OSError as error:  # the run itself is finished and must not fail here
                _LOGGER.error("%s was not written: %s", path, error.strerror)


def describe(data: Mapping[str, Any]) -> str:
    """Return the content of `timings.json` in one line, without phases shorter than 0.05 s.

    The seconds of compiling are left out. Programs compile at the same time, so their sum may exceed the total.
    """
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in data["phases_s"].items() if seconds >= 0.05)
    programs = data["programs"]
    return (
        f"time: {data['total_s']:.1f} s: {phases}; {programs['compiled']} programs compiled and"
        f" {programs['from_cache']} from the cache"
    )


def age_of_process() -> float:
    """Return the seconds since this process started, or 0 if the system does not tell."""
    try:
        # Field 22 is the start time in clock ticks since boot. The program's name (field 2) may hold any characters,
        # so the fields are counted from the parenthesis that ends it.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0
