"""Resuming with files that a power cut, a full disk or a user has damaged or removed, and with moved checkpoints."""

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_tunix.config.compose import from_yaml
from agent_tunix.config.schema import Config
from agent_tunix.errors import CheckpointError
from agent_tunix.runs.preflight import preflight
from agent_tunix.runs.weights.checkpoints import Checkpoints
from agent_tunix.tracking import read_rows
from agent_tunix.training.train import train
from agent_tunix.training.verification import first_difference
from agent_tunix.training.verification import read_rows as read_untimed
from tests.raising import raises
from tests.training.support import copy_run

Damage = Callable[[Path], object]


def empty(path: Path) -> None:
    path.write_bytes(b"")


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zero(path: Path) -> None:
    """Data that was never flushed, as a power cut leaves it."""
    path.write_bytes(bytes(path.stat().st_size))


def remove(path: Path) -> None:
    path.unlink()


SIDE_FILES = ("config.yaml", "environment.json", "metrics.jsonl", "findings.jsonl", "status.json", "checkpoints.json")
DAMAGES: dict[str, Damage] = {"empty": empty, "torn": tear, "zeros": zero, "removed": remove}


@pytest.fixture
def config(finished: Path) -> Config:
    return copy.deepcopy(from_yaml(finished / "config.yaml"))


def resume(root: Path, config: Config) -> str:
    """Resume a run in this process; return its log."""
    config.training.resume = True
    train(preflight(config, root.parent), root)
    return (root / "train.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_resume_needs_checkpoint_and_configuration_alone(
    damage: Damage, finished: Path, config: Config, tmp_path: Path
) -> None:
    root = copy_run(finished, tmp_path / "run", without=4)
    for name in ("findings.jsonl", "checkpoints/best.json", "checkpoints.json"):
        if not (root / name).exists():
            (root / name).write_text('{"step": 2}\n')
    for file in [*(root / name for name in SIDE_FILES), root / "checkpoints/best.json", *(root / "rollouts").iterdir()]:
        damage(file)
    log = resume(root, config)
    assert "resumed from the checkpoint of step 2" in log
    assert Checkpoints(root / "checkpoints", 2).steps() == [2, 4]
    expected = {row["step"]: row for row in read_untimed(finished)}
    found = read_untimed(root)
    assert [row["step"] for row in found][-2:] == [3, 4]
    assert first_difference([expected[row["step"]] for row in found], found) is None
    assert from_yaml(root / "config.yaml").training.num_batches == 4
    if damage is remove:
        assert "config.yaml is missing and is replaced by the settings of this command" in log
    assert json.loads((root / "environment.json").read_text())["method"] == "grpo"


@pytest.mark.slow
def test_lines_that_are_no_rows_go_and_the_others_stay(finished: Path, config: Config, tmp_path: Path) -> None:
    root = copy_run(finished, tmp_path / "run", without=4)
    lines = (root / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (root / "metrics.jsonl").write_bytes(lines[0] + bytes(40) + b"\n" + lines[2][:20] + b"\n" + lines[2] + lines[3][:9])
    log = resume(root, config)
    assert "lacks rows of steps before the checkpoint of step 2: 1." in log
    assert [row["step"] for row in read_rows(root / "metrics.jsonl")] == [0, 2, 3, 4]


# --- another directory of checkpoints --------------------------------------------------------------------------------


@pytest.mark.slow
def test_earlier_checkpoints_are_found_after_checkpoint_dir_changes(
    finished: Path, config: Config, tmp_path: Path
) -> None:
    """The run goes on from them, and again from where it then was."""
    root, other = copy_run(finished, tmp_path / "run", without=4), tmp_path / "other"
    config.training.checkpoint_dir = str(other)
    config.training.num_batches = 3
    assert "resumed from the checkpoint of step 2" in resume(root, config)
    assert Checkpoints(other, 2).steps() == [3]
    assert Checkpoints(root / "checkpoints", 2).steps() == [2]
    config.training.checkpoint_dir = None
    config.training.num_batches = 4
    assert "resumed from the checkpoint of step 3" in resume(root, config)


def test_nothing_is_cut_while_later_checkpoints_are_elsewhere(finished: Path, config: Config, tmp_path: Path) -> None:
    root, other, third = copy_run(finished, tmp_path / "run"), tmp_path / "other", tmp_path / "third"
    shutil.move(root / "checkpoints", other)
    (root / "checkpoints.json").write_text(json.dumps({"step": 4, "directories": [str(other)]}))
    other.rename(tmp_path / "unmounted")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.suffix != ".log"}
    config.training.checkpoint_dir = str(third)
    with raises(CheckpointError, "no_checkpoint", str(other), str(third)):
        resume(root, config)
    assert {path: path.read_bytes() for path in before} == before


def test_nothing_is_cut_while_the_disk_of_the_checkpoints_is_not_mounted(
    finished: Path, config: Config, tmp_path: Path
) -> None:
    root, disk = copy_run(finished, tmp_path / "run"), tmp_path / "disk"
    shutil.move(root / "checkpoints", tmp_path / "unmounted")
    disk.mkdir()
    (root / "checkpoints.json").write_text(json.dumps({"step": 4, "directories": [str(disk)]}))
    config.training.checkpoint_dir = str(disk)
    with raises(CheckpointError, "no_checkpoint") as caught:
        resume(root, config)
    assert str(caught.value).count(str(disk)) == 2
    assert [row["step"] for row in read_rows(root / "metrics.jsonl")][-1] == 4


def test_a_directory_of_the_stored_configuration_counts_without_a_record(
    finished: Path, config: Config, tmp_path: Path
) -> None:
    root = copy_run(finished, tmp_path / "run")
    (root / "checkpoints.json").unlink(missing_ok=True)
    shutil.rmtree(root / "checkpoints")
    config.training.checkpoint_dir = str(tmp_path / "other")
    with raises(CheckpointError, "no_checkpoint"):
        resume(root, config)
