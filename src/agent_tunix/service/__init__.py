"""Web service: the REST API of the store, and pages to inspect runs and reward functions.

    with open_store() as store:
        app = create_app(ServiceSettings(), store)

Importing this package loads no web framework. `create_app` does; the extra `service` installs it.
"""

from typing import TYPE_CHECKING

from agent_tunix.service.settings import ServiceSettings, TryLimits

if TYPE_CHECKING:
    from fastapi import FastAPI

    from agent_tunix.store.opening import Store

__all__ = ["ServiceSettings", "TryLimits", "create_app"]


def create_app(settings: ServiceSettings, store: "Store") -> "FastAPI":
    """Return the service as an ASGI app; see `agent_tunix.service.app.create_app`."""
    from agent_tunix.service.app import create_app

    return create_app(settings, store)
