"""The text of a changed source beside the saved one."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

# Looking for the best match takes time with the square of the lines, and more with hostile ones; beyond this, what lies
# between the first and the last change is shown as taken out and put in as a whole.
_MOST_COMPARED = 2000
_MOST_SHOWN = 2000
_CONTEXT = 3

Kind = Literal["same", "removed", "added", "skipped"]


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a difference.

    Attributes:
        kind: `skipped` stands for lines that are the same in both and not shown.
        text: Without its end; of skipped lines, how many they are.
        before: Its number in the saved source, from 1; None: it is not there.
        after: The same of the changed source.
    """

    kind: Kind
    text: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class SourceDiff:
    """How two sources differ, the ends of lines aside.

    Attributes:
        lines: With three lines around each change, at most 2,000 in all; none where there is no change.
        added: Lines that only the changed source has.
        removed: Lines that only the saved source has.
        left_out: How many further lines there would be to show.
    """

    lines: tuple[DiffLine, ...]
    added: int
    removed: int
    left_out: int = 0

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


def normalise(text: str) -> str:
    """With every end of a line as `\\n`, which is what a browser's editor makes of it."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def diff_sources(before: str, after: str) -> SourceDiff:
    """What was taken out and put in, line by line."""
    if normalise(before) == normalise(after):
        return SourceDiff((), 0, 0)
    old, new = (normalise(text).split("\n") for text in (before, after))
    lines = list(_lines(old, new))
    counts = {kind: sum(line.kind == kind for line in lines) for kind in ("added", "removed")}
    shown = list(_shortened(lines))
    left_out = max(len(shown) - _MOST_SHOWN, 0)
    return SourceDiff(tuple(shown[:_MOST_SHOWN]), counts["added"], counts["removed"], left_out)


def _lines(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffLine]:
    """All lines of both."""
    for tag, low, high, new_low, new_high in _blocks(old, new):
        if tag == "equal":
            pairs = zip(range(low, high), range(new_low, new_high), strict=True)
            yield from (DiffLine("same", old[place], place + 1, new_place + 1) for place, new_place in pairs)
            continue
        yield from (DiffLine("removed", old[place], place + 1, None) for place in range(low, high))
        yield from (DiffLine("added", new[place], None, place + 1) for place in range(new_low, new_high))


def _blocks(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """As `SequenceMatcher.get_opcodes` has them, what both begin and end with aside."""
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
    """Without the lines that are far from any change."""
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
