"""Parsing of an endpoint's answers: replies, usage and errors, in all usual forms."""

import email.utils
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.rewards.judges.accounts import Usage
from agent_tunix.rewards.judges.faults import JudgeFault, MalformedVerdict
from agent_tunix.rewards.judges.prompts import Message

BYTES_A_TOKEN = 3  # low, so that estimates are high


def estimate_usage(messages: Sequence[Message], schema: dict[str, Any] | None, max_tokens: int) -> Usage:
    """Return an upper estimate of a request's usage, from the length of its text."""
    size = sum(len(message["content"].encode("utf-8", "replace")) for message in messages)
    size += len(json.dumps(schema)) if schema else 0
    return Usage(size // BYTES_A_TOKEN + 8 * len(messages), max_tokens, is_estimated=True)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of `Retry-After`, which holds seconds or a date."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def error_of(text: str) -> tuple[str, str, str]:
    """Return message, parameter and code of an error."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return shorten(text), "", ""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    if not isinstance(error, dict):
        return shorten(str(error)), "", ""
    message = error.get("message") or error.get("detail") or text
    return shorten(str(message)), str(error.get("param") or ""), str(error.get("code") or error.get("type") or "")


def unsupported_parameter(message: str, parameter: str) -> str | None:
    """Return the optional parameter that an error is about; None if there is none."""
    text = f"{parameter} {message}".casefold()
    if any(word in text for word in ("response_format", "json_schema", "json_object", "structured output")):
        return "response_format"
    if "max_completion_tokens" in text:
        return "max_tokens"
    return next((name for name in ("temperature", "seed") if name in text), None)


def usage_of(answer: dict[str, Any], messages: Sequence[Message]) -> Usage:
    """Return the usage of a reply as the endpoint reports it, or else an estimate."""
    given = answer.get("usage")
    if isinstance(given, dict):
        prompt, completion = given.get("prompt_tokens"), given.get("completion_tokens")
        details = given.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else 0
        if _is_count(prompt) and _is_count(completion):
            return Usage(int(prompt or 0), int(completion or 0), int(cached or 0) if _is_count(cached) else 0)
    reply = json.dumps(answer.get("choices"))
    return estimate_usage(messages, None, len(reply) // BYTES_A_TOKEN)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12


def reply_of(answer: dict[str, Any]) -> str:
    """Return the text of the reply.

    Raises:
        JudgeFault: The model refused, or its reply was cut off or withheld.
        MalformedVerdict: There is no reply.
    """
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise MalformedVerdict("the endpoint's answer has no choices")
    if message.get("refusal"):
        raise JudgeFault(f"the judge refused: {shorten(str(message['refusal']))}")
    content = message.get("content")
    if choice.get("finish_reason") == "length":
        raise JudgeFault("the judge's reply was cut off; raise `max_tokens`")
    if choice.get("finish_reason") == "content_filter":
        raise JudgeFault("the endpoint's content filter withheld the reply")
    if not isinstance(content, str) or not content.strip():
        raise MalformedVerdict("the judge's reply is empty")
    return content


def shorten(text: str) -> str:
    """Return at most 300 characters on one line."""
    text = " ".join(text.encode("utf-8", "replace").decode().split())
    return text if len(text) <= 300 else text[:300] + "…"
