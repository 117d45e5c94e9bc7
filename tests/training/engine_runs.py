"""Runs whose tokens come from engines, and equal runs whose tokens are sampled in this process."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agent_tunix.sampling.continuous import ContinuousSampler
from agent_tunix.tracking.callbacks import Callback, TrainingState
from agent_tunix.tracking.rollouts import RolloutReader

OVERRIDES = ("training.eval_every_n_steps=2", "training.save_interval_steps=1", "grpo.entropy_coefficient=0.01")
ENGINE = ("engine=agent_tunix", "engine.timeout_s=300")


class LocalEngines:
    """Stands in for the engines of a run: requests are answered in a thread of this process, by the policy itself."""

    def __init__(self, resources: contextlib.ExitStack) -> None:
        self._resources = resources
        self._num_updates: Callable[[], int] = lambda: 0

    def start(self, config: Any, model: Path) -> None:
        """Do nothing."""

    def connect(self, policy: Any, model: Path, prompt: Any, num_updates: Callable[[], int]) -> None:
        """Remember who counts the updates."""
        self._num_updates = num_updates

    def sampler(self, make: Any) -> Any:
        """Return the sampler of a run."""
        _, sampler, *_ = make.args
        source = ContinuousSampler(sampler, num_places=16, max_context=128, version=self._num_updates)
        stop = threading.Event()
        thread = threading.Thread(target=source.serve_forever, args=(stop,))
        thread.start()

        def end() -> None:
            stop.set()
            source.wake()
            thread.join()
            source.close()

        self._resources.callback(end)
        return make(source)

    def metrics(self) -> dict[str, float]:
        """Return none."""
        return {}


@contextlib.contextmanager
def open_local_engines(*_: Any) -> Iterator[LocalEngines]:
    """Take the place of `open_engines`."""
    with contextlib.ExitStack() as resources:
        yield LocalEngines(resources)


def sampling_processes(run: Path) -> list[int]:
    """Return the ids of a run's sampling processes."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = command.read_bytes().split(b"\0")
            if words[1:4] == [b"-m", b"agent_tunix", b"serve-policy"] and os.fsencode(run / "engine") in words:
                found.append(int(command.parent.name))
    return found


def rollouts(root: Path) -> list[tuple[Any, ...]]:
    """Number, tokens and reward of each completion; their log-probabilities are rounded otherwise."""
    rows = [row for table in RolloutReader(root / "rollouts").tables() for row in table.to_pylist()]
    return [(row["rollout_id"], row["tokens"], row["total"], row["advantage"]) for row in rows]


class Killer(Callback):
    """Kills a sampling process some time after a step has begun.

    Args:
        run: Directory of the run.
        step: The step.
        delay_s: Seconds.
    """

    def __init__(self, run: Path, step: int, delay_s: float) -> None:
        self._run = run
        self._step = step
        self._delay_s = delay_s
        self.killed: list[int] = []

    def on_step_begin(self, state: TrainingState) -> None:
        """Kill a process in another thread."""
        if state.step + 1 == self._step:
            threading.Timer(self._delay_s, self._kill).start()

    def _kill(self) -> None:
        self.killed = sampling_processes(self._run)[:1]
        for pid in self.killed:
            os.kill(pid, signal.SIGKILL)
