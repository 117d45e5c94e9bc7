"""Results of tool calls and of turns."""

import dataclasses
import enum
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# A chat message in OpenAI's shape: `role`, `content`, and `tool_calls` or `tool_call_id`.
Message = dict[str, Any]

DEFAULT_MAX_RESULT_CHARS = 16_000

# Fields of an observation of OpenEnv that are not for the policy.
OUTCOME_FIELDS = frozenset({"reward", "done", "metadata"})
# Fields of a result whose observation is for the policy.
_STEP_FIELDS = ("observation", "reward", "done")


class CallOutcome(enum.StrEnum):
    """Outcome of one tool call. The model is told any outcome, and the episode continues."""

    OK = "ok"
    TOO_LONG = "too_long"
    MALFORMED = "malformed"
    UNKNOWN_TOOL = "unknown_tool"
    BAD_ARGUMENTS = "bad_arguments"
    TOOL_ERROR = "tool_error"


@dataclass(frozen=True, slots=True)
class CallResult:
    """Result of one tool call.

    Attributes:
        text: Text for the model: the result, or what was wrong.
        outcome: `TOO_LONG` if the tool succeeded and its result was cut.
        seconds: Wall time of the tool; 0 if it was not called.
        detail: Place of a tool's error in the user's code, for a person.
    """

    text: str
    outcome: CallOutcome = CallOutcome.OK
    seconds: float = 0.0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply of an environment to a turn without tool calls.

    Attributes:
        text: Text for the model; None if the environment has nothing to say.
        done: True if the episode ends.
    """

    text: str | None = None
    done: bool = False


def to_text(value: Any, hidden: Collection[str] = ()) -> str:
    """Return a tool's result or an observation as text for the model: strings unchanged, structures as JSON.

    A result of OpenEnv is serialised as by its server: the observation, without its reward, its end and its metadata.

    Args:
        value: The result.
        hidden: Fields of a structure to leave out.
    """
    return str.__str__(_to_text(value, hidden))  # a plain str, because methods of a subclass may do anything


def _to_text(value: Any, hidden: Collection[str]) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, type | Mapping) and all(hasattr(value, name) for name in _STEP_FIELDS):
        return to_text(value.observation, hidden)
    kind = type(value)
    names = {*(getattr(kind, "model_fields", None) or getattr(kind, "__dataclass_fields__", None) or ())}
    hidden = {*hidden, *(OUTCOME_FIELDS if names >= OUTCOME_FIELDS else ())}
    if hasattr(value, "model_dump_json"):
        return str(value.model_dump_json(exclude=hidden) if hidden else value.model_dump_json())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Iterator):
        value = list(value)
    if isinstance(value, Mapping):
        value = {name: item for name, item in value.items() if name not in hidden}
    if isinstance(value, Mapping | list | tuple | bool):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def to_unicode(text: str) -> str:
    r"""Return the text with � for lone surrogates, which cannot be encoded; a model can write them as `"\ud800"`."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cut(text: str, max_chars: int) -> str:
    """Return a text of at most about `max_chars` characters in valid Unicode; a cut text says so at its end."""
    text = to_unicode(text)
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}\n[cut: the result has {len(text):,} characters, of which {max_chars:,} are shown]"
