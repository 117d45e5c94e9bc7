"""Entry point for Alembic, in the transaction of `migrating.migrate` or from its own command line."""

from alembic import context
from sqlalchemy import Connection

from agent_tunix.store.database import connect, read_url, writing
from agent_tunix.store.home import database_url
from agent_tunix.store.schema import metadata


def _run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata)
    with context.begin_transaction():
        context.run_migrations()


_given = context.config.attributes.get("connection")
if _given is not None:
    _run(_given)
else:
    with writing(connect(read_url(database_url()))) as _connection:
        _run(_connection)
