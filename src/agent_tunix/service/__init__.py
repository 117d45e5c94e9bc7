"""The service: the store's REST API, and the pages on which people look into runs and reward functions.

    with open_store() as store:
        app = create_app(Settings(), store)

Importing this loads no web framework; making an app does, and the extra `service` brings it.
"""

from typing import TYPE_CHECKING

from agent_tunix.service.settings import ReplayLimits, ServiceSettings, TryLimits

if TYPE_CHECKING:
    from fastapi import FastAPI

    from agent_tunix.store.opening import Store

__all__ = ["ReplayLimits", "ServiceSettings", "TryLimits", "create_app"]


def create_app(settings: ServiceSettings, store: "Store") -> "FastAPI":
    """The service as an ASGI app; `agent_tunix.service.app.create_app` says more."""
    from agent_tunix.service.app import create_app

    return create_app(settings, store)
