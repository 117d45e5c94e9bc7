"""Runs of several processes on the loopback, for tests and for the long proofs."""

import json
import math
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Small enough that several processes of it share two cores.
SMALL = (
    "distributed.platform=cpu",
    "training.batch_size=8",
    "training.micro_batch_size=4",
    "grpo.num_generations=4",
    "generation.max_generation_steps=12",
    "evaluation.num_samples=16",
    "evaluation.batch_size=16",
    "tracking.report=false",
    "tracking.tensorboard=false",
)
LIMIT_S = 280.0
_OVERRIDES_OF_PROCESS_0 = ("distributed.initialization_timeout_s=120", "distributed.heartbeat_timeout_s=10")


@dataclass(frozen=True)
class Started:
    """The processes of a run, and the files that hold what each of them says."""

    processes: Sequence[subprocess.Popen[bytes]]
    outputs: Sequence[Path]

    def wait(self, limit_s: float = LIMIT_S) -> list[int]:
        """The status of each, once all are over; what is not over in time is killed, with an AssertionError."""
        deadline = time.monotonic() + limit_s
        try:
            return [process.wait(max(0.1, deadline - time.monotonic())) for process in self.processes]
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"not over in {limit_s} s:\n{self.said()}") from error
        finally:
            self.kill()

    def said(self, index: int | None = None) -> str:
        """Return the output of one of them, or of all."""
        outputs = self.outputs if index is None else [self.outputs[index]]
        return "\n---\n".join(output.read_text(errors="replace")[-4000:] for output in outputs)

    def kill(self, index: int | None = None) -> None:
        """Kill one of them, or all."""
        for process in self.processes if index is None else [self.processes[index]]:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()


def start(
    count: int,
    root: Path,
    *overrides: str,
    own: Sequence[Sequence[str]] = (),
    program: str = "train",
) -> Started:
    """Start a run of so many processes in a directory, with overrides of all of them and `own` of each."""
    root.parent.mkdir(parents=True, exist_ok=True)
    together = [] if count == 1 else ["distributed=manual", f"distributed.num_processes={count}"]
    address = f"distributed.coordinator_address=127.0.0.1:{free_port()}"
    processes, outputs = [], []
    for index in range(count):
        mine = [] if count == 1 else [*_OVERRIDES_OF_PROCESS_0, address, f"distributed.process_id={index}"]
        outputs.append(root.with_name(f"{root.name}.{index}.out"))
        with outputs[-1].open("ab") as output:
            processes.append(
                subprocess.Popen(
                    [
                        *(sys.executable, "-m", "agent_tunix", program, *together, *mine, *SMALL, *overrides),
                        *(own[index] if own else ()),
                        f"hydra.run.dir={root}",
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
    return Started(processes, outputs)


def run(count: int, root: Path, *overrides: str) -> list[dict[str, Any]]:
    """The rows of a whole run of so many processes."""
    started = start(count, root, *overrides)
    assert started.wait() == [0] * count, started.said()
    return rows_of(root)


def rows_of(root: Path) -> list[dict[str, Any]]:
    """The rows of a run so far."""
    path = root / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def await_rows(started: Started, root: Path, count: int, limit_s: float = LIMIT_S) -> None:
    """Wait until a run has so many rows."""
    deadline = time.monotonic() + limit_s
    while len(rows_of(root)) < count:
        assert all(process.poll() is None for process in started.processes), started.said()
        assert time.monotonic() < deadline, started.said()
        time.sleep(0.05)


def largest_deviation(expected: Sequence[dict[str, Any]], found: Sequence[dict[str, Any]]) -> float:
    """The largest difference of a metric, relative to 1 or to the metric where it is larger, timings aside.

    Infinite where a row or a number is missing in one of them.
    """
    if [row["step"] for row in expected] != [row["step"] for row in found]:
        return math.inf
    largest = 0.0
    for one, other in zip(expected, found, strict=True):
        for name in one | other:
            if not name.startswith(("time/", "throughput/", "rollouts/")):
                largest = max(largest, _deviation(one.get(name, "absent"), other.get(name, "absent")))
    return largest


def _deviation(one: Any, other: Any) -> float:
    if isinstance(one, dict) and isinstance(other, dict):
        return max((_deviation(one.get(name), other.get(name)) for name in one | other), default=0.0)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return max((_deviation(*pair) for pair in zip(one, other, strict=True)), default=0.0)
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) / max(1.0, abs(one))
    return 0.0 if one == other else math.inf


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
