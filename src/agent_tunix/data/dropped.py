"""Rows that a dataset loses on the way to training: how many for each reason, and where they stand."""

from dataclasses import dataclass, field

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
        origin: The file of the rows; empty where there is none.
        counts: Dropped rows by reason.
        rows: Numbers of the first few rows of each reason; of a file, its line numbers.
        details: What was found in the first row of each reason, where there is more to say.
    """

    origin: str = ""
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

    def joined(self, other: "Dropped") -> "Dropped":
        """Both tallies as one; where they share a reason, this one's rows come first."""
        both = Dropped(self.origin or other.origin, dict(self.counts), dict(self.rows), other.details | self.details)
        for reason, count in other.counts.items():
            both.counts[reason] = both.counts.get(reason, 0) + count
            both.rows[reason] = [*both.rows.get(reason, []), *other.rows[reason]][:ROWS_SHOWN]
        return both

    @property
    def total(self) -> int:
        """All dropped rows."""
        return sum(self.counts.values())

    def describe(self) -> str:
        """The tally in one line: `3 × not JSON (lines 4, 9, 12; the first: …), 1 × empty line (line 7)`."""
        return ", ".join(f"{count} × {reason} ({self._where(reason)})" for reason, count in self.counts.items())

    def _where(self, reason: str) -> str:
        rows, count = self.rows[reason], self.counts[reason]
        where = ("line " if count == 1 else "lines ") + ", ".join(map(str, rows))
        if count > len(rows):
            where += ", …"
        if detail := self.details.get(reason):
            where += f"; {detail}" if count == 1 else f"; the first: {detail}"
        return where
