"""Checks of what an engine replies: nothing trains that contradicts its request."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import httpx

from agent_tunix.engines.http import call
from agent_tunix.errors import EngineError, RequestRefusedError
from agent_tunix.sampling.requests import TokenReply, TokenRequest

# Version of a reply whose engine does not tell which weights it has.
UNKNOWN_VERSION = -1
# Engines write this in place of a log-probability that is lower or not finite, as OpenAI's API does.
_FLOOR = -9999.0


@contextlib.contextmanager
def reading(client: httpx.AsyncClient) -> Iterator[None]:
    """Raise EngineError where the block meets an answer of another form than it reads."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise _mismatch(client, f"{type(error).__name__}: {error}, in a form that is not the engine's") from error


def make_reply(
    client: httpx.AsyncClient,
    request: TokenRequest,
    tokens: Any,
    logps: Sequence[Any],
    finish_reason: Any,
    *,
    vocab_size: int | None,
    version: int = UNKNOWN_VERSION,
    num_cached: int = 0,
) -> TokenReply:
    """Return what an engine has sampled as a reply.

    Args:
        client: Client of the engine.
        request: The request.
        tokens: Sampled ids.
        logps: Their log-probabilities. One that is missing or not finite becomes NaN.
        finish_reason: `stop` or `length`.
        vocab_size: Number of the model's tokens; None if it is not known.
        version: Version of the weights that the engine reports.
        num_cached: Tokens of the prompt that it had read before.

    Raises:
        EngineError: The ids are none of this model or too many, the numbers of ids and log-probabilities differ, or
            the reply has not ended as replies do.
    """
    if finish_reason == "abort":
        raise EngineError(f"{client.base_url} aborted a reply after {len(logps)} tokens", code="engine_aborted")
    if finish_reason not in ("stop", "length"):
        raise _mismatch(client, f"the reason {finish_reason!r:.80} for its end")
    check_ids(client, tokens, vocab_size)
    if not 0 < len(tokens) <= request.max_tokens:
        raise _mismatch(client, f"{len(tokens)} tokens where 1 to {request.max_tokens} were asked for")
    if len(logps) != len(tokens):
        raise _mismatch(client, f"{len(logps)} log-probabilities of {len(tokens)} tokens")
    return TokenReply(tuple(tokens), tuple(map(read_logp, logps)), finish_reason, version, num_cached)


def check_prompt(client: httpx.AsyncClient, prompt: Sequence[int], ids: Any) -> None:
    """Raise EngineError if an engine has read other ids than it was sent."""
    if not isinstance(ids, list) or tuple(ids) != tuple(prompt):
        arrived = f"{len(ids)} ids" if isinstance(ids, list) else "none"
        raise _mismatch(client, f"other ids of the prompt: {len(prompt)} were sent, and it read {arrived}")


def check_ids(client: httpx.AsyncClient, ids: Any, vocab_size: int | None) -> None:
    """Raise EngineError if something is not a list of ids of the model."""
    if not isinstance(ids, list) or not all(type(one) is int and one >= 0 for one in ids):
        raise _mismatch(client, f"no list of token ids, but {ids!r:.80}")
    if vocab_size is not None and max(ids, default=0) >= vocab_size:
        raise _mismatch(client, f"the token {max(ids)}, but the model has {vocab_size}: it serves another model")


def check_model(client: httpx.AsyncClient, model: str, name: Any) -> None:
    """Raise EngineError if a reply names another model than its request."""
    if name != model:
        raise EngineError(
            f"{client.base_url} must reply with the model {model}, but the reply is of {name!r:.80}; see whether the "
            "engine falls back to its base where an adapter is missing",
            code="engine_other_model",
        )


def read_logp(value: Any) -> float:
    """Return a log-probability; NaN for one that is missing, not finite, or floored by the engine."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return math.nan
    return math.nan if value <= _FLOOR else float(value)


def refuse_unsupported(request: TokenRequest, kind: str) -> None:
    """Refuse what an engine of another maker cannot answer as the trainer needs it.

    Its log-probabilities are of what is left after filters, and so would not be those of the training loss.

    Raises:
        RequestRefusedError: The request has a filter, or asks for other log-probabilities than of sampled tokens.
    """
    filters = {"top_k": request.top_k is not None, "top_p": request.top_p < 1, "min_p": request.min_p > 0}
    names = [name for name, is_set in filters.items() if is_set and request.temperature > 0]
    if names:
        raise RequestRefusedError(
            f"engine={kind} requires sampling without {', '.join(names)}: its log-probabilities are of the tokens that "
            "these keep, and those of the training loss are of all; remove them, or use engine=agent_tunix",
            code="engine_filters",
        )
    refuse_further_logps(request, kind)


def refuse_further_logps(request: TokenRequest, kind: str) -> None:
    """Raise RequestRefusedError if a request asks for log-probabilities besides those of the sampled tokens."""
    if request.num_alternatives or request.with_prompt_logps:
        raise RequestRefusedError(
            f"engine={kind} reports the log-probabilities of sampled tokens only; ask without top_logprobs and echo",
            code="engine_logprobs",
        )


async def read_models(client: httpx.AsyncClient) -> tuple[tuple[str, ...], int | None]:
    """Return the names of an engine's models, the base first, and the maximum tokens of its context."""
    answer = await call(client, "GET", "/v1/models")
    with reading(client):
        models = sorted(answer["data"], key=lambda model: model.get("parent") is not None)
        return tuple(str(model["id"]) for model in models), models[0].get("max_model_len")


def _mismatch(client: httpx.AsyncClient, arrived: str) -> EngineError:
    return EngineError(f"{client.base_url} answered with {arrived}", code="engine_answer")
