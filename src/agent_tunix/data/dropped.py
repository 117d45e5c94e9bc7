"""Rows that a dataset loses on the way to training: how many for each reason, and where they stand."""

import bisect
from dataclasses import dataclass, field
from pathlib import Path

ROWS_SHOWN = 5


class RowError(Exception):
    """One row cannot be used; the reader drops it and goes on.

    Attributes:
        reason: What is wrong, in words that equal rows share.
        detail: What was found in this row.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


@dataclass(slots=True)
class Dropped:
    """A tally of dropped rows.

    Attributes:
        origin: Where the rows come from, as a file; empty where there is nothing to name.
        unit: What a row's number counts: a line of a file, or a row.
        files: Name of each of several files, with the number of rows that come before it; their rows are numbered
            through.
        counts: Dropped rows by reason.
        rows: Numbers of the first few rows of each reason; of a file, its line numbers.
        details: What was found in the first row of each reason, where there is more to say.
    """

    origin: str = ""
    unit: str = "line"
    files: list[tuple[int, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    rows: dict[str, list[int]] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, row: int, detail: str = "") -> None:
        """Count one row."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        shown = self.rows.setdefault(reason, [])
        if len(shown) < ROWS_SHOWN:
            shown.append(row)
        if detail:
            self.details.setdefault(reason, detail)

    def begin_file(self, path: Path, before: int) -> None:
        """Learn of the next file, whose first row has the number `before + 1`."""
        self.files.append((before, path.name))
        self.origin = str(path) if len(self.files) == 1 else f"{len(self.files)} files of {path.parent}"

    def absorb(self, other: "Dropped", name: str | None = None) -> None:
        """Count the rows of another tally too; of one set of several, each reason with the set's name before it."""
        for reason, count in other.counts.items():
            named = reason if name is None else f"{name}: {reason}"
            self.counts[named] = self.counts.get(named, 0) + count
            self.rows[named] = [*self.rows.get(named, []), *other.rows[reason]][:ROWS_SHOWN]
            if reason in other.details:
                self.details.setdefault(named, other.details[reason])

    @property
    def total(self) -> int:
        """All dropped rows."""
        return sum(self.counts.values())

    def describe(self) -> str:
        """The tally in one line: `3 × not JSON (lines 4, 9, 12; the first: …), 1 × empty line (line 7)`."""
        return ", ".join(f"{count} × {reason} ({self._where(reason)})" for reason, count in self.counts.items())

    def _where(self, reason: str) -> str:
        rows, count = self.rows[reason], self.counts[reason]
        if len(self.files) > 1:
            where = ", ".join(map(self._place, rows))
        else:
            where = f"{self.unit} " if count == 1 else f"{self.unit}s "
            where += ", ".join(map(str, rows))
        if count > len(rows):
            where += ", …"
        if detail := self.details.get(reason):
            where += f"; {detail}" if count == 1 else f"; the first: {detail}"
        return where

    def _place(self, row: int) -> str:
        """A row of one of several files: `part-2.jsonl line 7`."""
        before, name = self.files[bisect.bisect_left(self.files, row, key=lambda file: file[0]) - 1]
        return f"{name} {self.unit} {row - before}"
