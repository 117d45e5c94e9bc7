"""A run and its pictures: what cannot be drawn is said, and never raised."""

import logging
from pathlib import Path

import pytest

from agent_tunix.config.schema import Config
from agent_tunix.runs.reporting import report
from tests.tracking.report.support import write_run


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
