"""A trace of some steps for ui.perfetto.dev, written if `profile=true`.

JAX's profiler records the host's threads, including the phases that the run names, and the operations of the device.

Without `profile` nothing is recorded, and naming a phase costs less than a microsecond.
"""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import jax

from agent_tunix.closing import Closing
from agent_tunix.config.schema import Config

_LOGGER = logging.getLogger("agent_tunix.run")

# Context manager that names a phase in a trace.
phase = jax.profiler.TraceAnnotation


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
        first, last = self._traced[0], self._traced[-1]
        path = self._directory / f"step_{first:06d}-{last:06d}.json.gz"
        shutil.copyfile(newest, path)
        self.path = path
        _LOGGER.info("trace of steps %d to %d written to %s; open it at ui.perfetto.dev", first, last, path)

    def _attempt(self, verb: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # A failed trace must not end the run.
            _LOGGER.error("the trace could not be %s (%s: %s); the run continues", verb, type(error).__name__, error)
