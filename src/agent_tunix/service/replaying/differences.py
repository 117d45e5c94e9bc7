"""Line-by-line difference of a changed source and the saved one."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

# Finding the best match takes quadratic time, more for hostile sources. Beyond this number of lines, everything between
# the first and the last change is shown as removed and added.
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
    if normalise(before) == normalise(after):
        return SourceDiff((), 0, 0)
    old, new = (normalise(text).split("\n") for text in (before, after))
    lines = list(_lines(old, new))
    counts = {kind: sum(line.kind == kind for line in lines) for kind in ("added", "removed")}
    shown = list(_shortened(lines))
    left_out = max(len(shown) - _MOST_SHOWN, 0)
    return SourceDiff(tuple(shown[:_MOST_SHOWN]), counts["added"], counts["removed"], left_out)


def _lines(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffLine]:
    """Yield all lines of both sources."""
    for tag, low, high, new_low, new_high in _blocks(old, new):
        if tag == "equal":
            pairs = zip(range(low, high), range(new_low, new_high), strict=True)
            yield from (DiffLine("same", old[place], place + 1, new_place + 1) for place, new_place in pairs)
            continue
        yield from (DiffLine("removed", old[place], place + 1, None) for place in range(low, high))
        yield from (DiffLine("added", new[place], None, place + 1) for place in range(new_low, new_high))


def _blocks(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield blocks like `SequenceMatcher.get_opcodes`; the common start and end are not searched."""
    shortest = min(len(old), len(new))
    start = next((place for place in range(shortest) if old[place] != new[place]), shortest)
    rest = shortest - start
    end = next((place for place in range(rest) if old[-1 - place] != new[-1 - place]), rest)
    yield "equal", 0, start, 0, start
    middle, new_middle = old[start : len(old) - end], new[start : len(new) - end]
    if max(len(middle), len(new_middle)) > _MOST_COMPARED:
        yield "replace", start, len(old) - end, start, len(new) - end
    else:
        for tag, *places in difflib.SequenceMatcher(None, middle, new_middle).get_opcodes():
            low, high, new_low, new_high = (place + start for place in places)
            yield tag, low, high, new_low, new_high
    yield "equal", len(old) - end, len(old), len(new) - end, len(new)


def _shortened(lines: Sequence[DiffLine]) -> Iterator[DiffLine]:
    """Yield the lines, with those far from any change replaced by `skipped`."""
    changed = [place for place, line in enumerate(lines) if line.kind != "same"]
    near = {around for place in changed for around in range(place - _CONTEXT, place + _CONTEXT + 1)}
    skipped = 0
    for place, line in enumerate(lines):
        if place not in near:
            skipped += 1
            continue
        if skipped:
            yield DiffLine("skipped", str(skipped), None, None)
            skipped = 0
        yield line
    if skipped:
        yield DiffLine("skipped", str(skipped), None, None)
