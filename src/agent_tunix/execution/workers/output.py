"""Output of users' code in a worker, logged line by line up to a rate limit."""

import logging
import threading
import time

from agent_tunix.visible_text import one_line

logger = logging.getLogger("agent_tunix.rewards.output")

MOST_LINES = 20
PERIOD_S = 10.0
_LONGEST_LINE = 1000
# A read counts as at least so many bytes, because each takes time.
_LEAST_COUNTED = 512


class OutputLimit:
    """Limit on the logged lines of all workers of a pool: `MOST_LINES` every `PERIOD_S` seconds.

    It is one for all, because a worker that ends may be replaced at once.
    """

    def __init__(self, pool: str) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._started = 0.0
        self._num_left = 0
        self._num_omitted = 0

    def admit(self, num_lines: int) -> int:
        """Return how many of the lines may be logged; the others are counted."""
        now = time.monotonic()
        with self._lock:
            if not self._started or now - self._started > PERIOD_S:
                self.tell_omitted()
                self._started, self._num_left = now, MOST_LINES
            admitted = min(num_lines, self._num_left)
            self._num_left -= admitted
            self._num_omitted += num_lines - admitted
        return admitted

    def tell_omitted(self) -> None:
        """Log how many lines were not admitted since the last time."""
        if self._num_omitted:
            logger.info("%s: %d more lines omitted", self._pool, self._num_omitted)
        self._num_omitted = 0


class OutputLog:
    """Log of the output of one worker, by lines, as far as the limit of its pool admits them.

    Attributes:
        num_bytes: Bytes that were written, at least 512 for each read; its owner may set it back to 0.
    """

    def __init__(self, source: str, limit: OutputLimit) -> None:
        self._source = source
        self._limit = limit
        self._unfinished = b""
        self.num_bytes = 0

    def write(self, data: bytes) -> None:
        """Log printed bytes by lines."""
        self.num_bytes += max(len(data), _LEAST_COUNTED)
        data = self._unfinished + data
        *lines, rest = data.split(b"\n", self._limit.admit(data.count(b"\n")))
        self._unfinished = rest[rest.rfind(b"\n") + 1 :][:_LONGEST_LINE]
        for line in lines:
            self._log(line)

    def close(self) -> None:
        """Log the unfinished line."""
        if self._unfinished and self._limit.admit(1):
            self._log(self._unfinished)
        self._unfinished = b""

    def _log(self, line: bytes) -> None:
        text = one_line(line[:_LONGEST_LINE].decode("utf-8", "replace"))
        logger.info("%s: %s", self._source, text[:_LONGEST_LINE])
