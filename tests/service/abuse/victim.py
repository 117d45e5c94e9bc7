"""A server as a process of its own, and its state as seen from outside."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_tunix.store import open_store
from tests.service.support import BREVITY, Server, new_name, upload
from tests.tracking.report.support import write_run

LIST = "/v1/reward_functions"
# In the server's environment, and nowhere else.
PLANTED = "planted-s3cret"

# `agent-tunix serve`, but a try has time enough on a busy machine.
_SERVE = """
import sys
from pathlib import Path
from agent_tunix.service import ServiceSettings, TryLimits
from agent_tunix.service.serving import serve
tries = TryLimits(timeout_s=20, total_timeout_s=60)
serve(ServiceSettings(port=0, runs=(Path(sys.argv[1]),), tries=tries), lambda url: print(url, flush=True))
"""
_PATIENT_S = 120.0
_SETTLE_S = 60.0
# Connections of the store that its pool opens as they are needed, and keeps.
_SPARE_DESCRIPTORS = 10
_SPARE_MB = 128.0


@dataclass(frozen=True)
class Signs:
    """The resources that a server holds: open descriptors, processes, temporary files and memory."""

    descriptors: int
    processes: frozenset[int]
    files: frozenset[str]
    memory_mb: float


@dataclass(frozen=True)
class Victim(Server):
    """A server to be attacked, with the id of a run that it shows, and its directories."""

    process: subprocess.Popen[str]
    run: str
    temporary: Path
    home: Path

    @contextlib.contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with socket.create_connection(self.address, timeout=_PATIENT_S) as connection:
            yield connection

    def signs(self) -> Signs:
        place = Path(f"/proc/{self.process.pid}")
        resident = int((place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return Signs(
            len(os.listdir(place / "fd")),
            frozenset(_descendants(self.process.pid)),
            frozenset(str(path.relative_to(self.temporary)) for path in self.temporary.rglob("*")),
            resident / 2**20,
        )

    def check(self, before: Signs) -> list[str]:
        """Return what is still different after a while; [] if it answers and has left nothing behind."""
        if self.process.poll() is not None:
            return [f"the server has ended with status {self.process.returncode}"]
        with self.client() as client:
            status = client.get(LIST, params={"limit": 1}).status_code
        faults = [] if status == 200 else [f"the server answers with {status}"]
        deadline = time.monotonic() + _SETTLE_S
        while (left := _left(before, self.signs())) and time.monotonic() < deadline:
            time.sleep(0.1)
        return faults + left


@contextlib.contextmanager
def attacked(url: str, directory: Path) -> Iterator[Victim]:
    """Serve a store, with a run beside it.

    Args:
        url: Of the store's database, which is empty.
        directory: Where the run, the server's home and its log lie.
    """
    (directory / "runs").mkdir()
    write_run(directory / "runs" / "one")
    home = directory / "home"
    environment = os.environ | {
        "AGENT_TUNIX_HOME": str(home),
        "AGENT_TUNIX_DATABASE_URL": url,
        "MY_PASSWORD": PLANTED,
        "WANDB_API_KEY": PLANTED,
    }
    command = [sys.executable, "-c", _SERVE, str(directory / "runs")]
    with contextlib.ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="abuse_", dir="/tmp")))
        temporary.chmod(0o711)  # as /tmp itself, it must be passable for the users that workers become
        store = stack.enter_context(open_store(url))
        secret = store.keys.create("alice")[1]
        log = stack.enter_context((directory / "log").open("wb"))
        process = stack.enter_context(
            subprocess.Popen(
                command,
                env=environment | {"TMPDIR": str(temporary)},
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        )
        stack.callback(process.kill)
        assert process.stdout
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, (directory / "log").read_text()
        server = Server(found[0], store, secret)
        with server.client() as client:
            run = client.get("/v1/runs").json()["data"][0]["id"]
        victim = Victim(server.url, store, secret, process, run, temporary, home)
        _warm_up(victim)
        yield victim


def _warm_up(victim: Victim) -> None:
    """Have it start what its first requests start for good: threads, and connections of the store."""

    def work(number: int) -> None:
        with victim.client() as client:
            id = upload(client, new_name(), BREVITY).json()["id"]
            client.get(f"/v1/runs/{victim.run}/rollouts")
            if number < 2:
                client.post(f"{LIST}/{id}/try", json={"rows": [{"completions": ["a"]}]})

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(16)))


def _left(before: Signs, now: Signs) -> list[str]:
    faults = []
    if extra := now.processes - before.processes:
        faults.append(f"processes are left: {sorted(extra)}")
    if files := now.files - before.files:
        faults.append(f"files are left: {sorted(files)}")
    if now.descriptors > before.descriptors + _SPARE_DESCRIPTORS:
        faults.append(f"it has {now.descriptors} descriptors, and had {before.descriptors}")
    if now.memory_mb > before.memory_mb + _SPARE_MB:
        faults.append(f"it has {now.memory_mb:.0f} MB, and had {before.memory_mb:.0f}")
    return faults


def _descendants(pid: int) -> Iterator[int]:
    """Every process that a process has started, however far down."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields: list[Any] = (entry / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    waiting = list(parents.get(pid, []))
    while waiting:
        found = waiting.pop()
        yield found
        waiting += parents.get(found, [])
