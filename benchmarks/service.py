"""Request rate of the service on one core, and its change as the store grows.

    python benchmarks/service.py
    python benchmarks/service.py --sizes 1000 100000 --seconds 5 --connections 16

For each size, the benchmark fills a store with that many functions, starts `agent-tunix serve` on one core, and sends
requests over persistent connections from a process on the other cores: for the newest 20 functions, for 20 and for 100
from any place of the list, and for single functions. `ms of CPU` is the CPU time of the server's process per request;
other programs on the machine affect it least.

The exit status is 1 if a bar is missed at the largest size: 500 requests/s, 99 of 100 answers within 50 ms, and at
least 0.8 of the rate at the smallest size.
"""

import argparse
import asyncio
import contextlib
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from agent_tunix.store import open_store
from agent_tunix.store.opening import Store
from agent_tunix.store.records import new_function_id
from agent_tunix.store.schema import names, reward_functions, sources

MIN_RATE = 500.0
MAX_P99_MS = 50.0
MIN_FLATNESS = 0.8

SOURCE = b"def reward(completions, **kwargs):\n    return [0.0 for _ in completions]\n"
WARM_UP_S = 1.0


@dataclass(frozen=True)
class Measured:
    """Measurements of one kind of request.

    Attributes:
        rate: Requests answered per second.
        p50_ms: Median latency.
        p99_ms: Latency that 99 of 100 answers do not exceed.
        cpu_ms: CPU time of the server per request.
    """

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float


def fill(store: Store, count: int) -> list[str]:
    """Add functions to an empty store, ten versions of each name, and return their ids."""
    owner = store.keys.local().id
    ids = [new_function_id() for _ in range(count)]
    begun = datetime.now(UTC) - timedelta(seconds=count)
    with store.engine.begin() as connection:
        connection.execute(sources.insert(), [{"sha256": f"{number:064x}", "content": SOURCE} for number in range(64)])
        connection.execute(
            names.insert(),
            [{"name": f"f{n}", "owner_id": owner, "last_version": 10} for n in range(-(-count // 10))],
        )
        connection.execute(
            reward_functions.insert(),
            [
                {
                    "id": id,
                    "name": f"f{number // 10}",
                    "version": number % 10 + 1,
                    "format": "trl",
                    "sha256": f"{number % 64:064x}",
                    "size": len(SOURCE),
                    "owner_id": owner,
                    "created_at": begun + timedelta(seconds=number),
                }
                for number, id in enumerate(ids)
            ],
        )
    return ids


@contextlib.contextmanager
def serving(home: str, core: int) -> Iterator[tuple[int, str, int]]:
    """Run `agent-tunix serve` on one core, and yield its process id, host and port."""
    pin = f"import os; os.sched_setaffinity(0, [{core}]); from agent_tunix.cli import main; main()"
    command = [sys.executable, "-c", pin, "serve", "--port", "0", "--requests-per-second", "0"]
    environment = os.environ | {"AGENT_TUNIX_HOME": home}
    environment.pop("AGENT_TUNIX_DATABASE_URL", None)
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=home
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found, "the server did not say where it is"
            address = urlsplit(found[0])
            assert address.hostname
            assert address.port
            yield process.pid, address.hostname, address.port
        finally:
            process.terminate()


async def ask(host: str, port: int, request: Callable[[], bytes], until: float, latencies_s: list[float]) -> None:
    """Send requests over one connection, each after the answer to the previous one."""
    reader, writer = await asyncio.open_connection(host, port)
    while (begun := time.perf_counter()) < until:
        writer.write(request())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        length = re.search(rb"content-length: (\d+)", head)
        assert length
        await reader.readexactly(int(length[1]))
        latencies_s.append(time.perf_counter() - begun)
    writer.close()
    await writer.wait_closed()


async def load(host: str, port: int, request: Callable[[], bytes], seconds: float, connections: int) -> list[float]:
    """Send requests over several connections for `seconds`, and return the latency of each answer in seconds."""
    latencies_s: list[float] = []
    until = time.perf_counter() + seconds
    await asyncio.gather(*(ask(host, port, request, until, latencies_s) for _ in range(connections)))
    return latencies_s


def measure(pid: int, host: str, port: int, request: Callable[[], bytes], seconds: float, connections: int) -> Measured:
    """Return the measurements of one kind of request."""
    asyncio.run(load(host, port, request, WARM_UP_S, connections))
    cpu, begun = cpu_s(pid), time.perf_counter()
    latencies_s = asyncio.run(load(host, port, request, seconds, connections))
    wall_s, cpu = time.perf_counter() - begun, cpu_s(pid) - cpu
    cuts = statistics.quantiles(latencies_s, n=100)
    count = len(latencies_s)
    return Measured(count / wall_s, 1000 * cuts[49], 1000 * cuts[98], 1000 * cpu / count)


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def kinds_of_request(ids: list[str], secret: str) -> dict[str, Callable[[], bytes]]:
    """Return functions that make a request, by kind."""

    def request(path: str) -> bytes:
        headers = f"Host: localhost\r\nAuthorization: Bearer {secret}\r\n\r\n"
        return f"GET /v1/reward_functions{path} HTTP/1.1\r\n{headers}".encode()

    newest = request("?limit=20")
    return {
        "list, newest": lambda: newest,
        "list of 20": lambda: request(f"?limit=20&after={random.choice(ids)}"),
        "list of 100": lambda: request(f"?limit=100&after={random.choice(ids)}"),
        "get": lambda: request(f"/{random.choice(ids)}"),
    }


def main() -> int:
    """Measure, check the bars and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 100_000], help="functions in the store")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--connections", type=int, default=16, help="that ask at the same time")
    arguments = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))
    core, *others = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, others or [core])

    print(f"{'stored':>8}  {'asked for':<14} {'requests/s':>10} {'p50 ms':>7} {'p99 ms':>7} {'ms of CPU':>9}")
    found: dict[tuple[int, str], Measured] = {}
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory() as home:
            with open_store(f"sqlite:///{home}/store.db") as store:
                ids = fill(store, size)
                _, secret = store.keys.create("benchmark")
            with serving(home, core) as (pid, host, port):
                for kind, request in kinds_of_request(ids, secret).items():
                    seen = measure(pid, host, port, request, arguments.seconds, arguments.connections)
                    found[size, kind] = seen
                    print(
                        f"{size:8,}  {kind:<14} {seen.rate:10.0f} {seen.p50_ms:7.1f} {seen.p99_ms:7.1f}"
                        f" {seen.cpu_ms:9.2f}",
                        flush=True,
                    )
    missed = list(judge(found, min(arguments.sizes), max(arguments.sizes)))
    print("\n".join(missed) or f"every bar is met at {max(arguments.sizes):,}")
    return 1 if missed else 0


def judge(found: dict[tuple[int, str], Measured], smallest: int, largest: int) -> Iterator[str]:
    """Yield each bar that is missed."""
    for (size, kind), seen in found.items():
        if size != largest:
            continue
        if seen.rate < MIN_RATE:
            yield f"missed: {kind}: {seen.rate:.0f} requests/s, and not {MIN_RATE:.0f}"
        if seen.p99_ms >= MAX_P99_MS:
            yield f"missed: {kind}: p99 {seen.p99_ms:.1f} ms, and not under {MAX_P99_MS:.0f}"
        if seen.rate < MIN_FLATNESS * found[smallest, kind].rate:
            yield f"missed: {kind}: {seen.rate:.0f} requests/s, and {found[smallest, kind].rate:.0f} at {smallest:,}"


if __name__ == "__main__":
    sys.exit(main())
