"""Interface of an engine, whatever kind it is. Each kind has a module that speaks its routes.

An engine samples from a *model*, named in each request. Models of other weights have other names, such as `policy-v17`,
and a name never gets other weights, so that it is also the version of what it sampled and of what it has cached.
Engines that serve one set of weights are told instead to read others, between the requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import httpx

from agent_tunix.sampling.requests import TokenReply, TokenRequest


@dataclass(frozen=True)
class EngineFacts:
    """Facts that an engine tells of itself.

    Attributes:
        kind: `vllm`, `sglang` or `agent_tunix`.
        version: Version of its software; "" if it does not tell.
        models: Names of the models that it serves: the base first, then adapters.
        max_context: Maximum tokens of a prompt and its reply; None if it does not tell.
    """

    kind: str
    version: str
    models: tuple[str, ...]
    max_context: int | None


class Wire(Protocol):
    """The routes of a kind of engine. Each method talks to one replica, through its client, and keeps no state.

    Raises:
        EngineError: The engine refused, or answered what it must not; with a `code`. Tried again elsewhere only if it
            says so.
        httpx.TransportError: The engine did not answer.
    """

    kind: ClassVar[str]

    async def describe(self, client: httpx.AsyncClient) -> EngineFacts:
        """Return what the engine tells of itself, once it is ready."""
        ...

    async def sample(self, client: httpx.AsyncClient, model: str, request: TokenRequest) -> TokenReply:
        """Return the continuation of a prompt. A log-probability that is missing or not finite is NaN."""
        ...

    async def score(self, client: httpx.AsyncClient, model: str, tokens: Sequence[int]) -> list[float]:
        """Return the log-probability of each token after the first, at temperature 1."""
        ...

    async def load_adapter(self, client: httpx.AsyncClient, name: str, directory: Path) -> None:
        """Let the engine sample with an adapter in PEFT's format, under a new name."""
        ...

    async def unload_adapter(self, client: httpx.AsyncClient, name: str) -> None:
        """Let the engine forget an adapter."""
        ...

    async def load_weights(self, client: httpx.AsyncClient, directory: Path, version: int) -> None:
        """Let the engine read all weights, and drop what it has cached. Requests that it answers end before."""
        ...
