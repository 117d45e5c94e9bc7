"""Tallies of dropped rows, by reason and row number."""

import bisect
from dataclasses import dataclass, field
from pathlib import Path

ROWS_SHOWN = 5


class RowError(Exception):
    """An unusable row, which the reader drops before it continues.

    Attributes:
        reason: The problem, in the same words for all rows that have it.
        detail: The value found in this row.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


@dataclass(slots=True)
class Dropped:
    """A tally of dropped rows."""

    origin: str = ""  # name of the source, such as a file; empty if there is none
    unit: str = "line"  # unit of row numbers: a line of a file, or a row
    # Files of the source, if it has several: the number of rows before the file, and its name. Row numbers continue
    # from file to file.
    files: list[tuple[int, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)  # dropped rows by reason
    # Numbers of the first few rows by reason; for a file, line numbers.
    rows: dict[str, list[int]] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)  # detail of the first row by reason, if it has one

    def add(self, reason: str, row: int, detail: str = "") -> None:
        """Count one row."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        examples = self.rows.setdefault(reason, [])
        if len(examples) < ROWS_SHOWN:
            examples.append(row)
        if detail:
            self.details.setdefault(reason, detail)

    def begin_file(self, path: Path, before: int) -> None:
        """Start the next file; its first row has the number `before + 1`."""
        self.files.append((before, path.name))
        self.origin = str(path) if len(self.files) == 1 else f"{len(self.files)} files of {path.parent}"

    def absorb(self, other: "Dropped", name: str | None = None) -> None:
        """Add the rows of another tally. If `name`, the tally's set, is given, it precedes each reason."""
        for reason, count in other.counts.items():
            full_reason = reason if name is None else f"{name}: {reason}"
            self.counts[full_reason] = self.counts.get(full_reason, 0) + count
            self.rows[full_reason] = [*self.rows.get(full_reason, []), *other.rows[reason]][:ROWS_SHOWN]
            if reason in other.details:
                self.details.setdefault(full_reason, other.details[reason])

    @property
    def total(self) -> int:
        """Number of all dropped rows."""
        return sum(self.counts.values())

    def describe(self) -> str:
        """Return the tally as one line: `3 × not JSON (lines 4, 9, 12; the first: …), 1 × empty line (line 7)`."""
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
        """Return the position of a row in one of several files: `part-2.jsonl line 7`."""
        before, name = self.files[bisect.bisect_left(self.files, row, key=lambda file: file[0]) - 1]
        return f"{name} {self.unit} {row - before}"
