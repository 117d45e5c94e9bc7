"""The run's log."""

import logging
import os
from pathlib import Path

import pytest

from agent_tunix.errors import RunDirectoryError
from agent_tunix.tracking.logs import RunLog
from tests.raising import raises

LOGGER = logging.getLogger("agent_tunix.somewhere")


def say_everything() -> None:
    LOGGER.debug("a trace")
    LOGGER.info("a fact")
    LOGGER.warning("a worry")


@pytest.mark.parametrize(
    ("level", "in_file", "on_console"),
    [
        ("debug", ["a trace", "a fact", "a worry"], "a fact\nwarning: a worry\n"),
        ("info", ["a fact", "a worry"], "a fact\nwarning: a worry\n"),
        ("warning", ["a worry"], "warning: a worry\n"),
        ("error", [], ""),
    ],
)
def test_level_decides_what_is_kept_and_shown(
    level: str, in_file: list[str], on_console: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunLog(tmp_path / "train.log", level):
        say_everything()
    lines = (tmp_path / "train.log").read_text(encoding="utf-8").splitlines()
    assert [line.split(": ", 1)[1] for line in lines] == in_file
    assert capsys.readouterr().err == on_console


def test_closing_leaves_the_logger_as_it_was(tmp_path: Path) -> None:
    package = logging.getLogger("agent_tunix")
    before = (package.level, list(package.handlers))
    log = RunLog(tmp_path / "train.log", "debug")
    log.close()
    log.close()
    assert (package.level, package.handlers) == before


def test_resumed_run_appends(tmp_path: Path) -> None:
    for _ in range(2):
        with RunLog(tmp_path / "train.log", "warning"):
            say_everything()
    assert (tmp_path / "train.log").read_text().count("a worry") == 2


def test_unwritable_file_is_a_clear_error(tmp_path: Path) -> None:
    with raises(RunDirectoryError, "unwritable_directory"):
        RunLog(tmp_path / "none" / "train.log", "info")


def test_full_disk_is_told_once_and_does_not_stop_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.symlink("/dev/full", tmp_path / "train.log")
    with RunLog(tmp_path / "train.log", "warning"):
        say_everything()
        say_everything()
    errors = capsys.readouterr().err
    assert errors.count("train.log is no longer written: No space left on device") == 1
    assert errors.count("a worry") == 2
    assert "Traceback" not in errors
