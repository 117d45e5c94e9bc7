"""A run's directory: places in its config.yaml, who may be at work there, and its pictures."""

import errno
import fcntl
import logging
import os
import threading
from pathlib import Path

import pytest

from agent_tunix.config.schema import Config
from agent_tunix.errors import RunDirectoryError
from agent_tunix.runs.directory import hold, with_absolute_places
from agent_tunix.runs.reporter import report
from agent_tunix.tracking.outcome import RunStatus, read_outcome
from tests.raising import raises
from tests.tracking.report.support import write_run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "part-1.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "source", "expected"),
    [
        ("rows", "jsonl", "{here}/rows"),
        ("./rows/../rows", "auto", "{here}/rows"),
        ("rows/part-*.jsonl", "auto", "{here}/rows/part-*.jsonl"),
        ("rows", "huggingface", "rows"),
        ("owner/name", "auto", "owner/name"),
        ("hf://owner/name", "auto", "hf://owner/name"),
        (None, "synthetic", None),
    ],
)
def test_data_is_named_from_the_root(given: str | None, source: str, expected: str | None, here: Path) -> None:
    config = Config()
    config.data.path, config.data.source = given, source
    config.data.mixture = {"one": {"path": given, "weight": 2.0}, "other": {"weight": 1.0}}
    found = with_absolute_places(config)
    wanted = None if expected is None else expected.format(here=here)
    assert found.data.path == wanted
    assert found.data.mixture == {"one": {"path": wanted, "weight": 2.0}, "other": {"weight": 1.0}}
    assert config.data.path == given


def test_a_model_that_is_a_name_on_a_hub_keeps_it(here: Path) -> None:
    config = Config()
    config.model.path = "owner/name"
    assert with_absolute_places(config).model.path == "owner/name"
    config.model.path = "rows"
    assert with_absolute_places(config).model.path == str(here / "rows")


def test_where_a_run_leaves_things_need_not_exist(here: Path) -> None:
    config = Config()
    config.training.checkpoint_dir, config.training.test_data_dir = "new", "rows"
    found = with_absolute_places(config).training
    assert (found.checkpoint_dir, found.test_data_dir) == (str(here / "new"), str(here / "rows"))


# --- one process at a time -------------------------------------------------------------------------------------------


def test_whoever_looks_whether_a_run_goes_on_keeps_none_from_starting(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.05, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        with hold(tmp_path):
            assert read_outcome(tmp_path).status is RunStatus.RUNNING


def test_a_directory_in_which_another_process_runs_is_refused(tmp_path: Path) -> None:
    with hold(tmp_path), raises(RunDirectoryError, "directory_in_use"), hold(tmp_path):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_disk_without_locks_is_named_with_the_key_that_does_without(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with raises(RunDirectoryError, "no_locks") as caught, hold(tmp_path):
        pass
    assert "training.lock=false" in str(caught.value)
    with hold(tmp_path, lock=False):
        assert read_outcome(tmp_path).status is not RunStatus.RUNNING


def test_what_was_asked_for_is_written(tmp_path: Path) -> None:
    config = Config()
    config.training.save_reward_analysis = True
    root = write_run(tmp_path / "run", 2).root
    written = report(config, root)
    assert written == {"report": root / "report.html", "reward analysis": root / "reward_analysis.json"}
    assert all(path.is_file() for path in written.values())


def test_nothing_is_written_that_nobody_asked_for(tmp_path: Path) -> None:
    config = Config()
    config.tracking.report = False
    root = write_run(tmp_path / "run", 1).root
    assert report(config, root) == {}
    assert not (root / "report.html").exists()


def test_a_report_that_cannot_be_drawn_is_told_and_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    root = write_run(tmp_path / "run", 1).root
    (root / "metrics.jsonl").write_text("broken\n" * 3)
    monkeypatch.setattr(logging.getLogger("agent_tunix"), "propagate", True)
    assert report(Config(), root) == {}
    assert "the report was not written" in caplog.text
    assert f"agent-tunix report {root}" in caplog.text
