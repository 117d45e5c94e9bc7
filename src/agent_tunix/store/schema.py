"""The tables of the store.

Migrations (`migrations/`) change them; a test compares the two. Rows of `reward_functions` are never removed, only
marked as deleted: a client that pages through the list keeps its position, and the record remains of who uploaded and
deleted a function and when. A deleted function's source is removed, unless another function has the same.
"""

import datetime
from collections.abc import Callable
from typing import Any

from sqlalchemy import Column, DateTime, ForeignKey, Index, Integer, LargeBinary, MetaData, String, Table, text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

# The newest migration; a database at this revision is opened without Alembic.
HEAD = "0002"

# The owner of uploads without a key, made by anyone who can write the database itself.
LOCAL_KEY_ID = "key_local"
LOCAL_KEY_NAME = "local"


class UtcDateTime(TypeDecorator[datetime.datetime]):
    """An instant, stored in UTC to the microsecond, because SQLite has no type with a time zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime.datetime | None, dialect: Dialect) -> datetime.datetime | None:
        """Convert to UTC; an instant without a time zone is refused."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone")
        return value.astimezone(datetime.UTC)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime.datetime | None] | None:
        """Return a direct parser for SQLite's text; the default would take a quarter of the time for a page."""
        return _of_text if dialect.name == "sqlite" else super().result_processor(dialect, coltype)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime.datetime | None:
        """Convert to UTC."""
        if value is None:
            return None
        instant: datetime.datetime = value
        return instant.astimezone(datetime.UTC)


def _of_text(text: str | None) -> datetime.datetime | None:
    """Return the instant that SQLite stores as text in UTC, without a time zone."""
    return None if text is None else datetime.datetime.fromisoformat(f"{text}+00:00")


metadata = MetaData()

keys = Table(
    "keys",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("scopes", String(64), nullable=False),  # separated by spaces
    Column("prefix", String(16), index=True),  # first characters of the secret, for lookup
    Column("secret_sha256", String(64)),  # null if the key has no secret
    Column("created_at", UtcDateTime(), nullable=False),
    Column("revoked_at", UtcDateTime()),
)

# Owner and last version number of each name. The owner keeps the name even if all versions are deleted.
names = Table(
    "names",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("owner_id", String(64), ForeignKey("keys.id"), nullable=False),
    Column("last_version", Integer, nullable=False),
)

sources = Table(
    "sources", metadata, Column("sha256", String(64), primary_key=True), Column("content", LargeBinary, nullable=False)
)

_LIVE = text("deleted_at IS NULL")

reward_functions = Table(
    "reward_functions",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("name", String(64), ForeignKey("names.name"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("format", String(16), nullable=False),
    Column("sha256", String(64), nullable=False, index=True),  # no foreign key: deleted rows outlive their source
    Column("size", Integer, nullable=False),
    Column("owner_id", String(64), ForeignKey("keys.id"), nullable=False),
    Column("created_at", UtcDateTime(), nullable=False),
    Column("deleted_at", UtcDateTime()),
    Column("deleted_by", String(64), ForeignKey("keys.id")),
    Column("function", String(100), nullable=False, server_default="reward"),
    Index("ix_reward_functions_newest", "created_at", "id", sqlite_where=_LIVE, postgresql_where=_LIVE),
    Index("ix_reward_functions_named", "name", "created_at", "id", sqlite_where=_LIVE, postgresql_where=_LIVE),
    Index("ux_reward_functions_version", "name", "version", unique=True),
)
