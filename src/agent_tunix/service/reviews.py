"""Review of a changed source before it is tried, replayed or saved: its difference from the saved one, and advice."""

import difflib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from agent_tunix.store import RewardFunctionRecord, check_upload

# Finding the best match takes quadratic time, more for hostile sources. Longer sources are shown as replaced.
_MOST_COMPARED = 2000
_MOST_SHOWN = 2000
_CONTEXT = 3

Kind = Literal["same", "removed", "added", "skipped"]


@dataclass(frozen=True, slots=True)
class DiffLine:
    """Line of a difference."""

    kind: Kind  # `skipped` stands for unchanged lines that are not shown
    text: str  # the line without its end; for `skipped`, the number of lines
    before: int | None  # its number in the saved source, from 1; None if it is not in it
    after: int | None  # its number in the changed source, from 1; None if it is not in it


@dataclass(frozen=True, slots=True)
class SourceDiff:
    """Difference of two sources; the line endings do not count."""

    lines: tuple[DiffLine, ...]  # changes with three lines around each, at most 2,000 in all; empty if there are none
    added: int  # number of lines only in the changed source
    removed: int  # number of lines only in the saved source
    left_out: int = 0  # number of further lines that are not in `lines`

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


def normalise(text: str) -> str:
    r"""Return text with `\n` at every line end, as a browser's editor sends it."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def diff_sources(before: str, after: str) -> SourceDiff:
    """Return the lines that were removed and added."""
    old, new = (normalise(text).split("\n") for text in (before, after))
    if old == new:
        return SourceDiff((), 0, 0)
    lines = list(_lines(old, new))
    counts = {kind: sum(line.kind == kind for line in lines) for kind in ("added", "removed")}
    left_out = max(len(lines) - _MOST_SHOWN, 0)
    return SourceDiff(tuple(lines[:_MOST_SHOWN]), counts["added"], counts["removed"], left_out)


def _lines(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffLine]:
    """Yield the changed lines and those around them; `skipped` for the others."""
    groups = [[("replace", 0, len(old), 0, len(new))]]
    if max(len(old), len(new)) <= _MOST_COMPARED:
        groups = [*difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT)]
    done = 0
    for group in groups:
        if group[0][1] > done:
            yield DiffLine("skipped", str(group[0][1] - done), None, None)
        for tag, low, high, new_low, new_high in group:
            if tag == "equal":
                for place in range(low, high):
                    yield DiffLine("same", old[place], place + 1, new_low + place - low + 1)
            else:
                yield from (DiffLine("removed", old[place], place + 1, None) for place in range(low, high))
                yield from (DiffLine("added", new[place], None, place + 1) for place in range(new_low, new_high))
            done = high
    if len(old) > done:
        yield DiffLine("skipped", str(len(old) - done), None, None)


@dataclass(frozen=True, slots=True)
class Review:
    """Difference of a changed source from the saved one, advice for a better reward, and the digest of the change."""

    diff: SourceDiff
    advice: tuple[str, ...]
    sha256: str

    @classmethod
    def of(cls, saved: str, changed: str, record: RewardFunctionRecord) -> "Review":
        """Check a changed source, raising UploadError if it is not a reward function, and compare the two."""
        checked = check_upload(changed.encode("utf-8", "replace"), record.format, record.function)
        return cls(diff_sources(saved, changed), checked.warnings, sha256_of(changed))


def sha256_of(text: str) -> str:
    """Return the digest that identifies a source that its owner has reviewed."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
