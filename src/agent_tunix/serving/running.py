"""A server in a thread of this process."""

import contextlib
import threading
import time
from collections.abc import Iterator

from fastapi import FastAPI

from agent_tunix.errors import ServiceError
from agent_tunix.serving.settings import PolicySettings
from agent_tunix.web.server import listen, make_server, url_of

_GRACE_S = 2
_POLL_S = 0.005


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
