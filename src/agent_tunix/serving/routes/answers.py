"""Answers in the forms of OpenAI's API."""

import math
import time
from collections.abc import Sequence
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.sampling.requests import Alternatives, TokenReply

# Stands for a log-probability of minus infinity, as in OpenAI's API.
_LEAST_LOGP = -9999.0
_STARTED = int(time.time())


class ReplyAnswer(TypedDict):
    """Replies; `system_fingerprint` names the version of the policy."""

    id: str
    object: Literal["chat.completion", "text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[dict[str, Any]]
    usage: dict[str, Any]
    prompt_token_ids: NotRequired[list[int]]


class ServedModel(TypedDict):
    """The policy, or an adapter of it."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    parent: str | None
    max_model_len: int


class ServedModels(TypedDict):
    """The policy and its adapters."""

    object: Literal["list"]
    data: list[ServedModel]


def usage_of(prompts: Sequence[Sequence[int]], replies: Sequence[TokenReply]) -> dict[str, Any]:
    """Return the numbers of tokens; a prompt with several replies counts once."""
    num_prompt, num_sampled = sum(map(len, prompts)), sum(len(reply.tokens) for reply in replies)
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_sampled,
        "total_tokens": num_prompt + num_sampled,
        "prompt_tokens_details": {"cached_tokens": min(sum(reply.num_cached for reply in replies), num_prompt)},
    }


def model_of(name: str, parent: str | None, max_context: int) -> ServedModel:
    """Return the description of the policy or of an adapter."""
    return {
        "id": name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "agent_tunix",
        "parent": parent,
        "max_model_len": max_context,
    }


def chat_logprobs(tokenizer: Tokenizer, reply: TokenReply) -> dict[str, Any]:
    """Return the log-probabilities of a reply's tokens in the form for conversations."""
    pieces = _Pieces(tokenizer, reply.tokens, reply.alternatives)
    content = []
    for token, logp, others in zip(
        reply.tokens, reply.logps, reply.alternatives or ((),) * len(reply.tokens), strict=True
    ):
        top = [pieces.entry(other, other_logp) for other, other_logp in others]
        content.append({**pieces.entry(token, logp), "top_logprobs": top})
    return {"content": content, "refusal": None}


def completion_logprobs(
    tokenizer: Tokenizer, reply: TokenReply, prompt: Sequence[int] = (), num_alternatives: int = 0, offset: int = 0
) -> dict[str, Any]:
    """Return the log-probabilities of a text's tokens in the form for continuations.

    Args:
        tokenizer: Makes the text of each token.
        reply: The continuation.
        prompt: Tokens that the text repeats before it.
        num_alternatives: Likeliest tokens to report.
        offset: Characters before the text.
    """
    tokens = [*prompt, *reply.tokens]
    logps = [
        None if logp is None or math.isnan(logp) else max(logp, _LEAST_LOGP)
        for logp in (*(reply.prompt_logps if prompt else ()), *reply.logps)
    ]
    alternatives = [*(reply.prompt_alternatives if prompt else ()), *reply.alternatives]
    pieces = _Pieces(tokenizer, tokens, alternatives)
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(pieces.texts[token])
    top: list[dict[str, float] | None] | None = None
    if num_alternatives:
        top = [
            None if logp is None else pieces.table([*others, (token, logp)])
            for token, logp, others in zip(tokens, logps, alternatives, strict=True)
        ]
    names = [pieces.name(token) for token in tokens]
    return {"tokens": names, "token_logprobs": logps, "top_logprobs": top, "text_offset": offsets}


class _Pieces:
    """The texts of tokens, each made once."""

    def __init__(self, tokenizer: Tokenizer, tokens: Sequence[int], alternatives: Sequence[Alternatives]) -> None:
        ids = sorted({*tokens, *(token for place in alternatives for token, _ in place)})
        self.texts = dict(zip(ids, tokenizer.pieces(ids), strict=True))

    def name(self, token: int) -> str:
        """Return the text of a token, or a name for a part of a character."""
        text = self.texts[token]
        return f"token_id:{token}" if "\ufffd" in text else text

    def entry(self, token: int, logp: float) -> dict[str, Any]:
        """Return a token as conversations have it."""
        text = self.texts[token]
        encoded = None if "\ufffd" in text else list(text.encode("utf-8", "replace"))
        known = _LEAST_LOGP if math.isnan(logp) else max(logp, _LEAST_LOGP)  # clients read a number
        return {"token": self.name(token), "logprob": known, "bytes": encoded}

    def table(self, pairs: Sequence[tuple[int, float]]) -> dict[str, float]:
        """Return log-probabilities by text; of tokens with the same text, that of the first."""
        table: dict[str, float] = {}
        for token, logp in pairs:
            table.setdefault(self.name(token), max(logp, _LEAST_LOGP))
        return table
