"""Tokens a second of `agent-tunix serve-policy` ("ours") and `transformers serve`: same model, requests and machine.

    python benchmarks/serving_peers.py --peer-python PATH [--rounds 7] [--clients 16] [--tokens 64 256] [--requests 2]

Both servers run all the time and answer in turns, so other load on the machine affects both. In a round, each client
sends chat requests one after the other, at temperature 1. The model is the embedded one with an end-of-sequence id
outside its vocabulary, so every reply has as many tokens as asked for. `transformers serve` runs without and with its
continuous batching; the faster of the two counts, and one that drops a connection is named and left out. The first
round of each, which compiles, does not count.

The benchmark prints medians, and the ratio of ours to the faster peer with its quartiles over the rounds. The exit
status is 1 if a ratio is below the bar of 3. The interpreter of `--peer-python` needs `transformers[serving]` and
torch.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from agent_tunix.config.schema import Config
from agent_tunix.data import load_splits
from agent_tunix.policy.files.directory import EMBEDDED_MODEL

BAR = 3.0
OURS = "ours"
PEERS = {"transformers": [], "transformers, continuous batching": ["--continuous-batching"]}
START_S = 300.0
REQUEST_S = 600.0


@dataclass(frozen=True)
class Server:
    """A server that is up.

    Attributes:
        name: Name in the table.
        url: Its URL, with `/v1`.
        model: Name of its model.
    """

    name: str
    url: str
    model: str


def write_endless_model(directory: Path) -> Path:
    """Copy the embedded model with an end-of-sequence id that is no word; return the directory."""
    shutil.copytree(EMBEDDED_MODEL, directory)
    end = 2**20
    for name in ("config.json", "generation_config.json"):
        values = json.loads((directory / name).read_text())
        (directory / name).write_text(json.dumps(values | {"eos_token_id": end}))
    (directory / "special_tokens_map.json").unlink(missing_ok=True)
    values = json.loads((directory / "tokenizer_config.json").read_text())
    del values["eos_token"]
    (directory / "tokenizer_config.json").write_text(json.dumps(values))
    return directory


@contextlib.contextmanager
def serving(name: str, command: list[str], log: Path) -> Iterator[Server]:
    """Start a server on a free port, wait until it answers, and end it after the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--port", str(port)], stdout=output, stderr=output, env=os.environ | {"HF_HUB_OFFLINE": "1"}
        )
    try:
        url = f"http://127.0.0.1:{port}"
        until = time.monotonic() + START_S
        while not answers(f"{url}/health"):
            if process.poll() is not None or time.monotonic() > until:
                sys.exit(f"{name} did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.5)
        yield Server(name, f"{url}/v1", httpx.get(f"{url}/v1/models").json()["data"][0]["id"])
    finally:
        process.terminate()
        process.wait()


def answers(url: str) -> bool:
    """Return True if a URL answers with success."""
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(url).is_success
    return False


async def ask(client: httpx.AsyncClient, server: Server, prompt: str, tokens: int) -> None:
    """Send one request, and check the length of its reply."""
    messages = [{"role": "user", "content": prompt}]
    body = {"model": server.model, "messages": messages, "max_tokens": tokens, "temperature": 1.0}
    answer = await client.post(f"{server.url}/chat/completions", json=body, timeout=REQUEST_S)
    if not answer.is_success or answer.json()["usage"]["completion_tokens"] != tokens:
        sys.exit(
            f"{server.name} must answer with {tokens} tokens, but answered {answer.status_code}: {answer.text[:500]}"
        )


async def load(server: Server, prompts: list[str], clients: int, tokens: int) -> float:
    """Let clients send the prompts, each its share in order; return the tokens a second."""

    async def send(client: httpx.AsyncClient, share: list[str]) -> None:
        for prompt in share:
            await ask(client, server, prompt, tokens)

    async with contextlib.AsyncExitStack() as stack:
        # Opened before the time is taken, because that loads certificates.
        opened = [await stack.enter_async_context(httpx.AsyncClient()) for _ in range(clients)]
        began = time.perf_counter()
        await asyncio.gather(*(send(client, prompts[number::clients]) for number, client in enumerate(opened)))
        return len(prompts) * tokens / (time.perf_counter() - began)


def compare(servers: list[Server], prompts: list[str], arguments: argparse.Namespace, tokens: int) -> bool:
    """Measure one length of replies, print it, and return True if the bar is held."""
    rates: dict[str, list[float]] = {server.name: [] for server in servers}
    for number in range(arguments.rounds + 1):
        for server in [one for one in servers if one.name in rates]:
            try:
                rate = asyncio.run(load(server, prompts, arguments.clients, tokens))
            except httpx.TransportError as error:
                if server.name == OURS:
                    raise
                print(f"{server.name} is left out: {error!r}", flush=True)
                del rates[server.name]
                continue
            if number:
                rates[server.name].append(rate)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    print(f"\n{arguments.clients} clients, {len(prompts)} requests of {tokens} new tokens, {arguments.rounds} rounds")
    for name, median in medians.items():
        print(f"  {name:34} {median:8.0f} tokens/s")
    peer = max((name for name in medians if name != OURS), key=medians.__getitem__)
    ratio = medians[OURS] / medians[peer]
    ratios = [ours / theirs for ours, theirs in zip(rates[OURS], rates[peer], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(
        f"  ours / {peer}: ratio of medians {ratio:.2f} (bar {BAR:g}: {'held' if ratio >= BAR else 'MISSED'}),"
        f" quartiles {low:.2f} {middle:.2f} {high:.2f}",
        flush=True,
    )
    return ratio >= BAR


def main() -> int:
    """Measure, print and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", type=Path, default=Path(sys.executable), help="with transformers[serving]")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=2, help="of each client in a round")
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 256], help="of each reply")
    parser.add_argument("--only", nargs="+", choices=[OURS, *PEERS], default=[OURS, *PEERS])
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    examples, _, _ = load_splits(Config())
    prompts = [example.prompt for example in examples[: arguments.clients * arguments.requests]]
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        model = str(write_endless_model(Path(scratch, "model")))
        transformers = [str(arguments.peer_python.with_name("transformers")), "serve", model, "--device", "cpu"]
        commands = {OURS: [sys.executable, "-m", "agent_tunix", "serve-policy", model]}
        commands |= {name: [*transformers, *options] for name, options in PEERS.items()}
        servers = [
            stack.enter_context(serving(name, commands[name], Path(scratch, f"{number}.log")))
            for number, name in enumerate(arguments.only)
        ]
        held = [compare(servers, prompts, arguments, tokens) for tokens in arguments.tokens]
        return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
