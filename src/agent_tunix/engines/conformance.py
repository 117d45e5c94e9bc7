"""Conformance of a live engine: whether it samples and scores as training requires.

| check | passes if |
| --- | --- |
| `ready` | the engine tells its version and its models |
| `version` | its version is one whose routes are known |
| `ids` | a prompt of token ids is continued by token ids |
| `limit` | a reply ends after `max_tokens`, and says so |
| `stop` | a stop token ends a reply, and is its last token |
| `context` | a request that exceeds the context is refused, not shortened |
| `log-probabilities` | each token has one, finite and not above 0 |
| `shares` | the probabilities of different first tokens sum to at most 1 |
| `score` | the scores of a reply are its log-probabilities at temperature 1 |
| `temperature` | log-probabilities are of the distribution at the sampling temperature |
| `greedy` | the likeliest tokens are the same twice |
| `seeds` | equal seeds give equal tokens, and other seeds other ones |
| `unknown model` | a model that is not loaded is refused, not replaced by the base |
| `forward pass` | scores are those of our forward pass |
| `adapter` | a loaded adapter is used, the base stays as it was, and after unloading it is refused |
| `weights` | the engine reads all weights, and goes on as before |

The last three need the model itself.
"""

import math
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

import httpx

from agent_tunix.engines.wire import EngineFacts, Wire
from agent_tunix.errors import AgentTunixError, EngineError, RequestRefusedError
from agent_tunix.sampling.requests import TokenReply, TokenRequest

# Versions whose routes are known, by kind.
KNOWN_VERSIONS = {"vllm": (0, 33), "sglang": (0, 5, 23)}
# Ids that any vocabulary has; a model that is given brings a text instead.
_PROMPT = (10, 20, 30, 25, 15, 12, 40, 33)
_NUM_TOKENS = 16
_NUM_FIRST_TOKENS = 8
# Nats between log-probabilities of two programs, on average over tokens, that rounding in bfloat16 explains.
_ROUNDING = 0.05

CheckStatus = Literal["ok", "failed", "not tried"]


@dataclass(frozen=True, slots=True)
class EngineFinding:
    """Result of one check: what was sent, and what came."""

    check: str
    status: CheckStatus
    sent: str
    came: str


class KnownModel(Protocol):
    """The model that the engine serves, with an adapter that nobody else has.

    Attributes:
        prompt: Token ids of a text.
        directory: Directory of the model.
        adapter: Directory of the adapter in PEFT's format.
    """

    prompt: tuple[int, ...]
    directory: Path
    adapter: Path

    def score(self, tokens: Sequence[int], *, with_adapter: bool) -> list[float]:
        """Return the log-probability of each token after the first."""
        ...


class _Wrong(Exception):
    """The answer is not the required one."""


class _NotTried(Exception):
    """There is nothing to try with."""


async def find_wire(wires: Sequence[Wire], client: httpx.AsyncClient) -> Wire:
    """Return the wire of the kind whose routes an engine has.

    Args:
        wires: A wire of each kind that it may be of.
        client: Client of the engine.

    Raises:
        EngineError: It has the routes of no kind, is not ready, or lists no model.
    """
    reasons = []
    for wire in wires:
        try:
            await wire.describe(client)
        except (AgentTunixError, httpx.TransportError) as error:
            reasons.append(str(error) or type(error).__name__)
        else:
            return wire
    raise EngineError("; ".join(dict.fromkeys(reasons)), code="engine_unknown")


async def check_engine(
    wires: Sequence[Wire],
    client: httpx.AsyncClient,
    model: KnownModel | None = None,
    *,
    reloads: bool = False,
) -> list[EngineFinding]:
    """Check a live engine with a few short requests.

    Args:
        wires: A wire of each kind that it may be of. They are for this engine alone.
        client: Client of the engine.
        model: The model that the engine serves; None to leave out what needs it.
        reloads: True to let the engine read all weights of the model again.
    """
    try:
        wire = await find_wire(wires, client)
    except EngineError as error:
        return [EngineFinding("ready", "failed", "version and models", str(error))]
    return await _Checker(wire, client, model, reloads).run()


