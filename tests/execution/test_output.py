"""Output of workers in the log."""

import logging

import pytest

from agent_tunix.execution.workers.output import MOST_LINES, OutputLog


def test_lines_beyond_the_limit_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    log = OutputLog("worker")
    with caplog.at_level(logging.INFO):
        log.write(b"\n" * 100_000)
        log.write(b"\n" * 10)
        log.close()
    assert len(caplog.records) == MOST_LINES + 1
    assert caplog.messages[-1] == f"worker: {100_010 - MOST_LINES} more lines omitted"
