"""Serving of the service on an address until a signal ends it."""

import contextlib
import errno
import logging
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from types import FrameType

from agent_tunix.errors import ServiceError

try:
    import uvicorn
    from fastapi import FastAPI
except ImportError as _error:
    raise ServiceError(
        f"{_error}; the service requires FastAPI and uvicorn: pip install 'agent_tunix[service]'",
        code="missing_package",
    ) from _error

from agent_tunix.service.app import create_app
from agent_tunix.service.protocol import limited
from agent_tunix.service.settings import ServiceSettings
from agent_tunix.store import open_store
from agent_tunix.store.opening import Store

logger = logging.getLogger("agent_tunix.service")

_BACKLOG = 1024
# For the store, tries and files being read.
_OTHER_DESCRIPTORS = 512
_GRACE_S = 10


def serve(settings: ServiceSettings, announce: Callable[[str], None]) -> None:
    """Serve the store of this machine until SIGTERM or SIGINT, completing requests in progress.

    `announce` is called with the URL once the socket listens.

    Raises:
        ServiceError: The address is not available, or other machines can reach it and no key exists.
        StoreError: The store cannot be opened.
    """
    with open_store() as store:
        check_exposure(settings, store)
        _make_room(settings.max_connections)
        with _listen(settings) as listener, _ending_quietly():
            announce(_url(settings.host, listener))
            make_server(settings, create_app(settings, store)).run(sockets=[listener])


def check_exposure(settings: ServiceSettings, store: Store) -> None:
    """Raise ServiceError if other machines can reach the service and no key exists."""
    if settings.is_loopback or any(key.revoked_at is None for key in store.keys.list()):
        return
    raise ServiceError(
        f"{settings.host} can be reached from other machines, which requires a key, but there is none; create one "
        "with `agent-tunix keys create NAME`, or serve on 127.0.0.1"
    )


def make_server(settings: ServiceSettings, app: FastAPI) -> uvicorn.Server:
    """Return a server that serves the app on given sockets."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=limited(settings.header_timeout_s, settings.unread_timeout_s, settings.max_connections),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=settings.keep_alive_s,  # type: ignore[arg-type]  # fractions of seconds work as well
            timeout_graceful_shutdown=_GRACE_S,
        )
    )


def _make_room(connections: int) -> None:
    """Raise this process's limit of descriptors to the number that the connections need, if the system allows."""
    needed = connections + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        possible = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
        if possible < needed:
            logger.warning(
                "this process may open %d file descriptors, but %d connections need %d; raise the limit with `ulimit "
                "-n %d`",
                *(possible, connections, needed, needed),
            )


def _listen(settings: ServiceSettings) -> socket.socket:
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ServiceError(
                f"port {settings.port} of {settings.host} is in use; stop the program that uses it, or choose "
                "another with --port"
            ) from error
        raise ServiceError(f"cannot listen on {settings.host}:{settings.port}: {error}") from error
    listener.set_inheritable(False)
    return listener


def _url(host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


@contextlib.contextmanager
def _ending_quietly() -> Iterator[None]:
    """Ignore the signal that uvicorn sends itself again after it has ended, so that the exit status is 0."""

    def ignore(number: int, frame: FrameType | None) -> None:
        logger.info("ended by %s", signal.Signals(number).name)

    previous = {number: signal.signal(number, ignore) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
