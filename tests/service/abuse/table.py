"""The table of answers.md, and what is seen of each of its lines."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.service.abuse import addresses, bodies, code, floods
from tests.service.abuse.cases import CASES
from tests.service.abuse.code import UPLOADS
from tests.service.abuse.victim import Victim

__all__ = ["CASES", "UPLOADS", "Seen", "attack", "unheld_lines"]

PAGE = Path(__file__).parent / "answers.md"

_MODULES = (addresses, bodies, floods, code)  # which make the cases

# Lines of the table that other tests hold, in a process of their own or on a server with smaller limits.
HELD_ELSEWHERE: dict[str, list[str]] = {
    "tests/service/test_authentication.py": [
        "an unknown or malformed key",
        "a revoked key on an open connection",
        "a call that the scopes do not allow",
    ],
    "tests/service/test_errors.py": [
        "an unknown method",
        "a file of more than 256 KB",
        "invalid JSON, or JSON of another shape",
    ],
    "tests/service/test_limits.py": [
        "a body of a gigabyte with its Content-Length",
        "more requests of a key than its limit",
        "more connections than the limit",
    ],
    "tests/service/test_protocol.py": ["headers that arrive slowly"],
    "tests/service/test_reward_functions.py": ["deleting another key's function", "uploading under another key's name"],
    "tests/service/test_tries.py": ["more rows or completions than a try accepts"],
    "tests/service/inspector/test_login.py": [
        "a login with SQL or markup as the key",
        "a login that redirects to another site",
        "a body of two megabytes without a login",
        "an invented session",
        "a session of a revoked key",
        "a change from another site, or without the session's token",
    ],
    "tests/service/inspector/test_functions.py": ["a change in a page that the scopes do not allow"],
    "tests/tracking/rollouts/test_pages.py": ["a cursor of another query"],
    "tests/service/test_run_endpoints.py": ["an invented cursor, or one of another list", "a number out of range"],
    "tests/store/test_reward_functions.py": [
        "a name or a file name that leads out of the store",
        *(f"SQL in {place}" for place in ("an id", "an uploaded name", "a searched name")),
        *(f"SQL in {place}" for place in ("a cursor or a limit", "a key")),
    ],
    "tests/store/test_uploads.py": [
        "a file that the compiler rejects",
        "a file that acts when it is imported",
    ],
    "tests/rewards/isolation": [
        f"{UPLOADS}{what}"
        for what in (
            "forks, or forks without end",
            "runs a program",
            "starts threads without end",
            "opens a socket",
            "resolves a host name",
            "reads /etc/passwd",
            "puts its environment into an error's message",
            "fills the disk",
            "takes all memory",
            "sleeps",
            "traces its parent, or reads its memory",
            "writes through a link",
            "changes its user or its rights",
            "exits or crashes",
            "prints without end",
            "returns too much",
            "returns something that is not a number",
            "recurses without end",
        )
    ],
}


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
        verdict = "held  " if self.holds else "FAILED"
        told = [", ".join(sorted(found)) or "-" for found in (self.documented, self.seen)]
        return f"{verdict}  {self.name:<56}  {told[0]:<72}  {told[1]}{''.join(f'; {fault}' for fault in self.faults)}"


def read_table() -> dict[str, frozenset[str]]:
    """Case → its documented answers."""
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)[2:]
    return {_plain(name): frozenset(re.findall(r"`([^`]+)`", told)) for name, told in rows}


def unheld_lines() -> set[str]:
    """Return the lines of the page that no test holds, and the cases that it lacks."""
    elsewhere = {name for names in HELD_ELSEWHERE.values() for name in names}
    return read_table().keys() ^ (CASES.keys() | elsewhere)


def attack(victim: Victim, names: Iterable[str]) -> Iterator[Seen]:
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
