"""Who is logged in: sessions in memory, ended by time, by logging out and by the end of the process.

A browser holds a session's token, and here is only its hash, so that what leaks from this process opens nothing.
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
    """A browser that is logged in.

    Attributes:
        key: With which.
        csrf: What its forms and scripts must send back with every change.
        ends_at: By the clock of `Sessions`.
    """

    key: Key
    csrf: str
    ends_at: float

    def may(self, scope: str) -> bool:
        """Whether its key has a scope."""
        return scope in self.key.scopes


class Sessions:
    """The sessions of a server, for its event loop alone; a key's oldest gives way where it has too many.

    Args:
        lifetime_s: How long one lasts, whatever is done with it.
        most_of_a_key: How many a key may have at a time.
        clock: Seconds from any moment on.
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
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # oldest first, and so the next to end first

    def open(self, key: Key) -> tuple[str, Session]:
        """Begin a session; its token cannot be had again."""
        self._drop_ended()
        mine = [digest for digest, session in self._sessions.items() if session.key.id == key.id]
        for digest in mine[: max(0, len(mine) + 1 - self._most_of_a_key)]:
            del self._sessions[digest]
        token = secrets.token_urlsafe(32)
        session = Session(key, secrets.token_urlsafe(32), self._clock() + self._lifetime_s)
        self._sessions[_digest(token)] = session
        return token, session

    def find(self, token: str) -> Session | None:
        """The session of a token; None where there is none, or it has ended."""
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
