"""Proofs of faults, which `scripts/proofs.py` runs: faulty rewards, power cuts, and edits of a reward in mid-run.

python -m scripts.prove_faults "power cuts"     # needs root, to mount a file system
python -m scripts.prove_faults "edits"
"""

import contextlib
import fcntl
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from tests.rewards.execution.faults import CONVENTIONS, FAULTS, MEMORY_MB, check_score, resolve_faulty, samples_of
from tests.rewards.execution.leftovers import check_nothing_left, take_stock, workers_and_descendants

from agent_tunix.overrides import assign
from agent_tunix.rewards.execution import make_runner
from agent_tunix.tracking.rollouts import RolloutReader
from agent_tunix.training.verification import first_difference, first_rollout_difference, read_rows

COMPLETIONS = 8
MOST_FAULTS = 2
TIMEOUT_S = 2.0


def prove_faults(num_batches: int, seed: int = 0) -> dict[str, Any]:
    """Score batches sampled from the fault table × the conventions, in sequence on the same workers.

    Args:
        num_batches: Total number, divided among the conventions.
        seed: Seed of the sampling.

    Returns:
        The count of each outcome, and `processes`, the largest number of processes after a batch.

    Raises:
        AssertionError: A score was not the documented one, or something was left behind.
    """
    rng = random.Random(seed)
    before = take_stock()
    met: Counter[str] = Counter()
    most = 0
    for number, convention in enumerate(CONVENTIONS):
        share = num_batches // len(CONVENTIONS) + (number < num_batches % len(CONVENTIONS))
        with make_runner(
            resolve_faulty(convention), "process", timeout_s=TIMEOUT_S, memory_mb=MEMORY_MB, num_workers=2
        ) as runner:
            for _ in range(share):
                responses = ["x" * rng.randint(1, 40) for _ in range(COMPLETIONS)]
                for _ in range(rng.randint(0, MOST_FAULTS)):
                    responses[rng.randrange(COMPLETIONS)] = rng.choice(list(FAULTS))
                for response, score in zip(responses, runner.reward.score(samples_of(responses)), strict=True):
                    met[score.outcome.value] += 1
                    check_score(score, response, convention)
                most = max(most, len(workers_and_descendants()))
        check_nothing_left(before)
    return {**met, "processes": most}


# --- runs in processes of their own ----------------------------------------------------------------------------------

SMALL_RUN = (
    *("training.batch_size=4", "grpo.num_generations=4", "generation.max_generation_steps=16"),
    *("data.num_train=64", "data.num_test=16", "evaluation.num_samples=0", "tracking.tensorboard=false"),
    *("tracking.report=false", "tracking.progress=none", "rewards.num_workers=2", "rewards.recycle_after=4"),
)
POLL_S = 0.02
LONGEST_S = 300.0


class Run:
    """A run of `agent-tunix train` in a process of its own, which resumes what is there."""

    def __init__(self, root: Path, overrides: Sequence[str]) -> None:
        self.root = root
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by `end`)
        command = [sys.executable, "-P", "-m", "agent_tunix", "train", *SMALL_RUN, *overrides]
        command += [assign("hydra.run.dir", str(root)), "training.resume=true"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=self._errors, start_new_session=True, cwd="/"
        )

    def wait_for_rows(self, number: int) -> bool:
        """Wait until `metrics.jsonl` has so many rows; return False if the run has ended before."""
        deadline = time.monotonic() + LONGEST_S
        while count_rows(self.root) < number:
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < deadline, f"no row {number} within {LONGEST_S:.0f} s"
            time.sleep(POLL_S)
        return self.process.poll() is None

    def end(self) -> str:
        """Wait for the end of the run, which must be a good one; return its log."""
        status = self.process.wait(LONGEST_S)
        self._errors.seek(0)
        with self._errors as file:
            text = file.read()
        assert status == 0, f"the run ended with status {status}:\n{text[-2000:]}"
        return text

    def kill(self) -> None:
        """End the run and its workers at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._errors.close()


def count_rows(root: Path) -> int:
    """Return the number of whole lines of a run's `metrics.jsonl`."""
    path = root / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


# --- power cuts ------------------------------------------------------------------------------------------------------

# ioctl of ext4: nothing more reaches the device, not even the journal.
SHUTDOWN, WITHOUT_JOURNAL = 0x8004587D, 2
# Without the heuristics that save programs which rename files without fsync, and with rare commits of the journal.
MOUNT_OPTIONS = "loop,noauto_da_alloc,commit=300"
DISK_MB = 256


class Disk:
    """An ext4 file system in a file, whose power can be cut. It needs root."""

    def __init__(self, directory: Path) -> None:
        self._image, self.place = directory / "disk.img", directory / "disk"
        self.place.mkdir()
        with self._image.open("wb") as file:
            file.truncate(DISK_MB * 2**20)
        subprocess.run(["mkfs.ext4", "-q", self._image], check=True)

    @contextlib.contextmanager
    def mounted(self) -> Iterator[None]:
        """Mount the file system for the block; the journal is replayed as after a power cut."""
        subprocess.run(["mount", "-o", MOUNT_OPTIONS, self._image, self.place], check=True)
        try:
            yield
        finally:
            # Workers of a run that was killed may need a moment to end.
            while subprocess.run(["umount", self.place], check=False, capture_output=True).returncode:
                time.sleep(POLL_S)

    def cut_power(self) -> None:
        """Lose everything that is not on the device."""
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_JOURNAL))
        finally:
            os.close(descriptor)


