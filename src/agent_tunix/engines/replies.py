"""Checks of requests to an engine and of what it replies: nothing trains that contradicts its request."""

import math
from collections.abc import Sequence
from typing import Any

from agent_tunix.errors import RequestRefusedError
from agent_tunix.sampling.requests import TokenReply, TokenRequest

# Version of a reply whose engine does not tell which weights it has.
UNKNOWN_VERSION = -1
# Engines write this in place of a log-probability that is lower, as OpenAI's API does.
_FLOOR = -9999.0


class AbortedReplyError(ValueError):
    """An engine gave up a reply."""

    code = "engine_aborted"


def make_reply(
    request: TokenRequest,
    tokens: Any,
    logps: Sequence[Any],
    finish_reason: Any,
    vocab_size: int | None,
    *,
    version: int = UNKNOWN_VERSION,
    num_cached: int = 0,
) -> TokenReply:
    """Return what an engine has sampled as a reply. A log-probability that is missing or not finite becomes NaN.

    Raises:
        ValueError: The ids are none of this model, too few or too many, the numbers of ids and log-probabilities
            differ, or the reply has not ended as replies do.
        AbortedReplyError: The engine gave up the reply.
    """
    if finish_reason == "abort":
        raise AbortedReplyError(f"the engine gave up a reply after {len(logps)} tokens")
    if finish_reason not in ("stop", "length"):
        raise ValueError(f"the reply ended for the reason {finish_reason!r:.80}")
    if not isinstance(tokens, list) or not all(type(one) is int and one >= 0 for one in tokens):
        raise ValueError(f"there is no list of token ids, but {tokens!r:.80}")
    if vocab_size is not None and max(tokens, default=0) >= vocab_size:
        raise ValueError(f"the token {max(tokens)} came, but the model has {vocab_size}: it serves another model")
    if not 0 < len(tokens) <= request.max_tokens:
        raise ValueError(f"{len(tokens)} tokens came where 1 to {request.max_tokens} were asked for")
    if len(logps) != len(tokens):
        raise ValueError(f"there are {len(logps)} log-probabilities of {len(tokens)} tokens")
    return TokenReply(tuple(tokens), tuple(map(read_logp, logps)), finish_reason, version, num_cached)


def check_prompt(prompt: Sequence[int], ids: Any) -> None:
    """Raise ValueError if an engine has read other ids than it was sent."""
    if not isinstance(ids, list) or tuple(ids) != tuple(prompt):
        raise ValueError(f"{len(prompt)} ids of a prompt were sent, but the engine read others: {ids!r:.80}")


def read_logp(value: Any) -> float:
    """Return a log-probability; NaN for one that is missing, not finite, or floored by the engine."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not _FLOOR < value < math.inf:
        return math.nan
    return float(value)


def refuse_unsupported(request: TokenRequest, kind: str, *, has_filters: bool = False) -> None:
    """Raise RequestRefusedError if an engine cannot report a request's log-probabilities as the training loss has them.

    With `has_filters`, its log-probabilities are of all tokens, not of those that filters keep.
    """
    filters = {"top_k": request.top_k is not None, "top_p": request.top_p < 1, "min_p": request.min_p > 0}
    names = [name for name, is_set in filters.items() if is_set and request.temperature > 0 and not has_filters]
    if names:
        raise RequestRefusedError(
            f"engine={kind} requires sampling without {', '.join(names)}: its log-probabilities are of the tokens that "
            "these keep, and those of the training loss are of all; remove them, or use engine=agent_tunix",
            code="engine_filters",
        )
    if request.num_alternatives or request.with_prompt_logps:
        raise RequestRefusedError(
            f"engine={kind} reports the log-probabilities of sampled tokens only; ask without top_logprobs and echo",
            code="engine_logprobs",
        )
