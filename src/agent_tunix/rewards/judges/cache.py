"""Cache of replies on disk, so that no question is paid for twice.

The key is a hash of everything that decides a reply. Messages and API key are not stored. Several processes may use one
file, which must be on a local disk for SQLite's write-ahead log. If the file cannot be read or written, a warning is
logged and the judge continues without a cache.
"""

import hashlib
import json
import logging
import sqlite3
import time
from pathlib import Path
from typing import Any

logger = logging.getLogger("agent_tunix.rewards")

_BUSY_S = 30.0


def cache_key(parts: dict[str, Any]) -> str:
    """Return the key of a question."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


class ReplyCache:
    """Replies by key in a SQLite file, for use in one thread.

    The file and its directory are created when needed. Without a path nothing is cached.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def get(self, key: str) -> str | None:
        """Return the reply of a key; None if there is none, or none that can be read."""
        row = self._execute("SELECT reply FROM replies WHERE key = ?", key)
        try:
            return None if row is None else str(json.loads(row[0])["reply"])
        except (ValueError, TypeError, KeyError):
            return None

    def put(self, key: str, reply: str) -> None:
        """Store a reply."""
        self._execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", key, json.dumps({"reply": reply}), time.time())

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _execute(self, statement: str, *values: object) -> tuple[Any, ...] | None:
        if self._path is None:
            return None
        try:
            if self._connection is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                # Each statement is its own transaction.
                self._connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = NORMAL")
                self._connection.execute(
                    "CREATE TABLE IF NOT EXISTS replies"
                    " (key TEXT PRIMARY KEY, reply TEXT NOT NULL, created REAL NOT NULL)"
                )
            row: tuple[Any, ...] | None = self._connection.execute(statement, values).fetchone()
            return row
        except (sqlite3.Error, OSError) as error:
            logger.warning("the judges' cache %s is no longer used: %s", self._path, error)
            self._path = None
            self.close()
            return None
