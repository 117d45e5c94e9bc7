"""A store as one who may use it sees it: on this machine, or on a server."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

from agent_tunix.errors import StoreError
from agent_tunix.store.home import database_url
from agent_tunix.store.records import Format, Page, RewardFunctionRecord

if TYPE_CHECKING:
    from agent_tunix.store.opening import Store

URL_VARIABLE = "AGENT_TUNIX_URL"
KEY_VARIABLE = "AGENT_TUNIX_KEY"


class StoreAccess(Protocol):
    """What can be done with reward functions; `RewardFunctions` says what each method does and raises."""

    def create(self, name: str, source: bytes, format: Format, if_changed: bool = False) -> RewardFunctionRecord:
        """Keep a file; with `if_changed`, unless the name's newest version is that file, which is then given."""

    def get(self, id: str) -> RewardFunctionRecord:
        """The one of an id."""

    def latest(self, name: str) -> RewardFunctionRecord:
        """The newest version of a name."""

    def list(self, limit: int = 20, after: str | None = None, name: str | None = None) -> Page[RewardFunctionRecord]:
        """Some, newest first."""

    def source(self, id: str) -> bytes:
        """The bytes of the file."""

    def delete(self, id: str) -> None:
        """Take one version out."""


class LocalAccess:
    """The store of this machine, without a server.

    Whoever can open the database may do anything. What is uploaded belongs to the owner `local`, or to the key that is
    given; with a key only what is its own can be deleted, and only what its scopes allow is done.

    Args:
        store: The store.
        secret: A key of it; None: none.

    Raises:
        AccessDeniedError: The key is not valid.
    """

    def __init__(self, store: "Store", secret: str | None = None) -> None:
        self._functions = store.reward_functions
        self._key = None if secret is None else store.keys.authenticate(secret)
        self._owner = self._key or store.keys.local()

    def create(self, name: str, source: bytes, format: Format, if_changed: bool = False) -> RewardFunctionRecord:
        """Keep a file; with `if_changed`, unless the name's newest version is that file, which is then given."""
        self._require("write")
        return self._functions.create(self._owner, name, source, format, if_changed)

    def get(self, id: str) -> RewardFunctionRecord:
        """The one of an id."""
        self._require("read")
        return self._functions.get(id)

    def latest(self, name: str) -> RewardFunctionRecord:
        """The newest version of a name."""
        self._require("read")
        return self._functions.latest(name)

    def list(self, limit: int = 20, after: str | None = None, name: str | None = None) -> Page[RewardFunctionRecord]:
        """Some, newest first."""
        self._require("read")
        return self._functions.list(limit, after, name)

    def source(self, id: str) -> bytes:
        """The bytes of the file."""
        self._require("read")
        return self._functions.source(id)

    def delete(self, id: str) -> None:
        """Take one version out."""
        self._require("write")
        self._functions.delete(self._key, id)

    def _require(self, scope: str) -> None:
        if self._key is not None:
            self._key.require(scope)


def server_url(url: str | None = None) -> str | None:
    """The server that is meant: the one given, else that of `AGENT_TUNIX_URL`; None: the store of this machine."""
    return url or os.environ.get(URL_VARIABLE) or None


def describe_place(url: str | None = None) -> str:
    """Which store is meant, for a person; without a password."""
    server = server_url(url)
    if server is not None:
        return server
    local = database_url()
    scheme, separator, rest = local.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


@contextmanager
def open_access(url: str | None = None, secret: str | None = None) -> Iterator[StoreAccess]:
    """Open the store that is meant.

    Args:
        url: A server; None: `AGENT_TUNIX_URL`, and without that the store of this machine.
        secret: A key of it; None: `AGENT_TUNIX_KEY`, which a server requires.

    Raises:
        AccessDeniedError: The key is not valid.
        StoreError: The store or the server cannot be reached, or a server is given and no key.
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
            f"{server} needs a key: give --key, or set {KEY_VARIABLE} to one of `agent-tunix keys create`",
            code="missing_key",
        )
    with _connect(server, secret) as access:
        yield access


def _connect(url: str, secret: str) -> AbstractContextManager[StoreAccess]:
    try:
        from agent_tunix.client import Client
    except ImportError as error:
        raise StoreError(
            f"{error}; a server is reached by httpx: pip install 'agent_tunix[service]'", code="missing_dependency"
        ) from error
    return Client(url, secret)
