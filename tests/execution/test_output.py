"""Output of workers in the log."""

import logging

import pytest

from agent_tunix.execution.workers.output import MOST_LINES, OutputLimit, OutputLog


def test_lines_beyond_the_limit_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    limit = OutputLimit("workers")
    log = OutputLog("worker", limit)
    with caplog.at_level(logging.INFO):
        log.write(b"\n" * 100_000)
        log.write(b"\n" * 10)
        log.close()
        limit.tell_omitted()
    assert len(caplog.records) == MOST_LINES + 1
    assert caplog.messages[-1] == f"workers: {100_010 - MOST_LINES} more lines omitted"


def test_workers_that_replace_one_another_have_one_limit(caplog: pytest.LogCaptureFixture) -> None:
    limit = OutputLimit("workers")
    with caplog.at_level(logging.INFO):
        for number in range(1000):
            log = OutputLog(f"worker {number}", limit)
            log.write(b"a line\nand one that does not end")
            log.close()
        limit.tell_omitted()
    assert len(caplog.records) == MOST_LINES + 1
    assert caplog.messages[-1] == f"workers: {2000 - MOST_LINES} more lines omitted"
