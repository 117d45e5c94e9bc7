"""The proofs of runs on several processes, which `scripts/proofs.py processes` runs.

Every process is real and on the loopback, with gloo between them. A run of several processes is compared with one
process that has as many virtual devices in the same mesh, so that sums have the same order, or with a process with one
device. Deviations are relative to 1, or to the number if it is larger.
"""

import functools
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.training.process_runs import Started, await_rows, largest_deviation, run, start

STEPS = ("training.num_batches=6", "training.save_interval_steps=2")
TOLERANCE = 1e-4
# Time in which the other processes end after one is lost, including the heartbeat's ten seconds.
LOSS_LIMIT_S = 40.0


def prove_equal(count: int, shape: str, directory: Path) -> dict[str, Any]:
    """Prove that `count` processes have the rows of one process with as many devices, on a mesh."""
    mesh = f"model.mesh_shape={shape}"
    expected = run(1, directory / "one", *STEPS, mesh, f"distributed.num_cpu_devices={count}")
    found = run(count, directory / "several", *STEPS, mesh)
    deviation = largest_deviation(expected, found)
    assert deviation < TOLERANCE, deviation
    return {"rows": len(found), "largest deviation": f"{deviation:.1e}"}


def prove_kill(count: int, killed: int, resumed_with: int, directory: Path) -> dict[str, Any]:
    """Kill a process; prove that the others end with an error, and that other processes resume as if unbroken."""
    root = directory / "run"
    unbroken = run(1, directory / "unbroken", *STEPS)
    started = start(count, root, *STEPS, f"model.mesh_shape=[{count},1,1]")
    await_rows(started, root, 4)
    started.kill(killed)
    seconds = _wait(started)
    left = [index for index in range(count) if index != killed]
    for index in left:
        assert started.processes[index].returncode == 1, started.said(index)
        assert "LostProcessError: " in started.said(index), started.said(index)
        assert "training.resume=true" in started.said(index).rpartition("LostProcessError: ")[2], started.said(index)
    found = run(resumed_with, root, *STEPS, f"model.mesh_shape=[{resumed_with},1,1]", "training.resume=true")
    deviation = largest_deviation(unbroken, found)
    assert deviation < TOLERANCE, deviation
    return {"others ended after": f"{seconds:.1f} s", "largest deviation": f"{deviation:.1e}"}


def _wait(started: Started) -> float:
    began = time.monotonic()
    started.wait(LOSS_LIMIT_S)
    return time.monotonic() - began


def prove_stop(signalled: int, directory: Path) -> dict[str, Any]:
    """Send a signal to one process; prove that both stop after the same step, with a checkpoint to resume from."""
    root, mesh = directory / "run", "model.mesh_shape=[2,1,1]"
    started = start(2, root, *STEPS, mesh)
    await_rows(started, root, 4)
    started.processes[signalled].send_signal(signal.SIGTERM)
    assert started.wait() == [128 + signal.SIGTERM] * 2, started.said()
    steps = [started.said(index).rpartition("after step ")[2].partition(".")[0] for index in range(2)]
    assert steps[0] == steps[1], steps
    assert (root / "checkpoints" / f"step_{int(steps[0]):06d}").is_dir()
    found = run(2, root, *STEPS, mesh, "training.resume=true")
    deviation = largest_deviation(run(1, directory / "unbroken", *STEPS), found)
    assert deviation < TOLERANCE, deviation
    return {"stopped after step": steps[0], "largest deviation": f"{deviation:.1e}"}


_BROKEN = """
import pathlib

class Broken:
    def __init__(self):
        command = pathlib.Path("/proc/self/cmdline").read_text()
        self.here = "distributed.process_id=%d" in command.split("\\0")

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        if self.here:
            raise RuntimeError("broken on this machine alone")
        return {"value": 1.0}
"""


def prove_broken_reward(broken: int, directory: Path) -> dict[str, Any]:
    """Prove that a reward that raises in one process ends both with the same error."""
    (directory / "broken.py").write_text(_BROKEN % broken)
    overrides = (f"training.reward_function={directory}/broken.py:Broken", "rewards.execution=inline")
    started = start(2, directory / "run", *STEPS, *overrides, "rewards.on_failure=raise", "model.mesh_shape=[2,1,1]")
    assert started.wait() == [1, 1], started.said()
    errors = {started.said(index).rpartition("RewardFailureRateError: ")[2] for index in range(2)}
    assert len(errors) == 1, errors
    assert "broken on this machine alone" in errors.pop(), started.said()
    return {"error": "the same"}


PROOFS: dict[str, Callable[[Path], dict[str, Any]]] = {
    **{
        f"{count} processes, mesh {shape}": functools.partial(prove_equal, count, shape)
        for count, shape in (
            (2, "[2,1,1]"),
            (2, "[1,2,1]"),
            (2, "[1,1,2]"),
            (4, "[4,1,1]"),
            (4, "[2,2,1]"),
            (4, "[1,2,2]"),
        )
    },
    **{
        f"{count} processes, {killed} killed, {resumed} go on": functools.partial(prove_kill, count, killed, resumed)
        for count, killed, resumed in ((2, 1, 4), (2, 0, 1), (4, 2, 2), (4, 0, 4))
    },
    **{f"process {index} is asked to stop": functools.partial(prove_stop, index) for index in range(2)},
    **{f"a reward broken in process {index}": functools.partial(prove_broken_reward, index) for index in range(2)},
}
