"""Runs of two real processes on the loopback, on episodes: one is killed, and one process goes on with the run.

`scripts/proofs.py processes` has four processes and every mesh.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.training.episodes import ACTING, WORLD
from tests.training.process_runs import Started, await_rows, largest_deviation, rows_of, run, start

pytestmark = pytest.mark.slow

# Notes each completion that it scores. With HOLD in the environment, process 1 never has its scores of step 4.
COUNTING = """
import asyncio, json, os
from pathlib import Path

def is_of_process_1():
    pid = os.getpid()
    for _ in range(3):
        pid = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        if b"distributed.process_id=1" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return True
    return False

class Counting:
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        if "HOLD" in os.environ and rollout_id.startswith("4_") and is_of_process_1():
            await asyncio.sleep(3600)
        line = json.dumps({"rollout_id": rollout_id, "scorer": os.getppid()}) + "\\n"
        with open(os.environ["COUNTS"], "a") as file:
            file.write(line)
        return {"length": len(messages[-1]["content"]) % 7 / 7}
"""
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Killed:
    """A run of two processes of which one was killed, and one process that went on with it."""

    root: Path
    started: Started
    rows: list[dict[str, object]]
    counts: list[dict[str, object]]
    resumed: list[dict[str, object]]
    unbroken: list[dict[str, object]]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    directory = tmp_path_factory.mktemp("processes")
    (directory / "counting.py").write_text(COUNTING)
    (directory / "world.py").write_text(WORLD)
    counting = f"{{function: {directory}/counting.py:Counting}}"
    overrides = (
        *ACTING,
        f"environment.name={directory}/world.py:Counter",
        "environment.num_workers=2",
        "training.num_batches=4",
        "rewards.num_workers=1",
        "rewards.timeout_s=3600",
        f"training.reward_function={{environment: {{function: environment}}, counting: {counting}}}",
    )
    root, counts = directory / "run", directory / "counts.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COUNTS", str(counts))
        patch.setenv("HOLD", "1")
        started = start(2, root, *overrides, "model.mesh_shape=[2,1,1]")
        await_rows(started, root, 4)
        started.kill(1)
        started.wait()
        patch.delenv("HOLD")
        rows, counted = rows_of(root), [json.loads(line) for line in counts.read_text().splitlines()]
        resumed = run(1, root, *overrides, "training.resume=true")
        yield Killed(root, started, rows, counted, resumed, run(1, directory / "unbroken", *overrides))


def test_two_processes_have_the_rows_of_one(killed: Killed) -> None:
    assert any(row.get("environment/errors") for row in killed.rows)
    assert largest_deviation(killed.unbroken[: len(killed.rows)], killed.rows) < TOLERANCE


def test_the_process_that_is_left_ends_and_says_how_to_go_on(killed: Killed) -> None:
    assert killed.started.processes[0].returncode == 1
    last = killed.started.said(0).partition("LostProcessError: ")[2]
    assert "another of the 2 processes was lost" in last
    assert "The checkpoint of step 2 is saved; resume with:\n  agent-tunix train" in last
    assert f"hydra.run.dir={killed.root} training.resume=true" in last


def test_one_process_goes_on_as_if_nothing_had_been(killed: Killed) -> None:
    assert [row["step"] for row in killed.resumed] == [0, 1, 2, 3, 4]
    assert largest_deviation(killed.unbroken, killed.resumed) < TOLERANCE


def test_each_completion_is_scored_once_by_one_of_the_processes(killed: Killed) -> None:
    counted = Counter(str(count["rollout_id"]) for count in killed.counts)
    of_steps = {name: number for name, number in counted.items() if name.startswith(("1_", "2_", "3_"))}
    scored = {int(str(row["step"])): row["rewards/outcomes/scored"] for row in killed.unbroken[1:4]}
    assert Counter(int(name.partition("_")[0]) for name in of_steps) == scored
    assert set(of_steps.values()) == {1}
    # Before the model loads, each process tries the reward in a worker of its own.
    assert len({count["scorer"] for count in killed.counts if count["rollout_id"] in of_steps}) == 2


def test_the_first_process_writes_and_the_other_keeps_a_log_of_its_own(killed: Killed) -> None:
    assert "process 1 of 2" in (killed.root / "train.process1.log").read_text()
    assert "process 1 of 2" not in (killed.root / "train.log").read_text()
    assert "accuracy" not in killed.started.said(1)


def test_another_configuration_in_one_of_them_is_refused_by_all(tmp_path: Path) -> None:
    started = start(2, tmp_path / "run", own=[[], ["seed=3"]])
    assert started.wait() == [2, 2]
    for index in range(2):
        assert "ConfigError: all processes require the same configuration" in started.said(index)
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_a_coordinator_that_is_not_there_is_named(tmp_path: Path) -> None:
    started = start(2, tmp_path / "run", "distributed.initialization_timeout_s=3")
    started.kill(0)
    assert started.wait()[1] == 2
    assert "ConfigError: not all of 2 processes connected at 127.0.0.1:" in started.said(1)
