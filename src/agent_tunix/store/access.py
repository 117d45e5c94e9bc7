"""Access to a store with a user's permissions, on this machine or on a server."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

from agent_tunix.errors import StoreError
from agent_tunix.store.home import database_url, shown_url
from agent_tunix.store.records import Format, Page, RewardFunctionRecord

if TYPE_CHECKING:
    from agent_tunix.store.opening import Store

URL_VARIABLE = "AGENT_TUNIX_URL"
KEY_VARIABLE = "AGENT_TUNIX_KEY"


class StoreAccess(Protocol):
    """Operations on reward functions; see the methods of `RewardFunctions` for details and errors."""

    def create(
        self, name: str, source: bytes, format: Format, if_changed: bool = False, function: str = "reward"
    ) -> RewardFunctionRecord:
        """Store a file; with `if_changed`, return the name's newest version if it is the same file."""

    def get(self, id: str) -> RewardFunctionRecord:
        """Return the record of an id."""

    def latest(self, name: str) -> RewardFunctionRecord:
        """Return the newest version of a name."""

    def list(self, limit: int = 20, after: str | None = None, name: str | None = None) -> Page[RewardFunctionRecord]:
        """Return a page of records, newest first."""

    def source(self, id: str) -> bytes:
        """Return the bytes of the file."""

    def delete(self, id: str) -> None:
        """Delete one version."""


class LocalAccess:
    """The store of this machine, without a server.

    Anyone who can open the database may do anything. Uploads belong to the given key, or else to the owner `local`.
    With a key, its scopes apply, and only its own functions can be deleted.

    Args:
        store: The store.
        secret: Secret of a key; None for access without one.

    Raises:
        AccessDeniedError: The key is not valid.
    """

    def __init__(self, store: "Store", secret: str | None = None) -> None:
        self._functions = store.reward_functions
        self._key = None if secret is None else store.keys.authenticate(secret)
        self._owner = self._key or store.keys.local()

    def create(
        self, name: str, source: bytes, format: Format, if_changed: bool = False, function: str = "reward"
    ) -> RewardFunctionRecord:
        """Store a file; with `if_changed`, return the name's newest version if it is the same file."""
        self._require("write")
        return self._functions.create(self._owner, name, source, format, if_changed, function)

    def get(self, id: str) -> RewardFunctionRecord:
        """Return the record of an id."""
        self._require("read")
        return self._functions.get(id)

    def latest(self, name: str) -> RewardFunctionRecord:
        """Return the newest version of a name."""
        self._require("read")
        return self._functions.latest(name)

    def list(self, limit: int = 20, after: str | None = None, name: str | None = None) -> Page[RewardFunctionRecord]:
        """Return a page of records, newest first."""
        self._require("read")
        return self._functions.list(limit, after, name)

    def source(self, id: str) -> bytes:
        """Return the bytes of the file."""
        self._require("read")
        return self._functions.source(id)

    def delete(self, id: str) -> None:
        """Delete one version."""
        self._require("write")
        self._functions.delete(self._key, id)

    def _require(self, scope: str) -> None:
        if self._key is not None:
            self._key.require(scope)


def server_url(url: str | None = None) -> str | None:
    """Return the given server, else that of `AGENT_TUNIX_URL`; None for the store of this machine."""
    return url or os.environ.get(URL_VARIABLE) or None


def describe_place() -> str:
    """Describe the selected store for people, without a password."""
    return shown_url(server_url() or database_url())


@contextmanager
def open_access(url: str | None = None, secret: str | None = None) -> Iterator[StoreAccess]:
    """Open the selected store.

    Args:
        url: URL of a server; None for `AGENT_TUNIX_URL`, or without it the store of this machine.
        secret: Secret of a key; None for `AGENT_TUNIX_KEY`. A server requires one.

    Raises:
        AccessDeniedError: The key is not valid.
        StoreError: The store or the server cannot be reached, or a server is given without a key.
    """
    server = server_url(url)
    secret = secret or os.environ.get(KEY_VARIABLE) or None
    if server is None:
        from agent_tunix.store import open_store

        with open_store() as store:
            yield LocalAccess(store, secret)
        return
    if secret is None:
        raise StoreError(
            f"{shown_url(server)} requires a key: set --key or {KEY_VARIABLE} to one from `agent-tunix keys create`"
        )
    with _connect(server, secret) as access:
        yield access


def _connect(url: str, secret: str) -> AbstractContextManager[StoreAccess]:
    try:
        from agent_tunix.client import Client
    except ImportError as error:
        raise StoreError(
            f"{error}; access to a server requires httpx: pip install 'agent_tunix[service]'", code="missing_package"
        ) from error
    return Client(url, secret)
