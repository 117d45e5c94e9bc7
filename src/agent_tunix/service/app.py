"""The ASGI app: the API, the inspector's pages, and the middleware around them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from starlette.types import Scope

from agent_tunix.service import inspector
from agent_tunix.service.api import documentation, functions, runs
from agent_tunix.service.gate import Gate, is_api
from agent_tunix.service.inspector import access, pages
from agent_tunix.service.middleware import OwnCookie, PageHeaders
from agent_tunix.service.problems import problem_of
from agent_tunix.service.settings import ServiceSettings
from agent_tunix.service.state import Service
from agent_tunix.store.opening import Store
from agent_tunix.version import __version__
from agent_tunix.web import failures
from agent_tunix.web.documentation import make_document
from agent_tunix.web.middleware import LOOPBACK, Bodies, Envelope, Hosts

_DESCRIPTION = (
    "Reward functions of a team: uploaded, listed, tried; and its runs, to inspect. Every call requires a key:"
    " `Authorization: Bearer vk_…`."
)


def create_app(settings: ServiceSettings, store: Store) -> FastAPI:
    """Return the service as an ASGI app; the store stays open when the app ends."""
    service = Service.of(settings, store)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="agent_tunix",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,  # FastAPI's pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    functions.add_routes(app)
    runs.add_routes(app)
    inspector.mount(app)
    failures.add_handlers(app, pages.answer)
    app.openapi = partial(make_document, app, documentation.KEY)  # type: ignore[method-assign]  # FastAPI's own way
    # The middleware added last sees a request first.
    app.add_middleware(Bodies, settings.max_body_bytes, settings.body_timeout_s, _is_known)
    app.add_middleware(Gate, store.keys, service.calls, service.buckets)
    app.add_middleware(Hosts, (settings.host, *LOOPBACK, *settings.allowed_hosts))
    app.add_middleware(Envelope, pages.answer, problem_of)
    app.add_middleware(PageHeaders)
    app.add_middleware(OwnCookie)
    return app


def _is_known(scope: Scope) -> bool:
    """Return True if a request has an API key, which the gate checked, or comes from a logged-in browser."""
    return is_api(scope["path"]) or access.is_logged_in(scope)
