"""An open store, with the tables of this version."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from agent_tunix.closing import Closing
from agent_tunix.errors import StoreError
from agent_tunix.file_locks import has_no_locks
from agent_tunix.store.database import connect, file_of, make_private, read_url, reading, writing
from agent_tunix.store.home import database_url
from agent_tunix.store.keys import Keys
from agent_tunix.store.reward_functions import RewardFunctions
from agent_tunix.store.schema import HEAD


class Store(Closing):
    """A store with up-to-date tables. Threads may share its connections, but a forked process may not use them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.keys = Keys(engine)
        self.reward_functions = RewardFunctions(engine)

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()


def open_store(url: str | None = None) -> Store:
    """Open a store; see `agent_tunix.store.open_store`."""
    engine = connect(read_url(url or database_url()))
    try:
        migrate(engine)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine)


MIGRATIONS = Path(__file__).parent / "migrations"

# An arbitrary number that no other program locks in the same database.
_POSTGRESQL_LOCK = 7_264_019_553_187_142


def migrate(engine: Engine) -> None:
    """Create the tables, or update those of an older version; Alembic is loaded only if there is work to do.

    Raises:
        StoreError: A newer version made the database, or it cannot be changed.
    """
    file = file_of(engine)
    if file is not None:
        make_private(file)
    with _one_at_a_time(file):
        with reading(engine) as connection:
            revision = _revision(connection)
        if revision == HEAD:
            return
        with writing(engine) as connection:
            if file is not None:
                _upgrade(connection)
                return
            connection.execute(text("SET LOCAL statement_timeout = 0"))  # a change of large tables takes its time
            # Released at the end of the transaction.
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _POSTGRESQL_LOCK})
            _upgrade(connection)


@contextlib.contextmanager
def _one_at_a_time(file: Path | None) -> Iterator[None]:
    """Lock a file beside an SQLite database, because its switch to a write-ahead log does not wait for others."""
    if file is None:
        yield
        return
    lock = file.with_name(f"{file.name}.lock")
    make_private(lock)
    with lock.open("ab") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
        except OSError as error:
            if not has_no_locks(error):
                raise
            raise StoreError(
                f"{file} requires a disk with locks ({error.strerror}); set AGENT_TUNIX_HOME to a directory on another"
                " disk, or AGENT_TUNIX_DATABASE_URL to a PostgreSQL database"
            ) from error
        yield


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def _upgrade(connection: Connection) -> None:
    try:
        from alembic import command
        from alembic.config import Config
        from alembic.util import CommandError
    except ImportError as error:
        raise StoreError(
            f"{error}; the store requires Alembic: pip install 'agent_tunix[service]'", code="missing_package"
        ) from error

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise StoreError(
            f"the database of the store belongs to a newer agent_tunix ({error}); update agent_tunix, or use another "
            "database"
        ) from error
