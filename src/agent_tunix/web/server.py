"""Start and end of a server on an address."""

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

from agent_tunix.web.protocol import limited
from agent_tunix.web.settings import ServerSettings

logger = logging.getLogger("agent_tunix.web")

_BACKLOG = 1024
# For the store, tries and files being read.
_OTHER_DESCRIPTORS = 512
_GRACE_S = 10
_HEADERS_BYTES = 64 * 1024


def serve_app(settings: ServerSettings, app: Callable[[], FastAPI], announce: Callable[[str], None]) -> None:
    """Serve an app until SIGTERM or SIGINT, completing requests in progress.

    `announce` is called with the URL once the socket listens.

    Raises:
        ServiceError: The address is not available.
    """
    _make_room(settings.max_connections)
    with listen(settings.host, settings.port) as listener, _ending_quietly():
        announce(url_of(settings.host, listener))
        make_server(settings, app()).run(sockets=[listener])


def make_server(settings: ServerSettings, app: FastAPI, grace_s: int = _GRACE_S) -> uvicorn.Server:
    """Return a server that serves the app on given sockets."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=limited(settings.header_timeout_s, settings.max_connections),
            h11_max_incomplete_event_size=_HEADERS_BYTES,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=settings.keep_alive_s,  # type: ignore[arg-type]  # fractions of seconds work as well
            timeout_graceful_shutdown=grace_s,
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


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise ServiceError if the address is not available."""
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ServiceError(
                f"port {port} of {host} is in use; stop the program that uses it, or choose another with --port"
            ) from error
        raise ServiceError(f"cannot listen on {host}:{port}: {error}") from error
    listener.set_inheritable(False)
    return listener


def url_of(host: str, listener: socket.socket) -> str:
    """Return the URL of a server that listens."""
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
