"""Login sessions, in memory; they end after a time, at logout, and with the process.

The browser holds a session's token; the server stores only its hash, so a leak of its memory opens no session.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from agent_tunix.store import Key

LIFETIME_S = 12 * 3600.0
MOST_OF_A_KEY = 32


@dataclass(frozen=True, slots=True)
class Session:
    """Session of a logged-in browser."""

    key: Key
    csrf: str  # token that forms and scripts must send with every change
    ends_at: float  # end, by the clock of `Sessions`

    def may(self, scope: str) -> bool:
        """Return True if the session's key has a scope."""
        return scope in self.key.scopes


class Sessions:
    """Sessions of a server; not thread-safe. If a key has too many, its oldest session ends.

    `lifetime_s` counts from the login, not from the last use. `clock` returns seconds since any fixed moment.
    """

    def __init__(
        self,
        lifetime_s: float = LIFETIME_S,
        most_of_a_key: int = MOST_OF_A_KEY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lifetime_s = lifetime_s
        self._most_of_a_key = most_of_a_key
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # oldest first, so the next to end is first

    def open(self, key: Key) -> tuple[str, Session]:
        """Start a session, and return it with its token, which is not stored."""
        self._drop_ended()
        mine = [digest for digest, session in self._sessions.items() if session.key.id == key.id]
        for digest in mine[: max(0, len(mine) + 1 - self._most_of_a_key)]:
            del self._sessions[digest]
        token = secrets.token_urlsafe(32)
        session = Session(key, secrets.token_urlsafe(32), self._clock() + self._lifetime_s)
        self._sessions[_digest(token)] = session
        return token, session

    def find(self, token: str) -> Session | None:
        """Return the session of a token; None if there is none or it has ended."""
        self._drop_ended()
        return self._sessions.get(_digest(token))

    def end(self, token: str) -> None:
        """End the session of a token, if there is one."""
        self._sessions.pop(_digest(token), None)

    def __len__(self) -> int:
        self._drop_ended()
        return len(self._sessions)

    def _drop_ended(self) -> None:
        now = self._clock()
        while self._sessions and next(iter(self._sessions.values())).ends_at <= now:
            self._sessions.popitem(last=False)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
