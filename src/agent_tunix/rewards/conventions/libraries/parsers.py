"""Parsers of verifiers, for rubric functions to read a completion with: `parser.parse_answer(completion)`."""

import re
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

Extract = Callable[[str], str]


def _as_it_is(text: str) -> str:
    return text


class Parser:
    """Parser that returns the text of the last answer, passed through `extract_fn`."""

    def __init__(self, extract_fn: Extract = _as_it_is) -> None:
        self.extract_fn = extract_fn

    def parse(self, text: str) -> Any:
        """Return the parsed text."""
        return self.extract_fn(text)

    def parse_answer(self, completion: Any) -> str | None:
        """Return the parsed text of a completion or, for messages, of the assistant's last one; None without one."""
        if isinstance(completion, str):
            return self.parse(completion)  # type: ignore[no-any-return]
        replies = self.get_assistant_messages(completion)
        return self.parse(_text_of(replies[-1])) if replies else None

    def get_assistant_messages(self, completion: Any) -> list[Any]:
        """Return the messages by the assistant."""
        return _of_role(completion, "assistant")

    def get_system_messages(self, completion: Any) -> list[Any]:
        """Return the system messages."""
        return _of_role(completion, "system")

    def get_user_messages(self, completion: Any) -> list[Any]:
        """Return the messages by the user."""
        return _of_role(completion, "user")

    def get_tool_messages(self, completion: Any) -> list[Any]:
        """Return the messages by tools."""
        return _of_role(completion, "tool")

    def get_format_reward_func(self) -> Callable[..., float]:
        """Return a rubric function of the format: the mean score of the assistant's messages; 0 without one."""

        def format_reward_func(completion: Any, **kwargs: Any) -> float:
            scores = [self._score_form(_text_of(message)) for message in self.get_assistant_messages(completion)]
            return sum(scores) / len(scores) if scores else 0.0

        return format_reward_func

    def _score_form(self, text: str) -> float:
        return 1.0


class ThinkParser(Parser):
    """Parser of the text after the last `</think>`; "" without one."""

    def parse(self, text: str) -> Any:
        """Return the parsed text after the last `</think>`."""
        return self.extract_fn(text.rpartition("</think>")[2].strip() if "</think>" in text else "")

    def _score_form(self, text: str) -> float:
        is_formed = text.strip().startswith("<think>") and text.count("<think>") == text.count("</think>") == 1
        return float(is_formed and bool(text.rpartition("</think>")[2]))


class MaybeThinkParser(Parser):
    """Parser of the text after the last `</think>`, or of the whole text without one."""

    def parse(self, text: str) -> Any:
        """Return the parsed text after the last `</think>`, or the whole text."""
        return self.extract_fn(text.rpartition("</think>")[2].strip())


class XMLParser(Parser):
    """Parser of tagged fields.

    Args:
        fields: Names of tags, in order. A tuple names alternatives, the first of which `format` writes.
        answer_field: Tag of the answer.
        extract_fn: Kept for subclasses.
    """

    def __init__(
        self, fields: Sequence[str | tuple[str, ...]], answer_field: str = "answer", extract_fn: Extract = _as_it_is
    ) -> None:
        super().__init__(extract_fn)
        self.answer_field = answer_field
        self._fields = [(field,) if isinstance(field, str) else tuple(field) for field in fields]
        names = self.get_fields()
        if len({*names}) < len(names):
            raise ValueError(f"the fields of an XMLParser must be unique, but are {', '.join(names)}")

    def parse(self, text: str, strip: bool = True, last: bool = False) -> Any:
        """Return an object with an attribute for each tag: its first or last text, or None without one."""
        fields: dict[str, str | None] = {}
        for tag in (tag for field in self._fields for tag in field):
            texts = re.findall(rf"<{tag}>\s*(.*?)\s*</{tag}>", text, re.DOTALL)
            text_of_tag = texts[-1 if last else 0] if texts else None
            fields[tag] = text_of_tag.strip() if strip and text_of_tag is not None else text_of_tag
        return SimpleNamespace(**fields)

    def parse_answer(self, completion: Any) -> str | None:
        """Return the answer of a completion or, for messages, of the assistant's last one that has an answer."""
        if isinstance(completion, str):
            return getattr(self.parse(completion, last=True), self.answer_field, None)
        parsed_messages = (self.parse(_text_of(one)) for one in reversed(self.get_assistant_messages(completion)))
        answers = (getattr(one, self.answer_field, None) for one in parsed_messages)
        return next((answer for answer in answers if answer is not None), None)

    def get_fields(self) -> list[str]:
        """Return the names of the fields."""
        return [field[0] for field in self._fields]

    def get_format_str(self) -> str:
        """Return the expected format as text."""
        alternatives = [" | ".join(field) if len(field) == 1 else f"[ {' | '.join(field)} ]" for field in self._fields]
        return "\n".join(f"<{name}>\n...\n</{name}>" for name in alternatives)

    def format(self, **values: str) -> str:
        """Return the values in their tags; raise ValueError if a field has no value."""
        parts = []
        for field in self._fields:
            value = next((values[tag] for tag in field if tag in values), None)
            if value is None:
                raise ValueError(f"the field {field[0]!r} requires a value")
            parts.append(f"<{field[0]}>\n{value}\n</{field[0]}>")
        return "\n".join(parts)

    def _score_form(self, text: str) -> float:
        """Return 0.4 × the share of fields that occur (0 if none is complete) + 0.2 each for spacing, start and end."""
        values = vars(self.parse(text))
        occurring = sum(
            any(values[tag] is not None or f"<{tag}>" in text or f"</{tag}>" in text for tag in field)
            for field in self._fields
        )
        score = 0.2  # spacing: a tag that parses stripped parses unstripped too
        if any(value is not None for value in values.values()):
            score += 0.4 * occurring / len(self._fields)
        stripped = text.strip()
        score += 0.2 * any(stripped.startswith(f"<{tag}>") for tag in self._fields[0])
        return score + 0.2 * any(stripped.endswith(f"</{tag}>") for tag in self._fields[-1])


def _field(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)


def _of_role(completion: Any, role: str) -> list[Any]:
    return [message for message in completion if _field(message, "role") == role]


def _text_of(message: Any) -> str:
    """Return the text of a message, whose content may be a list of parts."""
    content = _field(message, "content") or ""
    if isinstance(content, str):
        return content
    parts = [part for part in content if _field(part, "type") in ("text", None)]
    return " ".join(text for part in parts if isinstance(text := _field(part, "text"), str)).strip()
