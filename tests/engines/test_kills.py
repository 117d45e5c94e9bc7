"""Replicas that are killed: no request is lost, and none hangs."""

import contextlib
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import wait

import pytest

from agent_tunix.engines.source import EngineSource, make_wire
from agent_tunix.sampling.requests import TokenRequest
from tests.engines.toy_engine import sampled

pytestmark = pytest.mark.slow
PROGRAM = "from tests.engines.toy_engine import main; main({port}, 0.02)"
NUM_REQUESTS = 150


@contextlib.contextmanager
def replica(port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-c", PROGRAM.format(port=port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_in_ten_runs_a_replica_is_killed_at_a_random_moment_and_no_reply_is_lost() -> None:
    moments = random.Random(0)
    with contextlib.ExitStack() as stack:
        _, lasting = stack.enter_context(replica())
        with replica() as (process, killed):
            pass
        urls, port = [killed, lasting], int(killed.rpartition(":")[2])
        source = stack.enter_context(EngineSource(urls, make_wire("vllm"), max_concurrency=8, timeout_s=60))
        for run in range(10):
            with replica(port) as (process, _):
                source.wait_until_ready()
                requests = [TokenRequest((run, number), 4, seed=number) for number in range(NUM_REQUESTS)]
                futures = [source.submit(request) for request in requests]
                futures[moments.randrange(NUM_REQUESTS)].result(60)
                process.kill()
                assert not wait(futures, 60).not_done
                for request, future in zip(requests, futures, strict=True):
                    assert list(future.result().tokens) == sampled(list(request.prompt), request.seed or 0, 4)[0]
        counts = source.counts
    assert counts.requests == 10 * NUM_REQUESTS
    assert counts.retries