CUT_REWARD = "def reward(response, answer):\n    return len(set(response)) / 50 + (answer in response)\n"


def prove_power_cuts(cuts: int = 20, seed: int = 0, num_steps: int = 40) -> dict[str, Any]:
    """Cut the power of a run's disk at random moments; prove that every resume equals the unbroken run.

    All rows up to a checkpoint must be there after each cut. A run that reaches its end must equal the unbroken one,
    and then another run takes its place.

    Raises:
        AssertionError: A resume was refused, or something differs.
    """
    rng = random.Random(seed)
    kept: list[int] = []
    runs = 0
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "cut_reward.py").write_text(CUT_REWARD)
        overrides = [
            *(f"training.num_batches={num_steps}", "training.save_interval_steps=3"),
            *("training.max_checkpoints_to_keep=2", f"training.reward_function={directory}/cut_reward.py:reward"),
        ]
        unbroken = directory / "unbroken"
        Run(unbroken, overrides).end()
        disk = Disk(directory)
        while len(kept) < cuts:
            root = disk.place / f"run_{runs}"
            with disk.mounted():
                run = Run(root, overrides)
                is_running = run.wait_for_rows(count_rows(root) + rng.randrange(4))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    run.process.wait(rng.uniform(0.0, 0.5) if is_running else 0.0)
                if run.process.poll() is not None:
                    run.end()
                    _check_equal(unbroken, root)
                    runs += 1
                    continue
                disk.cut_power()
                run.kill()
            with disk.mounted():
                kept.append(_steps_on_disk(root))
        with disk.mounted():
            Run(root, overrides).end()
            _check_equal(unbroken, root)
    return {"cuts": len(kept), "runs": runs + 1, "step of the checkpoint after each": kept}


def _check_equal(unbroken: Path, root: Path) -> None:
    difference = first_difference(read_rows(unbroken), read_rows(root)) or first_rollout_difference(unbroken, root)
    assert difference is None, difference


def _steps_on_disk(root: Path) -> int:
    """Return the step of the newest checkpoint. All rows up to it must be there."""
    steps = [int(path.name.removeprefix("step_")) for path in (root / "checkpoints").glob("step_*")]
    newest = max(steps, default=0)
    lines = count_rows(root) if newest else 0
    assert lines >= newest, f"the checkpoint is of step {newest}, but only {lines} rows are on the disk"
    return newest


# --- edits in mid-run ------------------------------------------------------------------------------------------------

EDITED_REWARD = """
import edited_helper

VERSION = {version}

def reward(response):
    import edited_late
    return float(VERSION + edited_helper.VERSION + edited_late.VERSION)
"""


def prove_edits(edits: int = 20, seed: int = 0, num_steps: int = 60) -> dict[str, Any]:
    """Edit a reward and the modules that it imports at random moments; prove that no completion is scored by them.

    Workers are replaced after every fourth call.

    Raises:
        AssertionError: A completion was scored by code that the run did not begin with, or no edit was told.
    """
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        _write_version(directory, "edited_reward.py", 1)
        _write_version(directory, "edited_helper.py", 1)
        _write_version(directory, "edited_late.py", 1)
        file = directory / "edited_reward.py"
        run = Run(
            directory / "run",
            [f"training.num_batches={num_steps}", f"training.reward_function={file}:reward"],
        )
        moments = sorted(rng.randrange(1, num_steps) for _ in range(edits))
        made: Counter[str] = Counter()
        for number, moment in enumerate(moments):
            if not run.wait_for_rows(moment):
                break
            time.sleep(rng.uniform(0.0, 0.1))
            edited = rng.choice(["edited_reward.py", "edited_helper.py", "edited_late.py"])
            _write_version(directory, edited, 100 + number)
            made[edited] += 1
        log = run.end()
        totals = Counter(
            score.value for stored in RolloutReader(directory / "run" / "rollouts").iterate() for score in stored.scores
        )
    assert totals.keys() == {3.0}, f"totals of another code: {dict(totals)}"
    assert sum(made.values()) == edits, f"the run was over after {sum(made.values())} edits"
    for edited in made:
        assert f"{edited} was edited after the run loaded it" in log, f"the edit of {edited} was not told"
    return {"edits": dict(made), "completions": totals[3.0]}


def _write_version(directory: Path, name: str, version: int) -> None:
    text = EDITED_REWARD.format(version=version) if name == "edited_reward.py" else f"VERSION = {version}\n"
    partial = directory / f"{name}.new"  # as an editor saves a file
    partial.write_text(text)
    os.replace(partial, directory / name)


if __name__ == "__main__":
    for proof in sys.argv[1:]:
        print(proof, {"power cuts": prove_power_cuts, "edits": prove_edits}[proof]())
