"""Index of a growing `metrics.jsonl`: the position of each row, and the evaluations.

Each look reads only what was added. A run that resumes replaces the file and drops the rows after its checkpoint. The
index then starts again, and `version` changes.
"""

import bisect
import json
import os
import re
import sys
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_tunix.service.runs.files import is_step, open_plain, parse_object

MAX_ROWS = 5000
_MAX_BYTES = 4 * 2**20
_CHUNK = 2**20
# Form in which the run writes steps. Other JSON is parsed.
_STEP = re.compile(rb'\{"step": (\d{1,15})[,}]')
_LONGEST_LINE = 8 * 2**20
# Bytes of overlong lines after which a look skips the rest of the file's current content.
_MOST_DAMAGED = 256 * 2**20
_EVALUATION = "eval/"
MAX_EVALUATIONS = 5000
MAX_EVALUATION_BYTES = 8 * 2**20
# A row of a run with forty components has some 3,000 metrics in 200 KB.
_LONGEST_EVALUATION = 2**20
_MOST_NAMES = 5000


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
            last = first
            size = 0
            while last < min(len(self._steps), first + limit):
                size += self._ends[last] - self._starts[last]
                if last > first and size > _MAX_BYTES:
                    break
                last += 1
            following = self._steps[last - 1] if last < len(self._steps) else None
            return MetricsPage(self._read(first, last), following, self._version(), self._damaged)

    def last_rows(self, count: int) -> list[dict[str, Any]]:
        """Return the last rows, at most `count`."""
        with self._lock:
            self._catch_up()
            return self._read(max(len(self._steps) - count, 0), len(self._steps))

    def evaluations(self) -> list[dict[str, Any]]:
        """Return `step` and the metrics under `eval/` of rows that have evaluations, in the file's order.

        Of more than 5,000, or of more than 8 MB, only the first (before training) and the latest are kept. Those in
        rows of more than 1 MB or with more than 5,000 metrics are left out.
        """
        with self._lock:
            self._catch_up()
            return [*self._first_evaluation, *(found for found, _ in self._evaluations)]

    def evaluations_left_out(self) -> int:
        """Return the number of evaluations that `evaluations` leaves out."""
        with self._lock:
            self._catch_up()
            return self._evaluations_left_out

    def _version(self) -> str:
        return f"{self._inode or 0:x}-{self._resets}"

    def _forget(self) -> None:
        self._steps: list[int] = []  # non-decreasing
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._first_evaluation: list[dict[str, Any]] = []
        self._evaluations: deque[tuple[dict[str, Any], int]] = deque()  # each with its size in bytes
        self._evaluation_bytes = 0
        self._evaluations_left_out = 0
        self._offset = 0
        self._damaged = 0
        self._is_within_damaged = False

    def _catch_up(self) -> None:
        """Index new lines; an incomplete last line waits for the next look."""
        try:
            with open_plain(self._path) as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    if self._inode is not None:
                        self._resets += 1
                    self._inode = status.st_ino
                    self._forget()
                if status.st_size == self._offset:
                    return
                file.seek(self._offset)
                rest, damaged_bytes = b"", 0
                while chunk := file.read(_CHUNK):
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        self._add(line)
                    if len(rest) > _LONGEST_LINE:  # too long for a row, and its end is not read yet
                        self._offset += len(rest)
                        self._is_within_damaged = True
                        damaged_bytes += len(rest)
                        rest = b""
                    if damaged_bytes > _MOST_DAMAGED:  # a sparse file of terabytes takes no space
                        self._offset = status.st_size
                        self._damaged += 1
                        return
        except OSError:  # it does not exist yet, is being replaced, or is not readable
            if self._inode is not None:
                self._resets += 1
            self._inode = None
            self._forget()

    def _add(self, line: bytes) -> None:
        start, self._offset = self._offset, self._offset + len(line) + 1
        if self._is_within_damaged:  # this line ends the damaged one
            self._is_within_damaged = False
            self._damaged += 1
            return
        found = _STEP.match(line)
        row = None if found and line.endswith(b"}") else parse_object(line)
        step = int(found[1]) if found and line.endswith(b"}") else (row or {}).get("step")
        if not is_step(step):
            self._damaged += 1
            return
        self._steps.append(max(step, self._steps[-1]) if self._steps else step)
        self._starts.append(start)
        self._ends.append(self._offset)
        if _EVALUATION.encode() in line:
            if len(line) > _LONGEST_EVALUATION:
                self._evaluations_left_out += 1
            else:
                self._keep_evaluation(row or parse_object(line) or {})

    def _keep_evaluation(self, row: dict[str, Any]) -> None:
        found = {name: value for name, value in row.items() if name.startswith(_EVALUATION)}
        if not found or not is_step(row.get("step")):
            return
        if len(found) > _MOST_NAMES:
            self._evaluations_left_out += 1
            return
        kept = {"step": row["step"]} | {sys.intern(name): value for name, value in found.items()}
        if not self._first_evaluation:
            self._first_evaluation.append(kept)
            return
        size = len(json.dumps(kept))
        self._evaluations.append((kept, size))
        self._evaluation_bytes += size
        while len(self._evaluations) >= MAX_EVALUATIONS or self._evaluation_bytes > MAX_EVALUATION_BYTES:
            self._evaluation_bytes -= self._evaluations.popleft()[1]
            self._evaluations_left_out += 1

    def _read(self, first: int, last: int) -> list[dict[str, Any]]:
        if first >= last:
            return []
        try:
            with open_plain(self._path) as file:
                if os.fstat(file.fileno()).st_ino != self._inode:  # just replaced: the next look starts again
                    return []
                lines = []
                for start, end in zip(self._starts[first:last], self._ends[first:last], strict=True):
                    file.seek(start)  # a damaged line of any length may lie before it
                    lines.append(file.read(end - start))
        except OSError:
            return []
        rows = map(parse_object, lines)
        return [row for row in rows if row is not None and is_step(row.get("step"))]
