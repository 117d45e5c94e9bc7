"""The table of docs/security.md, and what is seen of each of its lines."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.service.abuse import addresses, bodies, code, floods, pages
from tests.service.abuse.cases import CASES
from tests.service.abuse.code import UPLOADS
from tests.service.abuse.victim import Victim

__all__ = ["CASES", "UPLOADS", "Seen", "attack", "read_table"]

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
HEADING = "## What the server answers"

_MODULES = (addresses, pages, bodies, floods, code)  # which make the cases


@dataclass(frozen=True)
class Seen:
    """The answers of a case, those that the page gives for it, and what else is wrong."""

    name: str
    documented: frozenset[str]
    seen: frozenset[str]
    faults: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """True if every answer is documented and the server is as before."""
        return bool(self.seen) and self.seen <= self.documented and not self.faults

    @property
    def text(self) -> str:
        """A line of the table."""
        verdict = "held  " if self.holds else "FAILED"
        told = [", ".join(sorted(found)) or "-" for found in (self.documented, self.seen)]
        return f"{verdict}  {self.name:<56}  {told[0]:<72}  {told[1]}{''.join(f'; {fault}' for fault in self.faults)}"


def read_table() -> dict[str, frozenset[str]]:
    """Case → its documented answers."""
    _, _, text = PAGE.read_text(encoding="utf-8").partition(f"{HEADING}\n")
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", text.partition("\n## ")[0], re.MULTILINE)[2:]
    return {_plain(name): frozenset(re.findall(r"`([^`]+)`", told)) for name, told in rows}


def attack(victim: Victim, names: Iterable[str]) -> Iterator[Seen]:
    """Make some attacks, one after another, and look after each how the server is doing."""
    documented = read_table()
    before = victim.signs()
    for name in names:
        faults: list[str] = []
        seen: set[str] = set()
        try:
            seen.update(CASES[name].act(victim))
        except AssertionError as error:
            faults.append(str(error).partition("\n")[0] or "what should hold does not")
        faults += victim.check(before)
        yield Seen(name, documented.get(name, frozenset()), frozenset(seen), tuple(faults))


def _plain(cell: str) -> str:
    return cell.replace("`", "")