class _Checker:
    def __init__(self, wire: Wire, client: httpx.AsyncClient, model: KnownModel | None, reloads: bool) -> None:
        self._wire, self._client, self._model, self._reloads = wire, client, model, reloads
        self._facts = EngineFacts(wire.kind, "", (), None)
        self._prompt = _PROMPT if model is None else model.prompt

    async def run(self) -> list[EngineFinding]:
        """Return a finding for each check."""
        return [await self._try(name, sent, check) for name, sent, check in self._checks()]

    def _checks(self) -> list[tuple[str, str, Callable[[], Awaitable[str]]]]:
        prompt = f"{len(self._prompt)} ids"
        return [
            ("ready", "version and models", self._ready),
            ("version", "", self._version),
            ("ids", f"{prompt}, {_NUM_TOKENS} tokens", self._ids),
            ("limit", f"{prompt}, 4 tokens", self._limit),
            ("stop", f"{prompt}, greedy, its third token as stop token", self._stop),
            ("context", f"{prompt} and as many tokens as the context has", self._context),
            ("log-probabilities", f"{prompt}, temperature 1 and 0.7", self._logps),
            ("shares", f"{prompt}, 1 token, {_NUM_FIRST_TOKENS} seeds", self._shares),
            ("score", "a reply at temperature 1, and its tokens to score", self._score),
            ("temperature", "first tokens at temperature 2, and to score", self._temperature),
            ("greedy", f"{prompt}, temperature 0, twice", self._greedy),
            ("seeds", f"{prompt}, seed 7 twice, seed 8", self._seeds),
            ("unknown model", "a model that nobody loaded", self._unknown),
            ("forward pass", "a reply's tokens to score", self._forward_pass),
            ("adapter", "a random adapter: load, score, unload, sample", self._adapter),
            ("weights", "all weights of the model, again", self._weights),
        ]

    async def _try(self, name: str, sent: str, check: Callable[[], Awaitable[str]]) -> EngineFinding:
        try:
            return EngineFinding(name, "ok", sent, await check())
        except _NotTried as reason:
            return EngineFinding(name, "not tried", sent, str(reason))
        except (_Wrong, AgentTunixError) as error:
            return EngineFinding(name, "failed", sent, str(error))
        except httpx.TransportError as error:
            return EngineFinding(name, "failed", sent, f"{type(error).__name__}: {error}")

    # --- requests --------------------------------------------------------------------------------------------------

    async def _sample(self, request: TokenRequest, model: str = "") -> TokenReply:
        return await self._wire.sample(self._client, model or self._facts.models[0], request)

    def _request(self, max_tokens: int = _NUM_TOKENS, temperature: float = 1.0, seed: int = 7) -> TokenRequest:
        return TokenRequest(self._prompt, max_tokens, temperature=temperature, seed=seed)

    async def _scores(self, tokens: Sequence[int], model: str = "") -> list[float]:
        scores = await self._wire.score(self._client, model or self._facts.models[0], tokens)
        if len(scores) != len(tokens) - 1:
            raise _Wrong(f"{len(scores)} scores of {len(tokens)} tokens; each but the first must have one")
        return scores

    async def _refused(self, request: TokenRequest, model: str = "") -> str:
        """Return why a request was refused; raise _Wrong if it was answered."""
        try:
            reply = await self._sample(request, model)
        except (EngineError, RequestRefusedError) as error:
            return f"refused: {str(error)[:160]}"
        raise _Wrong(f"{len(reply.tokens)} tokens; it must be refused")

    # --- checks ----------------------------------------------------------------------------------------------------

    async def _ready(self) -> str:
        self._facts = await self._wire.describe(self._client)
        context = "" if self._facts.max_context is None else f", context {self._facts.max_context}"
        return f"{self._facts.kind} {self._facts.version} with {', '.join(self._facts.models)}{context}"

    async def _version(self) -> str:
        known, version = KNOWN_VERSIONS.get(self._facts.kind), self._facts.version
        if known is None or not version:
            raise _NotTried("any version will do" if known is None else "the engine does not tell its version")
        numbers = tuple(int(part) for part in version.split("+")[0].split(".")[: len(known)] if part.isdigit())
        least = ".".join(map(str, known))
        if numbers < known:
            raise _Wrong(f"{version}; at least {least} is required")
        return f"{version}, at least {least}"

    async def _ids(self) -> str:
        reply = await self._sample(self._request())
        if not 0 < len(reply.tokens) <= _NUM_TOKENS:
            raise _Wrong(f"{len(reply.tokens)} ids; from 1 to {_NUM_TOKENS} are required")
        return f"{len(reply.tokens)} ids, {reply.finish_reason}"

    async def _limit(self) -> str:
        reply = await self._sample(self._request(4))
        if len(reply.tokens) > 4 or (reply.finish_reason != "stop" and len(reply.tokens) < 4):
            raise _Wrong(f"{len(reply.tokens)} ids, {reply.finish_reason}; 4 are required, or fewer that stop ends")
        return f"{len(reply.tokens)} ids, {reply.finish_reason}"

    async def _stop(self) -> str:
        whole = await self._sample(self._request(temperature=0.0))
        stop = whole.tokens[min(2, len(whole.tokens) - 1)]
        reply = await self._sample(replace(self._request(temperature=0.0), stop_ids=(stop,)))
        expected = whole.tokens[: whole.tokens.index(stop) + 1]
        if reply.tokens != expected or reply.finish_reason != "stop":
            raise _Wrong(f"{list(reply.tokens)}, {reply.finish_reason}; {list(expected)}, stop is required")
        return f"ended by {stop}"

    async def _context(self) -> str:
        if self._facts.max_context is None:
            raise _NotTried("the engine does not tell its context")
        return await self._refused(self._request(self._facts.max_context))

    async def _logps(self) -> str:
        least = 0.0
        for temperature in (1.0, 0.7):
            reply = await self._sample(self._request(temperature=temperature))
            if len(reply.logps) != len(reply.tokens):
                raise _Wrong(f"{len(reply.logps)} log-probabilities of {len(reply.tokens)} tokens")
            if wrong := [logp for logp in reply.logps if not -float("inf") < logp <= 1e-6]:
                raise _Wrong(f"{wrong}; each must be finite and at most 0")
            least = min(least, *reply.logps)
        return f"from {least:.3f} to 0"

    async def _first_tokens(self, temperature: float) -> dict[int, float]:
        """Return the log-probability of each first token that some seeds draw."""
        replies = [
            await self._sample(self._request(1, temperature=temperature, seed=seed))
            for seed in range(_NUM_FIRST_TOKENS)
        ]
        return {reply.tokens[0]: reply.logps[0] for reply in replies}

    async def _shares(self) -> str:
        total = sum(math.exp(logp) for logp in (await self._first_tokens(1.0)).values())
        if not total <= 1.001:
            raise _Wrong(f"{total:.4f} in sum; at most 1 is possible")
        return f"{total:.4f} in sum"

    async def _score(self) -> str:
        reply = await self._sample(self._request())
        scores = await self._scores((*self._prompt, *reply.tokens))
        return _follow(scores[len(self._prompt) - 1 :], reply.logps, "from the log-probabilities of the reply")

    async def _temperature(self) -> str:
        (one, first), *others = (await self._first_tokens(2.0)).items()
        if not others:
            raise _NotTried("every seed gave the same token")
        other, second = max(others, key=lambda pair: abs(pair[1] - first))
        scores = [(await self._scores((*self._prompt, token)))[-1] for token in (one, other)]
        expected, came = (scores[0] - scores[1]) / 2, first - second
        if not abs(came - expected) <= max(_ROUNDING, 0.02 * abs(expected)):
            raise _Wrong(
                f"tokens {one} and {other} are {came:.4f} nats apart, and at temperature 2 must be {expected:.4f}"
            )
        return f"{came:.4f} nats between two tokens, {2 * expected:.4f} at temperature 1"

    async def _greedy(self) -> str:
        first, second = [await self._sample(self._request(temperature=0.0)) for _ in range(2)]
        if first.tokens != second.tokens:
            raise _Wrong(f"{list(first.tokens)}, then {list(second.tokens)}")
        return f"{len(first.tokens)} equal ids"

    async def _seeds(self) -> str:
        first, second, other = [(await self._sample(self._request(seed=seed))).tokens for seed in (7, 7, 8)]
        if first != second:
            raise _Wrong(f"{list(first)}, then {list(second)} with the same seed")
        return f"{len(first)} equal ids; " + (
            "another seed gave the same" if first == other else "another seed, others"
        )

    async def _unknown(self) -> str:
        return await self._refused(self._request(4), f"nobody-loaded-{secrets.token_hex(4)}")

    async def _forward_pass(self) -> str:
        model = self._known_model()
        tokens = (*self._prompt, *(await self._sample(self._request())).tokens)
        ours = model.score(tokens, with_adapter=False)
        return _follow(await self._scores(tokens), ours, "from our forward pass")

    async def _adapter(self) -> str:
        model, name = self._known_model(), f"check-{secrets.token_hex(4)}"
        tokens = (*self._prompt, *(await self._sample(self._request())).tokens)
        base = await self._scores(tokens)
        ours = [model.score(tokens, with_adapter=with_adapter) for with_adapter in (False, True)]
        await self._wire.load_adapter(self._client, name, model.adapter)
        try:
            await self._sample(self._request(4), name)
            adapted, distance = await self._scores(tokens, name), _distance(*ours)
            if not _distance(adapted, ours[1]) < distance / 4:
                raise _Wrong(
                    f"scores are {_distance(adapted, ours[1]):.4f} nats from the adapter's and "
                    f"{_distance(adapted, base):.4f} from the base's, which must be {distance:.4f} apart"
                )
            _follow(await self._scores(tokens), base, "from the base's scores before it was loaded")
        finally:
            await self._wire.unload_adapter(self._client, name)
        await self._refused(self._request(4), name)
        came = _distance(adapted, ours[1])
        return f"{came:.4f} nats from its scores, which are {distance:.4f} from the base's; refused after unloading"

    async def _weights(self) -> str:
        model = self._known_model()
        if not self._reloads:
            raise _NotTried("it was not asked for")
        tokens = (*self._prompt, *(await self._sample(self._request())).tokens)
        before = await self._scores(tokens)
        await self._wire.load_weights(self._client, model.directory, 1)
        return _follow(await self._scores(tokens), before, "from the scores before")

    def _known_model(self) -> KnownModel:
        if self._model is None:
            raise _NotTried("the model is not given")
        return self._model


def _follow(came: Sequence[float], expected: Sequence[float], relation: str) -> str:
    """Return the distance of log-probabilities; raise _Wrong if rounding does not explain it."""
    distance = _distance(came, expected)
    if not distance <= _ROUNDING:
        raise _Wrong(f"{distance:.4f} nats {relation} on average; at most {_ROUNDING} is rounding")
    return f"{distance:.2g} nats {relation} on average"


def _distance(first: Sequence[float], second: Sequence[float]) -> float:
    pairs = list(zip(first, second, strict=True))
    return sum(abs(one - other) for one, other in pairs) / len(pairs)
