"""Serving of the service on an address until a signal ends it."""

from collections.abc import Callable

from agent_tunix.errors import ServiceError
from agent_tunix.service.settings import ServiceSettings
from agent_tunix.store import open_store
from agent_tunix.store.opening import Store
from agent_tunix.web.server import serve_app


def serve(settings: ServiceSettings, announce: Callable[[str], None]) -> None:
    """Serve the store of this machine until SIGTERM or SIGINT, completing requests in progress.

    `announce` is called with the URL once the socket listens.

    Raises:
        ServiceError: The address is not available, or other machines can reach it and no key exists.
        StoreError: The store cannot be opened.
    """
    from agent_tunix.service.app import create_app

    with open_store() as store:
        check_exposure(settings, store)
        serve_app(settings, lambda: create_app(settings, store), announce)


def check_exposure(settings: ServiceSettings, store: Store) -> None:
    """Raise ServiceError if other machines can reach the service and no key exists."""
    if settings.is_loopback or any(key.revoked_at is None for key in store.keys.list()):
        return
    raise ServiceError(
        f"{settings.host} can be reached from other machines, which requires a key, but there is none; create one "
        "with `agent-tunix keys create NAME`, or serve on 127.0.0.1"
    )
