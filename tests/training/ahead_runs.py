"""Proofs about runs that sample ahead, with a sampler on this machine that keeps earlier weights.

python -m tests.training.ahead_runs DIRECTORY KEY=VALUE …    make or resume such a run
"""

import contextlib
import json
import random
import subprocess
import sys
import time
import unittest.mock
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from agent_tunix.sampling.sampler import Sampler
from agent_tunix.training.verification import first_difference, read_rows
from tests.training.policy_versions import PolicyVersions
from tests.training.support import assert_same_weights, train_run

# A sleeping step is so much longer than a computed one that other work on the machine does not matter.
SLOW_S, FAST_S = 16.0, 8.0
MOST_OF_THE_LONGER = 1.1


@contextlib.contextmanager
def sampling_here(delay_s: float = 0.0) -> Iterator[list[PolicyVersions]]:
    """Let runs in this process sample with `PolicyVersions` in place of an engine; yield these samplers."""
    made: list[PolicyVersions] = []

    def make(config: Any, sampler: Sampler, *rest: Any) -> PolicyVersions:
        made.append(PolicyVersions(sampler, delay_s))
        return made[-1]

    with (
        unittest.mock.patch("agent_tunix.training.components.make_episode_sampler", make),
        unittest.mock.patch("agent_tunix.training.train.open_engines", return_value=contextlib.nullcontext()),
    ):
        yield made


def lagging(lag: int) -> tuple[str, ...]:
    """Overrides of a run with a lag. Nothing listens at the URL."""
    return ("engine=agent_tunix", "engine.urls=[http://localhost:1]", f"engine.max_staleness={lag}")


def prove_length_of_steps(directory: Path) -> dict[str, Any]:
    """Prove that a step takes as long as the longer of sampling and training, and without a lag as long as both."""
    seen = {}
    for sampling_s, reward_s in ((SLOW_S, FAST_S), (FAST_S, SLOW_S)):
        for lag in (0, 1, 2):
            root = directory / f"{sampling_s:g}-{reward_s:g}-{lag}"
            seconds = seconds_of_a_step(root, lag, sampling_s, reward_s)
            seen[f"sampling {sampling_s:g} s, training {reward_s:g} s, K = {lag}"] = round(seconds, 2)
            longest = MOST_OF_THE_LONGER * SLOW_S
            assert seconds > SLOW_S + FAST_S if lag == 0 else seconds < longest, seen
    return seen


def seconds_of_a_step(root: Path, lag: int, sampling_s: float, reward_s: float, *overrides: str) -> float:
    """Train a small run whose sampler and reward sleep; return the mean time of a step once both are at work."""
    file = root.with_name("slow.py")
    # Each of the four groups of a step is a call.
    file.write_text(
        f"import time\n\n\ndef slow(completions, **columns):\n    time.sleep({reward_s / 4})\n"
        "    return [float(len(text) % 7) for text in completions]\n"
    )
    with sampling_here(sampling_s):
        train_run(
            root,
            *(f"training.reward_function={file}:slow", "rewards.execution=inline", "rewards.completions=text"),
            *(*lagging(lag), f"training.num_batches={lag + 4}", "evaluation.num_samples=0"),
            *overrides,
        )
    rows = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    return fmean(row["time/step_s"] for row in rows if row["step"] > lag + 1)


def prove_kills(directory: Path, lag: int, kills: int = 10) -> dict[str, Any]:
    """Kill a run at random moments and resume it; prove that it equals one that is never killed."""
    overrides = [
        *(*lagging(lag), "training.num_batches=12", "training.save_interval_steps=2"),
        *("training.eval_every_n_steps=5", "optimizer.learning_rate=1e-3"),
    ]
    whole, killed = directory / "whole", directory / "killed"
    assert _start(whole, overrides).wait() == 0
    expected, random_moments, killed_at = read_rows(whole), random.Random(lag), []
    for moment in sorted(random_moments.randrange(len(expected)) for _ in range(kills)):
        process = _start(killed, overrides)
        while len(read_rows(killed)) < moment and process.poll() is None:
            time.sleep(0.01)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(random_moments.uniform(0.0, 0.5 if moment else 10.0))
        process.kill()
        process.wait()
        killed_at.append(len(read_rows(killed)))
    assert _start(killed, overrides).wait() == 0
    assert (difference := first_difference(expected, read_rows(killed))) is None, difference
    assert_same_weights(whole, killed)
    return {"rows": len(expected), "killed_at": killed_at}


def _start(root: Path, overrides: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.training.ahead_runs", str(root), *overrides, "training.resume=true"]
    with (root.with_suffix(".log")).open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


if __name__ == "__main__":
    with sampling_here():
        train_run(Path(sys.argv[1]), *sys.argv[2:])
