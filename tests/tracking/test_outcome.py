"""The outcome of a run: recorded as it ends, and read back whatever lies there."""

import fcntl
import json
from pathlib import Path

import pytest

from agent_tunix.errors import CheckpointError, Interrupted, NonFiniteUpdateError
from agent_tunix.tracking.outcome import RunOutcome, RunStatus, is_run, read_outcome, record_failure, recorded_outcome


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
    record_failure(tmp_path, ValueError("no"), ["seed=1"])
    assert is_run(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"status": "lost"}', b"\xff", json.dumps({"status": 1}).encode()]
)
def test_what_is_damaged_is_unreadable_and_never_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "status.json").write_bytes(content)
    assert read_outcome(tmp_path).status is RunStatus.UNREADABLE


def test_a_directory_that_cannot_be_written_ends_no_run(tmp_path: Path) -> None:
    with recorded_outcome(tmp_path / "not" / "there"):
        pass
