"""An open store."""

from types import TracebackType
from typing import Self

from agent_tunix.errors import StoreError
from agent_tunix.store.home import database_url

try:
    from sqlalchemy import Engine
except ImportError as _error:
    raise StoreError(
        f"{_error}; the store requires SQLAlchemy: pip install 'agent_tunix[service]'", code="missing_dependency"
    ) from _error

from agent_tunix.store.database import connect, read_url
from agent_tunix.store.keys import Keys
from agent_tunix.store.migrating import migrate
from agent_tunix.store.reward_functions import RewardFunctions


class Store:
    """A store with up-to-date tables. Threads may share its connections, but a forked process may not use them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.keys = Keys(engine)
        self.reward_functions = RewardFunctions(engine)

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_store(url: str | None = None) -> Store:
    """Open a store; see `agent_tunix.store.open_store`."""
    engine = connect(read_url(url or database_url()))
    try:
        migrate(engine)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine)
