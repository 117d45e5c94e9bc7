"""A real server on the loopback, in a thread of this process."""

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from agent_tunix.service import ServiceSettings, create_app
from agent_tunix.store import SCOPES, open_store
from agent_tunix.store.opening import Store
from agent_tunix.web.server import make_server

BREVITY = b"""\
def reward(completions, answer=None, **kwargs):
    return [max(0.0, 1 - len(completion) / 80) for completion in completions]
"""


_numbers = itertools.count()


@dataclass(frozen=True)
class Server:
    """A running server, its store, and the secret of a key of `alice` with every scope."""

    url: str
    store: Store
    secret: str

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname
        assert parts.port
        return parts.hostname, parts.port

    def client(self, secret: str | None = None) -> httpx.Client:
        """A client with a key: alice's, another one, or, "", none."""
        secret = self.secret if secret is None else secret
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=600)

    def new_key(self, *scopes: str) -> str:
        return self.store.keys.create(f"somebody{next(_numbers)}", scopes or SCOPES)[1]


@contextlib.contextmanager
def running(store: Store, settings: ServiceSettings | None = None) -> Iterator[Server]:
    settings = settings or ServiceSettings()
    secret = store.keys.create("alice")[1]
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        server = make_server(settings, create_app(settings, store))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield Server(f"http://127.0.0.1:{listener.getsockname()[1]}", store, secret)
        finally:
            server.should_exit = True
            thread.join(30)


@contextlib.contextmanager
def serving(directory: Path, settings: ServiceSettings | None = None) -> Iterator[Server]:
    """Serve an empty store that lies in a directory."""
    with open_store(f"sqlite:///{directory / 'store.db'}") as store, running(store, settings) as server:
        yield server


def new_name() -> str:
    return f"function{next(_numbers)}"


def upload(client: httpx.Client, name: str = "brevity", source: bytes = BREVITY, format: str = "trl") -> httpx.Response:
    return client.post("/v1/reward_functions", data={"name": name, "format": format}, files={"file": ("f.py", source)})
