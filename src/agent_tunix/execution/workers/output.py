"""Output of users' code in a worker, logged line by line up to a rate limit."""

import contextlib
import logging
import os
import selectors
import time

from agent_tunix.visible_text import one_line

logger = logging.getLogger("agent_tunix.rewards.output")

MOST_LINES = 20
PERIOD_S = 10.0
_LONGEST_LINE = 1000
_READ_BYTES = 2**18


class OutputLog:
    """Log of at most `MOST_LINES` lines every `PERIOD_S` seconds; further lines are only counted."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._unfinished = b""
        self._started = 0.0
        self._num_lines = 0
        self._num_left_out = 0

    def write(self, data: bytes) -> None:
        """Log printed bytes by lines."""
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        self._unfinished = self._unfinished[:_LONGEST_LINE]
        for place, line in enumerate(lines):
            self._log(line)
            if self._num_lines > MOST_LINES:  # all further lines are only counted
                self._num_left_out += len(lines) - place - 1
                break

    def close(self) -> None:
        """Log the unfinished line."""
        if self._unfinished:
            self._log(self._unfinished)
        self._unfinished = b""
        self._tell_left_out()

    def _log(self, line: bytes) -> None:
        now = time.monotonic()
        if now - self._started > PERIOD_S:
            self._tell_left_out()
            self._started, self._num_lines = now, 0
        self._num_lines += 1
        if self._num_lines > MOST_LINES:
            self._num_left_out += 1
        else:
            logger.info(
                "%s: %s", self._source, one_line(line[:_LONGEST_LINE].decode("utf-8", "replace"))[:_LONGEST_LINE]
            )

    def _tell_left_out(self) -> None:
        if self._num_left_out:
            logger.info("%s: %d more lines omitted", self._source, self._num_left_out)
        self._num_left_out = 0


class OutputPipe:
    """Pipe from a process's standard output to the log, read without blocking.

    The owner waits on `selector` and calls the data of its entries with the events. It closes `remote_end`, the end
    that the process writes to, after handing it over.
    """

    def __init__(self, source: str, selector: selectors.BaseSelector) -> None:
        self._log = OutputLog(source)
        self._selector = selector
        self._end, self.remote_end = os.pipe()
        os.set_blocking(self._end, False)
        selector.register(self._end, selectors.EVENT_READ, lambda _: self._read())

    def close(self) -> None:
        """Log what is left and close this end."""
        self._read()
        self._stop()

    def _read(self) -> None:
        if self._end < 0:
            return
        with contextlib.suppress(BlockingIOError):
            if data := os.read(self._end, _READ_BYTES):
                self._log.write(data)
            else:
                self._stop()

    def _stop(self) -> None:
        if self._end >= 0:
            self._selector.unregister(self._end)
            os.close(self._end)
            self._end = -1
            self._log.close()
