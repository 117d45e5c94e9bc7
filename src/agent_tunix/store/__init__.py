"""The reward store: reward functions with their versions, and access keys.

    with open_store() as store:
        key, secret = store.keys.create("alice")
        function = store.reward_functions.create(key, "politeness", source, "trl")

Importing this package loads neither SQLAlchemy nor Alembic, which need the extra `service`; opening a store does.
"""

from typing import TYPE_CHECKING

from agent_tunix.errors import StoreError
from agent_tunix.store.home import database_url, home
from agent_tunix.store.records import SCOPES, Format, Key, Page, RewardFunctionRecord
from agent_tunix.store.uploads import CheckedUpload, check_upload, detect_format

if TYPE_CHECKING:
    from agent_tunix.store.opening import Store

__all__ = [
    "SCOPES",
    "CheckedUpload",
    "Format",
    "Key",
    "Page",
    "RewardFunctionRecord",
    "check_upload",
    "database_url",
    "detect_format",
    "home",
    "open_store",
]


def open_store(url: str | None = None) -> "Store":
    """Open the store; create its tables or bring them up to date.

    Args:
        url: `sqlite:////absolute/file.db` or `postgresql://user@host/name`; None for `database_url()`.

    Raises:
        StoreError: SQLAlchemy is not installed, or the database cannot be reached, read or written.
    """
    try:
        import sqlalchemy  # noqa: F401
    except ImportError as error:
        raise StoreError(
            f"{error}; the store requires SQLAlchemy: pip install 'agent_tunix[service]'", code="missing_package"
        ) from error
    from agent_tunix.store.opening import open_store

    return open_store(url)
