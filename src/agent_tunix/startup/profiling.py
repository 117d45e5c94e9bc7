"""`profile=true`: a trace of some steps that names what the run was doing, for ui.perfetto.dev.

JAX's profiler records the threads of the host, with the phases that the run names in them, and the operations of the
device. To these a track is added in which each call of a compiled function stands under the phase it belongs to, from
its first operation to its last: a fused operation does not say what it is for.

Without `profile` nothing is recorded, and naming a phase costs less than a microsecond.
"""

import gzip
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax

from agent_tunix.closing import Closing
from agent_tunix.config.schema import Config

_LOGGER = logging.getLogger("agent_tunix.run")

# A context that gives what is done in it a name in a trace.
phase = jax.profiler.TraceAnnotation

# Compiled functions by what they are for.
PROGRAMS = {
    "jit_generate": "rollout",
    "jit__reference_logps": "reference",
    "jit_update": "update",
}
# A process that no operating system has, for the track that is added.
_TRACK = 1_000_000_000
_TRACK_NAME = "device, by phase"

Event = Mapping[str, Any]


class Profiling(Closing):
    """Traces the steps that a run's configuration names.

    Args:
        config: `profile`, and `tracking.profile_steps`.
        directory: Where the trace goes.
        num_steps: Steps of the run; those past its end are taken for the last.

    Attributes:
        path: The trace, once it is written; None before, and where there is none.
    """

    def __init__(self, config: Config, directory: Path, num_steps: int) -> None:
        first, last = (min(step, num_steps) for step in config.tracking.profile_steps)
        self._wanted = range(first, last + 1) if config.profile else range(0)
        self._directory = directory
        self._traced: list[int] = []
        self._under_way = False
        self.path: Path | None = None

    def step(self, step: int) -> jax.profiler.StepTraceAnnotation:
        """The context of a step; where it is the first to be traced, the trace begins."""
        if step in self._wanted:
            if not self._traced:
                self._attempt("begun", self._begin)
            self._traced.append(step)
        return jax.profiler.StepTraceAnnotation("step", step_num=step)

    def ends_after(self, step: int) -> bool:
        """Whether the trace is to be closed once a step, and all that it left to other threads, is done."""
        return self._under_way and step == self._wanted[-1]

    def close(self) -> None:
        """End the trace and write it; does nothing where none is under way."""
        if self._under_way:
            self._under_way = False
            self._attempt("written", self._write)
        elif self._wanted and not self._traced:
            _LOGGER.warning(
                "profile=true traced nothing: no step from %d to %d was taken; set tracking.profile_steps",
                self._wanted[0],
                self._wanted[-1],
            )

    def _begin(self) -> None:
        # Not every call that Python makes, which would slow what is looked at.
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        jax.profiler.start_trace(self._directory, profiler_options=options)
        self._under_way = True

    def _write(self) -> None:
        jax.profiler.stop_trace()  # type: ignore[no-untyped-call]
        recorded = self._directory.glob("plugins/profile/*/*.trace.json.gz")
        newest = max(recorded, key=lambda path: path.stat().st_mtime)
        # Some entries of JAX's file are empty.
        events = [event for event in json.loads(gzip.decompress(newest.read_bytes()))["traceEvents"] if event]
        first, last = self._traced[0], self._traced[-1]
        path = self._directory / f"step_{first:06d}-{last:06d}.json.gz"
        trace = {"displayTimeUnit": "ms", "traceEvents": [*events, *device_phases(events)]}
        path.write_bytes(gzip.compress(json.dumps(trace).encode(), compresslevel=6))
        self.path = path
        _LOGGER.info("steps %d to %d are traced in %s; open it at ui.perfetto.dev", first, last, path)

    def _attempt(self, verb: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # No run dies of its pictures.
            _LOGGER.error("the trace could not be %s (%s: %s); the run goes on", verb, type(error).__name__, error)


def device_phases(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Calls of the compiled functions of `PROGRAMS` as events of a process of their own, a thread for each phase.

    Args:
        events: In Chrome's trace format; the device's operations name their `hlo_module`, and where they can the
            `run_id` of its call.
    """
    calls: dict[tuple[str, Any], tuple[float, float]] = {}
    for event in events:
        described = event.get("args", {})
        name = PROGRAMS.get(described.get("hlo_module", ""))
        if name is None or "ts" not in event:
            continue
        begin, end = event["ts"], event["ts"] + event.get("dur", 0)
        key = name, described.get("run_id")
        if key in calls:
            begin, end = min(begin, calls[key][0]), max(end, calls[key][1])
        calls[key] = begin, end
    names = list(dict.fromkeys(name for name, _ in calls))
    return [
        _described("process_name", _TRACK_NAME),
        *(_described("thread_name", name, thread) for thread, name in enumerate(names)),
        *(
            {"ph": "X", "pid": _TRACK, "tid": names.index(name), "name": name, "ts": begin, "dur": end - begin}
            for (name, _), (begin, end) in sorted(calls.items(), key=lambda call: call[1])
        ),
    ]


def _described(kind: str, name: str, thread: int = 0) -> dict[str, Any]:
    return {"ph": "M", "pid": _TRACK, "tid": thread, "name": kind, "args": {"name": name}}
