"""A running server: in a thread of this process, or until a signal ends it."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from fastapi import FastAPI

from agent_tunix.errors import ServiceError
from agent_tunix.serving.settings import PolicySettings
from agent_tunix.web.server import listen, make_server, serve_app, url_of

_GRACE_S = 2
_POLL_S = 0.005


def check_exposure(settings: PolicySettings) -> None:
    """Raise ServiceError if other machines can reach the server and there is no key."""
    if not settings.is_loopback and not settings.api_keys:
        raise ServiceError(
            f"{settings.host} can be reached from other machines, which requires a key, but there is none; give one "
            "with --api-key or AGENT_TUNIX_API_KEY, or serve on 127.0.0.1"
        )


def serve(settings: PolicySettings, app: Callable[[], FastAPI], announce: Callable[[str], None]) -> None:
    """Serve an app until SIGTERM or SIGINT; see `serve_app`.

    Raises:
        ServiceError: The address is not available, or other machines can reach it and there is no key.
    """
    check_exposure(settings)
    serve_app(settings, app, announce)


@contextlib.contextmanager
def serving(app: FastAPI, settings: PolicySettings) -> Iterator[str]:
    """Serve an app in a thread while the context lasts, and yield its URL, which ends in `/v1`.

    At the end, requests in progress get a moment to end; then their connections are closed.

    Raises:
        ServiceError: The address is not available, or the server does not start.
    """
    with listen(settings.host, settings.port) as listener:
        server = make_server(settings, app, grace_s=_GRACE_S)
        thread = threading.Thread(target=server.run, args=([listener],), name="policy-server", daemon=True)
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    raise ServiceError("the server of the policy did not start; its log has the reason")
                time.sleep(_POLL_S)
            yield f"{url_of(settings.host, listener)}/v1"
        finally:
            server.should_exit = True
            thread.join()
