"""A stopped run continues from a copy in a new directory: it equals an unbroken one, and the copy stays as it is."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.compose import to_yaml
from agent_tunix.config.schema import Config
from agent_tunix.errors import CheckpointError, ConfigError
from agent_tunix.grpo.step import GrpoTrainer
from agent_tunix.runs.directory import hold, locate
from agent_tunix.runs.trust import is_own_run
from agent_tunix.runs.weights.checkpoints import Checkpoints
from agent_tunix.runs.weights.record import CheckpointRecord
from agent_tunix.startup.time_budget import TimeBudget
from agent_tunix.tracking.outcome import RunStatus, read_outcome, record_failure
from agent_tunix.training import session as session_module
from agent_tunix.training.resuming import refuse_to_cut
from agent_tunix.training.verification import first_difference, first_rollout_difference, read_rows
from tests.raising import raises
from tests.small_run import NUM_STEPS
from tests.training.support import FINISHED, assert_same_weights, copy_run, small_run, train_run

OVERRIDES = (
    "training.save_interval_steps=2",
    "training.eval_every_n_steps=2",
    "training.max_checkpoints_to_keep=1",
    "stopping.metric=eval/accuracy",
)
STOPPED_AFTER = 3  # neither an evaluation nor a checkpoint is due then


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("unbroken") / "run"
    train_run(root, *OVERRIDES)
    return root


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that had time for three steps, each of which took longer than the one before."""
    root, seconds, take_step = tmp_path_factory.mktemp("stopped") / "run", [0.0], GrpoTrainer.take_step

    def take_longer_and_longer(*args: Any) -> Any:
        seconds[0] += 30 * (1 + args[1])
        return take_step(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GrpoTrainer, "take_step", take_longer_and_longer)
        patch.setattr(session_module, "TimeBudget", lambda hours: TimeBudget(hours, lambda: seconds[0]))
        train_run(root, *OVERRIDES, f"training.max_hours={440 / 3600}")
    return root


def contents(root: Path) -> dict[Path, Any]:
    """Return the content and the time of change of each file and directory."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in (root, *root.rglob("*"))
    }


def assert_same(expected: Path, found: Path) -> None:
    """All metrics but times, completions, findings, the weights of the last checkpoint, and the best step."""
    assert first_difference(read_rows(expected), read_rows(found)) is None
    assert first_rollout_difference(expected, found) is None
    findings = [root / "findings.jsonl" for root in (expected, found)]
    assert len({path.read_text() if path.exists() else "" for path in findings}) == 1
    assert_same_weights(expected, found)
    best = [Checkpoints(root / "checkpoints", 1) for root in (expected, found)]
    assert best[0].best_step() == best[1].best_step()
    assert best[0].steps() == best[1].steps()


@pytest.mark.slow
def test_a_stopped_run_has_what_a_finished_one_has(stopped: Path) -> None:
    rows = read_rows(stopped)
    assert [row["step"] for row in rows] == [0, 1, 2, STOPPED_AFTER]
    assert "eval/accuracy" in rows[-1]
    assert STOPPED_AFTER in Checkpoints(stopped / "checkpoints", 1).steps()
    assert read_outcome(stopped).status is RunStatus.STOPPED


@pytest.mark.slow
def test_its_continuation_in_a_new_directory_equals_an_unbroken_run_and_needs_the_old_one_no_more(
    stopped: Path, unbroken: Path, tmp_path: Path
) -> None:
    old, new = copy_run(stopped, tmp_path / "old"), tmp_path / "new"
    before, overrides = contents(old), (*OVERRIDES, f"training.continue_from={old}")
    train_run(new, *overrides)
    assert_same(unbroken, new)
    assert is_own_run(new)
    assert read_outcome(new).status is RunStatus.FINISHED
    assert contents(old) == before
    shutil.rmtree(old)
    shutil.rmtree(new / "checkpoints" / f"step_{NUM_STEPS:06d}")
    train_run(new, *overrides, "training.resume=true")
    assert_same(unbroken, new)


@pytest.mark.slow
def test_what_cannot_be_continued_names_both_directories(finished: Path, tmp_path: Path) -> None:
    new, other_rows = tmp_path / "new", "data.num_train=32"
    with raises(CheckpointError, "checkpoint_mismatch") as refused:
        train_run(new, *FINISHED, f"training.continue_from={finished}", other_rows)
    assert str(new) in str(refused.value)
    assert str(finished) in str(refused.value)
    assert not (new / "metrics.jsonl").exists()
    # Nothing is in the way of the corrected command.
    assert not any((new / "checkpoints").iterdir())


@pytest.fixture
def failed(tmp_path: Path) -> Path:
    """A run that ended before its first checkpoint."""
    root = tmp_path / "failed"
    root.mkdir()
    (root / "config.yaml").write_text(to_yaml(small_run()))
    record_failure(root, CheckpointError("no space"))
    return root


def test_a_run_without_checkpoints_is_not_continued(failed: Path, tmp_path: Path) -> None:
    with raises(CheckpointError, "no_checkpoint"):
        train_run(tmp_path / "new", f"training.continue_from={failed}")


def test_checkpoints_of_the_other_run_that_are_elsewhere_are_to_be_restored(tmp_path: Path) -> None:
    lost = CheckpointRecord(2, (tmp_path / "lost",))
    for is_continued, remedy in ((True, "by a link"), (False, "set training.checkpoint_dir")):
        with raises(CheckpointError, "no_checkpoint", remedy):
            refuse_to_cut(lost, 0, locate(Config(), tmp_path), is_continued=is_continued)


def test_a_directory_that_is_no_other_run_that_has_ended_is_refused(failed: Path, tmp_path: Path) -> None:
    with raises(ConfigError, "invalid_run_config"):
        train_run(tmp_path / "new", f"training.continue_from={tmp_path}")
    with raises(ConfigError, "invalid_request"):
        train_run(failed, f"training.continue_from={failed}")
    status = json.loads((failed / "status.json").read_text())
    (failed / "status.json").write_text(json.dumps({**status, "status": "running"}))
    with hold(failed), raises(ConfigError, "invalid_request"):
        train_run(tmp_path / "new", f"training.continue_from={failed}")


def test_a_limit_that_no_checkpoint_keeps_to_is_refused_before_training(tmp_path: Path) -> None:
    with raises(ConfigError, "checkpoint_too_large"):
        train_run(tmp_path / "run", "training.max_checkpoints_gb=0.001")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
