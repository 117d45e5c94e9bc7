"""Conformance of a live engine: whether it samples and scores as training requires.

| check | passes if |
| --- | --- |
| `ready` | the engine tells its models, and a version whose routes are known |
| `ids` | token ids are continued by token ids, and a reply ends after `max_tokens` |
| `stop` | a stop token ends a reply, and is its last token |
| `context` | a request for more tokens than the context has is refused |
| `log-probabilities` | each is finite and at most 0, and those of different first tokens sum to at most 1 |
| `score` | the scores of a reply are its log-probabilities at temperature 1 |
| `temperature` | log-probabilities are those at the sampling temperature |
| `greedy` | the likeliest tokens are the same twice |
| `seeds` | equal seeds give equal tokens |
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


@dataclass(frozen=True, slots=True)
class EngineFinding:
    """Result of one check: what was sent, and what came."""

    check: str
    status: Literal["ok", "failed", "not tried"]
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


async def check_engine(
    wires: Sequence[Wire], client: httpx.AsyncClient, model: KnownModel | None = None, *, reloads: bool = False
) -> list[EngineFinding]:
    """Check a live engine with about 40 short requests.

    Args:
        wires: A wire of each kind that it may be of. They are for this engine alone.
        client: Client of the engine.
        model: The model that the engine serves; None to leave out what needs it.
        reloads: True to let the engine read all weights of the model again.
    """
    reasons = []
    for wire in wires:
        try:
            facts = await wire.describe(client)
        except (AgentTunixError, httpx.TransportError) as error:
            reasons.append(str(error) or type(error).__name__)
        else:
            return await _Checker(wire, client, facts, model, reloads).run()
    return [EngineFinding("ready", "failed", "version and models", "; ".join(dict.fromkeys(reasons)))]


class _Checker:
    def __init__(
        self, wire: Wire, client: httpx.AsyncClient, facts: EngineFacts, model: KnownModel | None, reloads: bool
    ) -> None:
        self._wire, self._client, self._facts, self._reloads = wire, client, facts, reloads
        self._given = model
        self._base = facts.models[0]
        self._prompt = _PROMPT if model is None else model.prompt

    async def run(self) -> list[EngineFinding]:
        """Return a finding for each check."""
        ids = f"{len(self._prompt)} ids"
        return [
            await self._try("ready", "version and models", self._ready),
            await self._try("ids", f"{ids}, {_NUM_TOKENS} tokens, then 4", self._ids),
            await self._try("stop", f"{ids}, greedy, its third token as stop token", self._stop),
            await self._try("context", f"{ids}, and more tokens than the context has", self._context),
            await self._try("log-probabilities", f"{ids}, 2 replies and {_NUM_FIRST_TOKENS} tokens", self._logps),
            await self._try("score", "a reply at temperature 1, and its tokens to score", self._score),
            await self._try("temperature", "first tokens at temperature 2, and to score", self._temperature),
            await self._try("greedy", f"{ids}, temperature 0, twice", self._greedy),
            await self._try("seeds", f"{ids}, seed 7 twice, seed 8", self._seeds),
            await self._try("unknown model", "a model that nobody loaded", self._unknown),
            await self._try("forward pass", "a reply's tokens to score", self._forward_pass),
            await self._try("adapter", "a random adapter: load, score, unload, sample", self._adapter),
            await self._try("weights", "all weights of the model, again", self._weights),
        ]

    async def _try(self, name: str, sent: str, check: Callable[[], Awaitable[str]]) -> EngineFinding:
        try:
            return EngineFinding(name, "ok", sent, await check())
        except _NotTried as reason:
            return EngineFinding(name, "not tried", sent, str(reason))
        except (_Wrong, AgentTunixError, httpx.TransportError) as error:
            return EngineFinding(name, "failed", sent, str(error) or type(error).__name__)

    # --- requests --------------------------------------------------------------------------------------------------

    async def _sample(
        self, max_tokens: int = _NUM_TOKENS, temperature: float = 1.0, seed: int = 7, model: str = "", stop: int = -1
    ) -> TokenReply:
        request = TokenRequest(self._prompt, max_tokens, temperature=temperature, seed=seed)
        request = request if stop < 0 else replace(request, stop_ids=(stop,))
        return await self._wire.sample(self._client, model or self._base, request)

    async def _scores(self, tokens: Sequence[int], model: str = "") -> list[float]:
        scores = await self._wire.score(self._client, model or self._base, tokens)
        if len(scores) != len(tokens) - 1:
            raise _Wrong(f"{len(scores)} scores of {len(tokens)} tokens; each but the first must have one")
        return scores

    async def _refused(self, max_tokens: int, model: str = "") -> str:
        """Return why a request was refused; raise _Wrong if it was answered."""
        try:
            reply = await self._sample(max_tokens, model=model)
        except (EngineError, RequestRefusedError) as error:
            return f"refused: {str(error)[:160]}"
        raise _Wrong(f"{len(reply.tokens)} tokens; it must be refused")

    async def _text(self) -> tuple[int, ...]:
        """Return the prompt with a reply."""
        return (*self._prompt, *(await self._sample()).tokens)

    async def _first_tokens(self, temperature: float) -> dict[int, float]:
        """Return the log-probability of each first token that some seeds draw."""
        replies = [await self._sample(1, temperature, seed) for seed in range(_NUM_FIRST_TOKENS)]
        return {reply.tokens[0]: reply.logps[0] for reply in replies}

    # --- checks ----------------------------------------------------------------------------------------------------

    async def _ready(self) -> str:
        facts, known = self._facts, KNOWN_VERSIONS.get(self._facts.kind, ())
        numbers = tuple(int(part) for part in facts.version.split("+")[0].split(".")[: len(known)] if part.isdigit())
        text = f"{facts.kind} {facts.version} with {', '.join(facts.models)}, context {facts.max_context}"
        if facts.version and numbers < known:
            raise _Wrong(f"{text}; at least version {'.'.join(map(str, known))} is required")
        return text

    async def _ids(self) -> str:
        replies = {limit: await self._sample(limit) for limit in (_NUM_TOKENS, 4)}
        for limit, reply in replies.items():
            if not 0 < len(reply.tokens) <= limit or (reply.finish_reason != "stop" and len(reply.tokens) < limit):
                raise _Wrong(f"{len(reply.tokens)} ids, {reply.finish_reason}; {limit} or a stop are required")
        return ", then ".join(f"{len(reply.tokens)} ids, {reply.finish_reason}" for reply in replies.values())

    async def _stop(self) -> str:
        whole = (await self._sample(temperature=0.0)).tokens
        stop = whole[min(2, len(whole) - 1)]
        reply = await self._sample(temperature=0.0, stop=stop)
        expected = whole[: whole.index(stop) + 1]
        if reply.tokens != expected or reply.finish_reason != "stop":
            raise _Wrong(f"{list(reply.tokens)}, {reply.finish_reason}; {list(expected)}, stop is required")
        return f"ended by {stop}"

    async def _context(self) -> str:
        if self._facts.max_context is None:
            raise _NotTried("the engine does not tell its context")
        return await self._refused(self._facts.max_context + 1)

    async def _logps(self) -> str:
        logps = [logp for temperature in (1.0, 0.7) for logp in (await self._sample(temperature=temperature)).logps]
        if wrong := [logp for logp in logps if not -math.inf < logp <= 1e-6]:
            raise _Wrong(f"{wrong}; each must be finite and at most 0")
        total = sum(map(math.exp, (await self._first_tokens(1.0)).values()))
        if not total <= 1.001:
            raise _Wrong(f"different first tokens have {total:.4f} in sum; at most 1 is possible")
        return f"from {min(logps):.3f} to 0; different first tokens have {total:.4f} in sum"

    async def _score(self) -> str:
        reply = await self._sample()
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
            raise _Wrong(f"tokens {one} and {other} are {came:.4f} nats apart; at temperature 2 must be {expected:.4f}")
        return f"{came:.4f} nats between two tokens, {2 * expected:.4f} at temperature 1"

    async def _greedy(self) -> str:
        first, second = [(await self._sample(temperature=0.0)).tokens for _ in range(2)]
        if first != second:
            raise _Wrong(f"{list(first)}, then {list(second)}")
        return f"{len(first)} equal ids"

    async def _seeds(self) -> str:
        first, second, other = [(await self._sample(seed=seed)).tokens for seed in (7, 7, 8)]
        if first != second:
            raise _Wrong(f"{list(first)}, then {list(second)} with the same seed")
        return f"{len(first)} equal ids; " + (
            "another seed gave the same" if first == other else "another seed, others"
        )

    async def _unknown(self) -> str:
        return await self._refused(4, f"nobody-loaded-{secrets.token_hex(4)}")

    async def _forward_pass(self) -> str:
        model, tokens = self._model(), await self._text()
        ours = model.score(tokens, with_adapter=False)
        return _follow(await self._scores(tokens), ours, "from our forward pass")

    async def _adapter(self) -> str:
        model, name, tokens = self._model(), f"check-{secrets.token_hex(4)}", await self._text()
        before = await self._scores(tokens)
        base, expected = [model.score(tokens, with_adapter=with_adapter) for with_adapter in (False, True)]
        await self._wire.load_adapter(self._client, name, model.adapter)
        try:
            await self._sample(4, model=name)
            adapted = await self._scores(tokens, name)
            came, distance = _distance(adapted, expected), _distance(base, expected)
            if not came < distance / 4:
                raise _Wrong(
                    f"scores are {came:.4f} nats from the adapter's and {_distance(adapted, before):.4f} from the "
                    f"base's, which must be {distance:.4f} apart"
                )
            _follow(await self._scores(tokens), before, "from the base's scores before it was loaded")
        finally:
            await self._wire.unload_adapter(self._client, name)
        await self._refused(4, name)
        return f"{came:.2g} nats from its scores, which are {distance:.2g} from the base's; refused after unloading"

    async def _weights(self) -> str:
        model = self._model()
        if not self._reloads:
            raise _NotTried("it was not asked for")
        tokens = await self._text()
        before = await self._scores(tokens)
        await self._wire.load_weights(self._client, model.directory, 1)
        return _follow(await self._scores(tokens), before, "from the scores before")

    def _model(self) -> KnownModel:
        if self._given is None:
            raise _NotTried("the model is not given")
        return self._given


def _follow(came: Sequence[float], expected: Sequence[float], relation: str) -> str:
    """Return the distance of log-probabilities; raise _Wrong if rounding does not explain it."""
    distance = _distance(came, expected)
    if not distance <= _ROUNDING:
        raise _Wrong(f"{distance:.4f} nats {relation} on average; at most {_ROUNDING} is rounding")
    return f"{distance:.2g} nats {relation} on average"


def _distance(first: Sequence[float], second: Sequence[float]) -> float:
    return sum(abs(one - other) for one, other in zip(first, second, strict=True)) / len(first)
