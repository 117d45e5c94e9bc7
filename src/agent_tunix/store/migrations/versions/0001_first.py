"""Keys, names, sources and reward functions."""

import datetime

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_LIVE = sa.text("deleted_at IS NULL")
_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables, and the owner of uploads without a key."""
    keys = op.create_table(
        "keys",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False, unique=True),
        sa.Column("scopes", sa.String(64), nullable=False),
        sa.Column("prefix", sa.String(16)),
        sa.Column("secret_sha256", sa.String(64)),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("revoked_at", _INSTANT),
    )
    op.create_index("ix_keys_prefix", "keys", ["prefix"])
    op.create_table(
        "names",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("owner_id", sa.String(64), sa.ForeignKey("keys.id"), nullable=False),
        sa.Column("last_version", sa.Integer, nullable=False),
    )
    op.create_table(
        "sources",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "reward_functions",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(64), sa.ForeignKey("names.name"), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("format", sa.String(16), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("owner_id", sa.String(64), sa.ForeignKey("keys.id"), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("deleted_at", _INSTANT),
        sa.Column("deleted_by", sa.String(64), sa.ForeignKey("keys.id")),
    )
    op.create_index("ix_reward_functions_sha256", "reward_functions", ["sha256"])
    for name, columns in (("newest", ["created_at", "id"]), ("named", ["name", "created_at", "id"])):
        op.create_index(
            f"ix_reward_functions_{name}", "reward_functions", columns, sqlite_where=_LIVE, postgresql_where=_LIVE
        )
    op.create_index("ux_reward_functions_version", "reward_functions", ["name", "version"], unique=True)
    now = datetime.datetime.now(datetime.UTC)
    op.bulk_insert(keys, [{"id": "key_local", "name": "local", "scopes": "read write try", "created_at": now}])
