"""Reading of the `metrics.jsonl` of a run in progress.

Each look reads only what was added. A run that resumes replaces the file and drops the rows after its checkpoint. The
index then starts again, and `version` changes.
"""

import bisect
import os
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_tunix.tracking.metrics_file import parse_row, to_plain

MAX_ROWS = 5000
MAX_EVALUATIONS = 5000
_MAX_BYTES = 4 * 2**20
_END_BYTES = 256 * 1024
# Form in which the run writes steps. Other JSON is parsed.
_STEP = re.compile(rb'\{"step": (\d{1,15})[,}]')
_EVALUATION = "eval/"


@dataclass(frozen=True)
class MetricsPage:
    """Page of rows."""

    rows: list[dict[str, Any]]  # objects with `step`, in the file's order
    next: int | None  # step after which the next page starts; None if there are no later rows yet
    version: str  # if it changes, earlier rows may have been replaced and must be read again
    damaged: int  # number of lines so far that are not rows


class MetricsTail:
    """Reader of a `metrics.jsonl`, which need not exist yet; thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._inode: int | None = None
        self._resets = 0
        self._forget()

    def page(self, after: int | None = None, limit: int = 1000) -> MetricsPage:
        """Return rows of steps later than `after`: at most `limit`, and at most 4 MB unless one row is longer."""
        with self._lock:
            self._catch_up()
            first = 0 if after is None else bisect.bisect_right(self._steps, after)
            last = min(len(self._steps), first + limit)
            if first < last:
                last = max(first + 1, bisect.bisect_right(self._ends, self._starts[first] + _MAX_BYTES, first, last))
            following = self._steps[last - 1] if last < len(self._steps) else None
            rows = self._read(range(first, last))
            return MetricsPage(rows, following, f"{self._inode or 0:x}-{self._resets}", self._damaged)

    def evaluations(self) -> tuple[list[dict[str, Any]], int]:
        """Return `step` and the metrics under `eval/` of rows that have evaluations, and the number of those left out.

        Of more than 5,000, only the first (before training) and the latest are returned.
        """
        with self._lock:
            self._catch_up()
            places = self._evaluations
            num_left_out = max(len(places) - MAX_EVALUATIONS, 0)
            rows = self._read([*places[:1], *places[1 + num_left_out :]])
        evaluations = [
            {name: value for name, value in row.items() if name == "step" or name.startswith(_EVALUATION)}
            for row in rows
        ]
        return [row for row in evaluations if len(row) > 1], num_left_out

    def _forget(self) -> None:
        self._steps: list[int] = []  # non-decreasing
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._evaluations: list[int] = []  # places in `_steps`
        self._offset = 0
        self._damaged = 0

    def _catch_up(self) -> None:
        """Index new lines; an incomplete last line waits for the next look."""
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._reset(status.st_ino)
                file.seek(self._offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    self._add(line)
        except OSError:  # it does not exist yet, is being replaced, or is not readable
            self._reset(None)

    def _reset(self, inode: int | None) -> None:
        self._resets += self._inode is not None
        self._inode = inode
        self._forget()

    def _add(self, line: bytes) -> None:
        start, self._offset = self._offset, self._offset + len(line)
        if (match := _STEP.match(line)) and line.endswith(b"}\n"):
            step = int(match[1])
        else:
            row = parse_row(line)
            if isinstance(row, Exception):
                self._damaged += 1
                return
            step = row["step"]
        if f'"{_EVALUATION}'.encode() in line:
            self._evaluations.append(len(self._steps))
        self._steps.append(max(step, self._steps[-1]) if self._steps else step)
        self._starts.append(start)
        self._ends.append(self._offset)

    def _read(self, places: Sequence[int]) -> list[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_ino != self._inode:  # just replaced: the next look starts again
                    return []
                lines = []
                for place in places:
                    file.seek(self._starts[place])  # damaged lines may lie before it
                    lines.append(file.read(self._ends[place] - self._starts[place]))
        except OSError:
            return []
        return _rows_of(lines)


def read_last_rows(path: Path) -> list[dict[str, Any]]:
    """Return the complete rows in the last 256 KB of a `metrics.jsonl`; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            start = max(file.seek(0, os.SEEK_END) - _END_BYTES, 0)
            file.seek(start)
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return []
    return _rows_of(lines[1:] if start else lines)


def _rows_of(lines: list[bytes]) -> list[dict[str, Any]]:
    rows = map(parse_row, lines)
    return [to_plain(row) for row in rows if not isinstance(row, Exception)]
