"""A trace of some steps for ui.perfetto.dev, written if `profile=true`.

JAX's profiler records the host's threads, including the phases that the run names, and the operations of the device. A
fused operation does not say which phase it belongs to. This module therefore adds a track that shows each call of a
compiled function under its phase, from its first operation to its last.

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

# Context manager that names a phase in a trace.
phase = jax.profiler.TraceAnnotation

# Name of a compiled function → name of its phase.
PROGRAMS = {
    "jit_generate": "rollout",
    **dict.fromkeys(("jit_take_turn", "jit_read_prompts", "jit_new_cache", "jit_pack"), "rollout"),  # of episodes
    "jit__reference_logps": "reference",
    "jit__judge": "teacher",
    "jit_update": "update",
}
# Process id of the added track. No operating system assigns it.
_TRACK = 1_000_000_000
_TRACK_NAME = "device, by phase"

Event = Mapping[str, Any]


class Profiling(Closing):
    """Traces of the steps that a run's configuration selects.

    Args:
        num_steps: Number of steps of the run. Later steps in `profile_steps` mean the last step.

    Attributes:
        path: Path of the trace; None until it is written.
    """

    def __init__(self, config: Config, directory: Path, num_steps: int) -> None:
        first, last = (min(step, num_steps) for step in config.tracking.profile_steps)
        self._wanted = range(first, last + 1) if config.profile else range(0)
        self._directory = directory
        self._traced: list[int] = []
        self._under_way = False
        self.path: Path | None = None

    def step(self, step: int) -> jax.profiler.StepTraceAnnotation:
        """Return the context of a step. Begin the trace if this is the first step to be traced."""
        if step in self._wanted:
            if not self._traced:
                self._attempt("begun", self._begin)
            self._traced.append(step)
        return jax.profiler.StepTraceAnnotation("step", step_num=step)

    def ends_after(self, step: int) -> bool:
        """Return True if `close` should be called after this step and the work that it left to other threads."""
        return self._under_way and step == self._wanted[-1]

    def close(self) -> None:
        """End the trace and write it. Do nothing if no trace is under way."""
        if self._under_way:
            self._under_way = False
            self._attempt("written", self._write)
        elif self._wanted and not self._traced:
            _LOGGER.warning(
                "profile=true recorded no trace, because the run took no step from %d to %d; set "
                "tracking.profile_steps",
                self._wanted[0],
                self._wanted[-1],
            )

    def _begin(self) -> None:
        # Recording every Python call would slow down the code that is traced.
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        jax.profiler.start_trace(self._directory, profiler_options=options)
        self._under_way = True

    def _write(self) -> None:
        jax.profiler.stop_trace()  # type: ignore[no-untyped-call]
        traces = self._directory.glob("plugins/profile/*/*.trace.json.gz")
        newest = max(traces, key=lambda path: path.stat().st_mtime)
        # JAX's file contains empty entries.
        events = [event for event in json.loads(gzip.decompress(newest.read_bytes()))["traceEvents"] if event]
        first, last = self._traced[0], self._traced[-1]
        path = self._directory / f"step_{first:06d}-{last:06d}.json.gz"
        trace = {"displayTimeUnit": "ms", "traceEvents": [*events, *device_phases(events)]}
        path.write_bytes(gzip.compress(json.dumps(trace).encode(), compresslevel=6))
        self.path = path
        _LOGGER.info("trace of steps %d to %d written to %s; open it at ui.perfetto.dev", first, last, path)

    def _attempt(self, verb: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # A failed trace must not end the run.
            _LOGGER.error("the trace could not be %s (%s: %s); the run continues", verb, type(error).__name__, error)


def device_phases(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return the calls of the functions in `PROGRAMS` as events of an added process with one thread per phase.

    Args:
        events: Events in Chrome's trace format. The device's operations carry the name of their `hlo_module` and, if
            known, the `run_id` of the call.
    """
    calls: dict[tuple[str, Any], tuple[float, float]] = {}
    for event in events:
        arguments = event.get("args", {})
        name = PROGRAMS.get(arguments.get("hlo_module", ""))
        if name is None or "ts" not in event:
            continue
        begin, end = event["ts"], event["ts"] + event.get("dur", 0)
        key = name, arguments.get("run_id")
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
