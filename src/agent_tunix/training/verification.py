"""Proof that a killed and resumed run equals an uninterrupted one: `agent-tunix verify-resume`.

Importing this module does not load JAX; the runs are separate processes.
"""

import contextlib
import itertools
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from agent_tunix.errors import AgentTunixError
from agent_tunix.overrides import assign
from agent_tunix.tracking.rollouts import RolloutReader

_POLL_S = 0.02

# Fields that depend on a clock, a service or a cache, and do not affect training.
_ROLLOUT_COLUMNS_LEFT_OUT = ("seconds", "extras", "logged", "detail")
_COMPONENT_FIELDS_LEFT_OUT = ("seconds", "more", "detail", "term_detail")


class VerificationError(AgentTunixError, RuntimeError):
    """There is nothing to compare: a run failed by itself, or the directory holds runs already."""


@dataclass(frozen=True)
class Verification:
    """The result of the comparison."""

    equal: bool  # True if all rows and all stored rollouts are the same, except for timings
    text: str  # summary for the user: equality, or the first difference
    rows: int
    kills: tuple[int, ...]  # number of rows that were written at each kill


@dataclass(frozen=True)
class _Run:
    process: subprocess.Popen[bytes]
    errors: IO[str]


def verify(
    overrides: Sequence[str],
    *,
    kills: int = 1,
    seed: int = 0,
    directory: str | Path | None = None,
    program: str = "train",
) -> Verification:
    """Compare an uninterrupted run with one that is killed and resumed.

    Args:
        overrides: Overrides of the configuration to verify. `hydra.run.dir` and `training.resume` are set here.
        kills: Number of times that the second run is killed with SIGKILL.
        seed: Seed of the moments of the kills.
        directory: Directory that keeps the two runs; None to remove them.
        program: Command of the runs: `train`, `sft` or `prefer`.

    Raises:
        VerificationError: A run failed by itself, or the directory holds runs already.
    """
    with contextlib.ExitStack() as stack:
        if directory is None:
            root = Path(tempfile.mkdtemp(prefix="agent_tunix_verify_"))
            stack.callback(shutil.rmtree, root, ignore_errors=True)
        else:
            root = Path(directory)
        unbroken, killed = root / "unbroken", root / "killed"
        for run in (unbroken, killed):
            if run.exists():
                raise VerificationError(
                    f"{run} exists from an earlier verification; remove it, or choose another --directory",
                    code="directory_taken",
                )
        _finish(_start(program, overrides, unbroken))
        expected = read_rows(unbroken)
        moments = _kill_repeatedly(program, overrides, killed, kills, len(expected), random.Random(seed))
        _finish(_start(program, overrides, killed))
        actual = read_rows(killed)
        difference = first_difference(expected, actual) or first_rollout_difference(unbroken, killed)
    places = f"killed {kills} times, with {', '.join(map(str, moments))} rows written"
    text = (
        f"equal: {len(expected)} rows, timings aside; {places}"
        if difference is None
        else f"different: {difference}; {places}"
    )
    return Verification(difference is None, text, len(expected), tuple(moments))


# A metric and a column of rollouts.
_ROUNDED_WITH_AGENTS = ("policy/sampler_mismatch_kl", "logprob")


def read_rows(run: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's metrics.jsonl, without timings."""
    path = run / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [
        {
            name: value
            for name, value in json.loads(line).items()
            if not name.startswith(("time/", "throughput/", "engine/"))
        }
        for line in lines
    ]


def first_difference(expected: Sequence[dict[str, Any]], actual: Sequence[dict[str, Any]]) -> str | None:
    """Return a description of the first key of the first row that differs; None if all are equal."""
    for one, other in zip(expected, actual, strict=False):
        for name in dict.fromkeys([*one, *other]):
            if not _is_same(name, one.get(name), other.get(name), has_agent="agent/calls_mean" in one):
                return f"step {one.get('step')}: {name} is {one.get(name)!r} unbroken, {other.get(name)!r} resumed"
    if len(expected) != len(actual):
        return f"{len(expected)} rows unbroken, {len(actual)} resumed"
    return None


def first_rollout_difference(expected: Path, actual: Path) -> str | None:
    """Return a description of the first stored completion that differs between two runs; None if all are equal.

    Timings, and data that rewards report beside their values, are not compared.

    Args:
        expected: Directory of the uninterrupted run.
        actual: Directory of the resumed run.
    """
    rows = itertools.zip_longest(_rollouts(expected), _rollouts(actual))
    for one, other in rows:
        if one is None or other is None:
            missing = "unbroken" if one is None else "resumed"
            return f"rollout {(one or other or {}).get('rollout_id')} is missing in the {missing} run"
        has_agent = one["episode"] is not None and one["episode"].get("agent") is not None
        for name, value in one.items():
            if not _is_same(name, value, other[name], has_agent=has_agent):
                return f"rollout {one['rollout_id']}: {name} is {value!r} unbroken, {other[name]!r} resumed"
    return None


def _rollouts(run: Path) -> Iterator[dict[str, Any]]:
    for table in RolloutReader(run / "rollouts").tables():
        for row in table.drop_columns(list(_ROLLOUT_COLUMNS_LEFT_OUT)).to_pylist():
            for component in row["components"]:
                for name in _COMPONENT_FIELDS_LEFT_OUT:
                    del component[name]
            if row["episode"] is not None:
                row["episode"] = _without_times(json.loads(row["episode"]))
            yield row


def _is_same(name: str, one: Any, other: Any, *, has_agent: bool) -> bool:
    """Return True if two values are equal; of agents, log-probabilities of the sampler are compared up to rounding.

    When the calls of agents arrive decides which of them share a batch, and so how their numbers are rounded.
    """
    if has_agent and name in _ROUNDED_WITH_AGENTS and isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-9)
    return bool(one == other)


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(inner) for name, inner in value.items() if name not in ("seconds", "cached")}
    return [_without_times(inner) for inner in value] if isinstance(value, list) else value


def _kill_repeatedly(
    program: str, overrides: Sequence[str], run: Path, kills: int, num_rows: int, rng: random.Random
) -> list[int]:
    """Start and kill the run repeatedly, at moments spread over its rows; return the number of rows at each kill."""
    moments = []
    for target in sorted(rng.randrange(num_rows) for _ in range(kills)):
        started_run = _start(program, overrides, run)
        process = started_run.process
        while _count_rows(run) < target and process.poll() is None:
            time.sleep(_POLL_S)
        # The kill comes at a random moment after that. If the target is 0, the run is importing or compiling then, else
        # it is within the next steps.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=rng.uniform(0.0, 10.0 if target == 0 else 1.0))
        if process.poll():
            _finish(started_run)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        started_run.errors.close()
        moments.append(_count_rows(run))
    return moments


def _count_rows(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _start(program: str, overrides: Sequence[str], run: Path) -> _Run:
    command = [sys.executable, "-P", "-m", "agent_tunix", program, *overrides]
    command += [assign("hydra.run.dir", str(run)), "training.resume=true", "tracking.progress=none"]
    # A file, because a pipe could fill up while nobody reads it.
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed with the run)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)
    return _Run(process, errors)


def _finish(run: _Run) -> None:
    with run.errors:
        if run.process.wait() != 0:
            run.errors.seek(0)
            text = run.errors.read().strip()[-2000:]
            raise VerificationError(
                f"a run exited on its own with status {run.process.returncode}:\n{text}", code="run_failed"
            )
