"""The outcome of a run and its directory, read from outside whatever lies there."""

import fcntl
import json
from pathlib import Path

import pytest

from agent_tunix.config.compose import to_yaml
from agent_tunix.config.schema import Config
from agent_tunix.errors import CheckpointError, ConfigError, Interrupted, NonFiniteUpdateError, RunDirectoryError
from agent_tunix.tracking import StoredRun
from agent_tunix.tracking.outcome import RunOutcome, RunStatus, is_run, read_outcome, record_failure, recorded_outcome
from tests.raising import raises
from tests.tracking.rollouts.support import make_step, write


def test_a_run_that_comes_to_its_end_is_finished(tmp_path: Path) -> None:
    with recorded_outcome(tmp_path, ["seed=1"]):
        pass
    assert read_outcome(tmp_path) == RunOutcome(RunStatus.FINISHED, ("seed=1",))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NonFiniteUpdateError("step 3: the loss is nan\nand more"), RunStatus.FAILED),
        (MemoryError(), RunStatus.FAILED),
        (Interrupted("stopped by signal 15", 15), RunStatus.STOPPED),
        (KeyboardInterrupt(), RunStatus.STOPPED),
    ],
)
def test_what_ends_a_run_is_kept_and_goes_on(tmp_path: Path, error: BaseException, status: RunStatus) -> None:
    with pytest.raises(type(error)), recorded_outcome(tmp_path):
        raise error
    found = read_outcome(tmp_path)
    assert found.status is status
    assert found.detail.startswith(f"{type(error).__name__}: ")
    assert "\n" not in found.detail


@pytest.mark.parametrize("error", [CheckpointError("other rows"), KeyboardInterrupt()])
def test_a_resume_that_is_refused_leaves_the_earlier_outcome(tmp_path: Path, error: BaseException) -> None:
    with recorded_outcome(tmp_path, ["seed=1"]):
        (tmp_path / "config.yaml").touch()
    with pytest.raises(type(error)), recorded_outcome(tmp_path, ["seed=2"]):
        raise error
    assert read_outcome(tmp_path) == RunOutcome(RunStatus.FINISHED, ("seed=1",))


def test_a_resume_that_fails_once_it_has_begun_is_failed(tmp_path: Path) -> None:
    with recorded_outcome(tmp_path, ["seed=1"]):
        (tmp_path / "config.yaml").touch()

    def resume() -> None:
        with recorded_outcome(tmp_path) as attempt:
            attempt.begin()
            raise NonFiniteUpdateError("step 3")

    with pytest.raises(NonFiniteUpdateError):
        resume()
    assert read_outcome(tmp_path).status is RunStatus.FAILED


def test_a_second_attempt_at_what_was_no_run_yet_tells_its_own_failure(tmp_path: Path) -> None:
    for why in ("first", "second"):
        with pytest.raises(CheckpointError), recorded_outcome(tmp_path):
            raise CheckpointError(why)
    assert "second" in read_outcome(tmp_path).detail


def test_a_run_at_work_holds_its_lock_and_a_killed_one_does_not(tmp_path: Path) -> None:
    with recorded_outcome(tmp_path):
        with (tmp_path / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert read_outcome(tmp_path).status is RunStatus.RUNNING
        assert read_outcome(tmp_path).status is RunStatus.STOPPED


def test_a_failure_makes_a_directory_a_run_and_a_configuration_alone_does_not(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    assert not is_run(tmp_path)
    record_failure(tmp_path, ValueError("no. Reasons:\n  1 × it\n  1 × this"), ["seed=1"])
    assert is_run(tmp_path)
    assert read_outcome(tmp_path).detail == "ValueError: no. Reasons: 1 × it"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"status": "lost"}', b"\xff", json.dumps({"status": 1}).encode()]
)
def test_what_is_damaged_is_unreadable_and_never_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "status.json").write_bytes(content)
    assert read_outcome(tmp_path).status is RunStatus.UNREADABLE


def test_a_directory_that_cannot_be_written_ends_no_run(tmp_path: Path) -> None:
    with recorded_outcome(tmp_path / "not" / "there"):
        pass


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Files of a run at its second checkpoint."""
    config = Config()
    config.seed = 7
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    (tmp_path / "environment.json").write_text(json.dumps({"python": "3.11", "reward_fingerprint": {"hash": "ab"}}))
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n{"step": 1, "rewards/total/mean": 0.5}\n{"step": 2, "rew')
    write(tmp_path / "rollouts", make_step(1))
    return tmp_path


def test_a_run_is_read_in_its_parts(root: Path) -> None:
    run = StoredRun(root)
    assert run.config.seed == 7
    assert [row["step"] for row in run.rows] == [0, 1]  # the last line is being written
    assert run.rollouts.steps() == [1]
    assert run.environment["python"] == "3.11"
    assert run.fingerprint == {"hash": "ab"}


def test_a_run_that_goes_on_is_seen_to(root: Path) -> None:
    run = StoredRun(root)
    assert run.rollouts.steps() == [1]
    write(root / "rollouts", make_step(2))
    with (root / "metrics.jsonl").open("a") as file:
        file.write('ards/total/mean": 0.5}\n{"step": 3}\n')
    assert run.rollouts.steps() == [1, 2]
    assert [row["step"] for row in run.rows] == [0, 1, 2, 3]


def test_a_run_that_has_just_begun_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(to_yaml(Config()))
    run = StoredRun(tmp_path)
    assert (run.rows, run.rollouts.steps()) == ([], [])


def test_a_path_that_is_no_run_is_refused(root: Path, tmp_path: Path) -> None:
    for path, said in (
        (tmp_path / "missing", "does not exist"),
        (root / "config.yaml", "is a file"),
        (root / "rollouts", "but contains step_000001-000001.parquet"),
    ):
        with raises(RunDirectoryError, "missing_run") as caught:
            StoredRun(path)
        assert said in str(caught.value)


def test_a_damaged_part_is_named_and_leaves_the_others_readable(root: Path) -> None:
    (root / "environment.json").write_text("[")
    (root / "config.yaml").write_text("a: [")
    (root / "metrics.jsonl").write_text("{\n{}\n")
    run = StoredRun(root)
    with raises(RunDirectoryError, "damaged_run"):
        _ = run.fingerprint
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        _ = run.config
    with raises(RunDirectoryError, "damaged_run"):
        _ = run.rows
    assert run.rollouts.steps() == [1]


def test_an_environment_without_a_fingerprint_is_told(root: Path) -> None:
    (root / "environment.json").write_text("{}")
    with raises(RunDirectoryError, "damaged_run"):
        _ = StoredRun(root).fingerprint
    (root / "environment.json").unlink()
    with raises(RunDirectoryError, "damaged_run"):
        _ = StoredRun(root).environment
