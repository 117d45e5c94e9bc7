"""Policies behind the stand-ins: a cheap distribution over a few tokens, and a real model."""

import contextlib
import dataclasses
import itertools
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from agent_tunix.sampling.requests import TokenReply, TokenRequest

ADAPTER_FILE = "adapter_model.safetensors"


class Policy(Protocol):
    """Weights that sample, each a value that the stand-in keeps under a name."""

    vocab_size: int
    max_context: int

    def first_weights(self) -> Any:
        """Return the weights at the start."""
        ...

    def read_weights(self, directory: Path) -> Any:
        """Return the weights of a directory; raise OSError or ModelError if there are none."""
        ...

    def read_adapter(self, weights: Any, directory: Path) -> Any:
        """Return weights with an adapter; raise OSError or ModelError if there is none."""
        ...

    def reply(self, weights: Any, request: TokenRequest) -> TokenReply:
        """Continue a prompt."""
        ...


class ToyPolicy:
    """A distribution of the next token that depends on the last two, different for each weights. Token 1 ends a reply.

    The weights are a number: that of the files' contents.
    """

    def __init__(self, vocab_size: int = 64, max_context: int = 256) -> None:
        self.vocab_size, self.max_context = vocab_size, max_context

    def first_weights(self) -> int:
        return 7

    def read_weights(self, directory: Path) -> int:
        return zlib.crc32(b"".join(file.read_bytes() for file in _files(directory, "*.safetensors")))

    def read_adapter(self, weights: int, directory: Path) -> int:
        return zlib.crc32((directory / ADAPTER_FILE).read_bytes(), weights)

    def logps(self, weights: int, context: Sequence[int], temperature: float = 1.0) -> np.ndarray:
        """The log-probability of each token."""
        logits = 1.5 * np.random.default_rng([weights, *context[-2:]]).normal(size=self.vocab_size) / temperature
        return np.asarray(logits - np.logaddexp.reduce(logits))

    def reply(self, weights: int, request: TokenRequest) -> TokenReply:
        random = np.random.default_rng(request.seed)
        tokens: list[int] = []
        logps, tops = [], []
        reason = "length"
        while len(tokens) < request.max_tokens:
            scaled = self.logps(weights, (*request.prompt, *tokens), request.temperature or 1.0)
            order = np.argsort(-scaled)
            kept = order[: request.top_k or None]
            shares = np.exp(scaled[kept]) / np.exp(scaled[kept]).sum()
            token = int(order[0] if request.temperature == 0 else random.choice(kept, p=shares))
            tokens.append(token)
            logps.append(float(scaled[token]))
            tops.append(tuple((int(one), float(scaled[one])) for one in order[: request.num_alternatives]))
            if token in (1, *request.stop_ids):
                reason = "stop"
                break
        prompt_logps: tuple[float | None, ...] = ()
        if request.with_prompt_logps:
            prompt = request.prompt
            places = range(1, len(prompt))
            prompt_logps = (None, *(float(self.logps(weights, prompt[:place])[prompt[place]]) for place in places))
        return TokenReply(
            tuple(tokens),
            tuple(logps),
            reason,
            alternatives=tuple(tops) if request.num_alternatives else (),
            prompt_logps=prompt_logps,
        )


class ModelPolicy:
    """A model of a directory, sampled by continuous batching in this process. To be closed.

    The weights are a sampler and the name of its adapter.
    """

    def __init__(self, directory: Path, max_context: int = 256) -> None:
        self.max_context = max_context
        self._numbers = itertools.count()
        self._open = contextlib.ExitStack()
        self._first = self.read_weights(directory)
        self.vocab_size = self._first[0]._sampler.policy.config.vocab_size

    def first_weights(self) -> Any:
        return self._first

    def read_weights(self, directory: Path) -> Any:
        from agent_tunix.serving.policy_server import open_service
        from agent_tunix.serving.settings import PolicySettings
        from agent_tunix.training.generation import find_source

        _files(directory, "*.safetensors")
        found = find_source(str(directory), None)
        service = open_service(found.run, found.step, PolicySettings(port=0), max_context=self.max_context)
        return self._open.enter_context(service).source, None

    def read_adapter(self, weights: Any, directory: Path) -> Any:
        sampler, name = weights[0], f"adapter-{next(self._numbers)}"
        sampler.load_adapter(name, directory)
        return sampler, name

    def reply(self, weights: Any, request: TokenRequest) -> TokenReply:
        sampler, name = weights
        reply: TokenReply = sampler.submit(dataclasses.replace(request, adapter=name)).result(60)
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()


def _files(directory: Path, pattern: str) -> list[Path]:
    files = sorted(directory.glob(pattern))
    if not files:
        raise FileNotFoundError(f"{directory} has no {pattern}")
    return files
