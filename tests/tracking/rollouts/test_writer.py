"""Rollouts on their way to the disk: whole files or none, every step once, and a run that goes on without room."""

import itertools
import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from agent_tunix.config.schema import RolloutsConfig
from agent_tunix.tracking.rollouts import RolloutReader, RolloutWriter, StoredStep, rows
from agent_tunix.tracking.rollouts import writer as writer_module
from agent_tunix.tracking.rollouts.files import cut_after
from agent_tunix.tracking.rollouts.writer import choose_rows
from tests.tracking.rollouts.support import assert_same_step, make_step, names, write


def test_each_step_is_a_row_group_that_is_read_as_it_was(tmp_path: Path) -> None:
    steps = [make_step(1, groups=3), make_step(2), make_step(3)]
    write(tmp_path, *steps).close()  # closing twice is harmless
    metadata = pq.read_metadata(tmp_path / "step_000001-000003.parquet")
    assert [metadata.row_group(number).num_rows for number in range(3)] == [6, 4, 4]
    for found, expected in zip(RolloutReader(tmp_path).iterate(), steps, strict=True):
        assert_same_step(found, expected)


def test_a_file_is_closed_with_each_flush_and_when_it_is_large_enough(tmp_path: Path) -> None:
    write(tmp_path / "a", *map(make_step, range(1, 4)), flush_after=[2])
    assert names(tmp_path / "a") == ["step_000001-000002.parquet", "step_000003-000003.parquet"]
    write(tmp_path / "b", *map(make_step, range(1, 9)), max_file_mb=0.03)
    assert 1 < len(names(tmp_path / "b")) < 8
    assert RolloutReader(tmp_path / "b").steps() == list(range(1, 9))


def test_nothing_to_write_makes_no_file(tmp_path: Path) -> None:
    with RolloutWriter(tmp_path / "rollouts", RolloutsConfig(), seed=0) as writer:
        writer.flush()
    write(tmp_path / "rollouts", make_step(1), share=0.0)
    assert not (tmp_path / "rollouts").exists()


# The choice of groups.


def test_groups_are_kept_whole_or_not_at_all() -> None:
    groups = [row // 8 for row in range(8 * 500)]
    kept = Counter(groups[row] for row in choose_rows(groups, seed=0, step=1, share=0.3))
    assert set(kept.values()) == {8}
    assert 100 < len(kept) < 200


def test_the_choice_follows_from_seed_and_step_and_a_larger_share_keeps_all_of_a_smaller_one() -> None:
    groups = list(range(200))
    chosen = [set(choose_rows(groups, 0, 1, share)) for share in (0.0, 0.1, 0.4, 0.9, 1.0)]
    assert all(fewer < more for fewer, more in itertools.pairwise(chosen))
    assert (len(chosen[0]), len(chosen[-1])) == (0, 200)
    assert set(choose_rows(groups, 0, 1, 0.4)) == chosen[2]
    assert set(choose_rows(groups, 0, 2, 0.4)) != chosen[2] != set(choose_rows(groups, 1, 1, 0.4))


def test_a_step_of_which_some_groups_are_stored_knows_how_many_there_were(tmp_path: Path) -> None:
    write(tmp_path, make_step(1, groups=40), make_step(2, groups=40), share=0.5)
    for stored in RolloutReader(tmp_path).iterate():
        assert stored.groups_in_step == 40
        assert 0 < len(stored.samples) < 80
        assert not stored.is_whole


# Beside the run, within bounds.


# Failure is loud, and the run goes on.


def test_a_full_disk_costs_what_was_to_lie_on_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for step in (1, 3):
        (tmp_path / f".step_{step:06d}.partial").symlink_to("/dev/full")
    with caplog.at_level(logging.ERROR, "agent_tunix.rollouts"):
        writer = write(tmp_path, *map(make_step, (1, 2, 3, 4)), flush_after=[2, 3])
    assert writer.dropped == 2 * 4
    assert RolloutReader(tmp_path).steps() == [2, 4]
    assert names(tmp_path) == ["step_000002-000002.parquet", "step_000004-000004.parquet"]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "No space left on device" in told[0]
    assert "8 completions are missing" in told[1]


def test_a_step_that_cannot_be_stored_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert = rows.to_table

    def convert_or_fail(stored: StoredStep) -> Any:
        if stored.step == 2:
            raise MemoryError
        return convert(stored)

    monkeypatch.setattr(writer_module, "to_table", convert_or_fail)
    writer = write(tmp_path, *map(make_step, (1, 2, 3)))
    assert writer.dropped == 4
    assert RolloutReader(tmp_path).steps() == [1, 3]


# A kill at any moment.

WRITE_FOREVER = """
import itertools, sys
from pathlib import Path
from agent_tunix.config.schema import RolloutsConfig
from agent_tunix.tracking.rollouts import RolloutWriter
from tests.tracking.rollouts.support import make_step
with RolloutWriter(Path(sys.argv[1]), RolloutsConfig(max_file_mb=0.03), seed=0) as writer:
    for step in itertools.count(1):
        writer.write(make_step(step))
        if step % 5 == 0:
            writer.flush()
            print(step, flush=True)
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_whole_files_with_every_step_it_flushed(tmp_path: Path) -> None:
    flushed = 20
    root = Path(__file__).parents[3]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE_FOREVER, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    with process.stdout:
        while (line := process.stdout.readline()) and int(line) < flushed:
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    steps = [stored.step for stored in RolloutReader(tmp_path).iterate()]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= flushed
    for file in tmp_path.glob("*.parquet"):
        assert pq.read_table(file).num_rows > 0
    cut_after(tmp_path, flushed - 2)
    write(tmp_path, make_step(flushed - 1))
    assert RolloutReader(tmp_path).steps() == list(range(1, flushed))
    assert not [name for name in names(tmp_path) if name.startswith(".")]
