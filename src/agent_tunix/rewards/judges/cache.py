"""Cache of replies on disk, so that no question is paid for twice.

The key is a hash of everything that decides a reply. Messages and API key are not stored. Several processes may use one
file, which must be on a local disk for SQLite's write-ahead log. If the file cannot be read or written, a warning is
logged and the judge continues without a cache.
"""

import hashlib
import json
import logging
import os
import sqlite3
import threading
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
    """Replies by key in a SQLite file. Each process opens it at first use.

    The file and its directory are created when needed. Without a path nothing is cached.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._given_up = path is None

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the reply of a key, or None."""
        row = self._execute("SELECT reply FROM replies WHERE key = ?", (key,))
        if row is None:
            return None
        try:
            found = json.loads(row[0])
        except (TypeError, ValueError):
            found = None
        if isinstance(found, dict):
            return found
        self.remove(key)  # otherwise `put` would keep it
        return None

    def put(self, key: str, reply: dict[str, Any]) -> None:
        """Store a reply, unless the key has one."""
        self._execute("INSERT OR IGNORE INTO replies VALUES (?, ?, ?)", (key, json.dumps(reply), time.time()))

    def remove(self, key: str) -> None:
        """Remove a reply."""
        self._execute("DELETE FROM replies WHERE key = ?", (key,))

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _execute(self, statement: str, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        with self._lock:
            if self._given_up:
                return None
            try:
                if self._process != os.getpid():  # a fork must not use its parent's connection
                    self._process, self._connection = os.getpid(), None
                if self._connection is None:
                    self._connection = self._open()
                row: tuple[Any, ...] | None = self._connection.execute(statement, values).fetchone()
                return row
            except (sqlite3.Error, OSError) as error:
                self._given_up = True
                logger.warning("the judges' cache %s is no longer used: %s", self.path, error)
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
                return None

    def _open(self) -> sqlite3.Connection:
        assert self.path is not None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # The lock serialises calls from several threads. Each statement is its own transaction.
        connection = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL, created REAL NOT NULL)"
            )
        except sqlite3.Error:
            connection.close()
            raise
        return connection
