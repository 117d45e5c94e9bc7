"""Kill a server during uploads, at random moments, and check what its store holds afterwards."""

import os
import queue
import random
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from agent_tunix.client import Client
from agent_tunix.errors import StoreError
from agent_tunix.store import open_store
from tests.store.killing import check_store

_SERVE = "from agent_tunix.cli import main; main()"
_CLIENTS = 4


@dataclass
class KilledServer:
    """The outcome of `kill_server`: id → number of each acknowledged upload, kills, repeated uploads, and faults."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    kills: int = 0
    lost: int = 0
    faults: list[str] = field(default_factory=list)


def kill_server(url: str, directory: Path, uploads: int, seed: int, longest_s: float = 0.3) -> KilledServer:
    """Upload to a server over several connections, killing it with SIGKILL and starting it again, until all is kept.

    Args:
        url: An empty database.
        directory: The server's home.
        uploads: How many are to be acknowledged.
        seed: Decides the moments.
        longest_s: The server is killed at most this long after it has acknowledged its first upload.
    """
    moments = random.Random(seed)
    result = KilledServer()
    with open_store(url) as store:
        _, secret = store.keys.create("uploader")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    waiting: queue.Queue[int] = queue.Queue()
    for number in range(uploads):
        waiting.put(number)
    while len(result.acknowledged) < uploads:
        with _serving(url, directory, port) as process, ThreadPoolExecutor(_CLIENTS) as threads:
            has_begun, is_over = threading.Event(), threading.Event()
            for _ in range(_CLIENTS):
                threads.submit(_upload, f"http://127.0.0.1:{port}", secret, waiting, result, has_begun, is_over)
            has_begun.wait(60)
            time.sleep(moments.uniform(0, longest_s))
            process.kill()
            result.kills += 1
            is_over.set()
    untold, result.faults = check_store(url, result.acknowledged, source_of)
    if untold or sorted(result.acknowledged.values()) != list(range(uploads)):
        result.faults.append("an upload is there that nobody was told of, or under two ids")
    return result


def source_of(number: int) -> bytes:
    return f"def reward(completions, **kwargs):\n    return [{number / 1000}]\n# {'x' * 20_000}\n".encode()


def _serving(url: str, directory: Path, port: int) -> subprocess.Popen[str]:
    environment = os.environ | {"AGENT_TUNIX_HOME": str(directory / "home"), "AGENT_TUNIX_DATABASE_URL": url}
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE, "serve", "--port", str(port), "--requests-per-second", "0"],
        env=environment,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    assert "http://" in process.stdout.readline(), "the server does not start"
    return process


def _upload(
    url: str,
    secret: str,
    waiting: "queue.Queue[int]",
    result: KilledServer,
    has_begun: threading.Event,
    is_over: threading.Event,
) -> None:
    """Upload what waits until the server is gone; what was not acknowledged waits again."""
    with Client(url, secret) as client:
        while not is_over.is_set():
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                made = client.create(f"reward_{number}", source_of(number), "trl", if_changed=True)
            except StoreError:
                result.lost += 1
                waiting.put(number)
                return
            result.acknowledged[made.id] = number
            has_begun.set()
