"""A dataset's row as an example: the problem put to the model, and everything a reward may ask about it."""

import decimal
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agent_tunix.config.schema import DataConfig
from agent_tunix.data.dropped import RowError

REFERENCE_MARK = "####"
ROLES = ("system", "user", "assistant", "tool")
# Whom the model answers.
ASKING_ROLES = ("user", "tool")


class Row(NamedTuple):
    """One row as it was read.

    Attributes:
        number: Its place in the source, from 1; the line number of a file.
        columns: Its fields by name.
    """

    number: int
    columns: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Example:
    """One problem with its reference.

    Attributes:
        prompt: The problem put to the model, as people and rewards see it; of a conversation, the user's last message.
        columns: Every column of the row, untouched, and `answer`, the stripped reference, where there is one; in a
            marked dataset also `solution`, the worked solution before the mark, unless the row has a column of that
            name; in a mixture also `data_source`, the name of the set.
        index: The row's number in its source, from 1; the line number of a file.
        messages: The conversation that the model answers, `{"role": …, "content": …}` each, and other fields that are
            text; the last one is the user's or a tool's. None where the prompt column holds text.
    """

    prompt: str
    columns: Mapping[str, Any]
    index: int
    messages: tuple[Mapping[str, str], ...] | None = None


def is_marked(rows: Iterable[Row], answer_column: str | None) -> bool:
    """Whether at least half of the answers are written as GSM8K's are, `worked solution #### reference`.

    One with the mark alone may be a heading, and one without it a damaged row. Rows without an answer do not count.
    """
    answers = [None if answer_column is None else row.columns.get(answer_column) for row in rows]
    given = [answer for answer in answers if answer is not None]
    marked = sum(isinstance(answer, str) and REFERENCE_MARK in answer for answer in given)
    return marked > 0 and 2 * marked >= len(given)


def rename_columns(row: Row, names: Mapping[str, str]) -> Row:
    """The row with some columns under other names.

    Args:
        row: The row.
        names: New name → old name.

    Raises:
        RowError: There is no column of the old name, or another one has the new name.
    """
    if not names:
        return row
    columns = {name: value for name, value in row.columns.items() if name not in names.values()}
    for new, old in names.items():
        if old not in row.columns:
            raise _no_column(row, old)
        if new in columns:
            raise RowError(f"column {old!r} cannot become {new!r}, which the row has too")
        columns[new] = row.columns[old]
    return Row(row.number, columns)


def make_example(row: Row, data: DataConfig, *, marked: bool) -> Example:
    """The example that a row holds.

    Args:
        row: The row, its columns under the names that the run knows.
        data: Names the columns of the problem and of the answer.
        marked: Whether answers are written `worked solution #### reference`. The reference is what follows the last
            mark, and an answer without one is malformed. Otherwise the whole answer is the reference.

    Raises:
        RowError: A column is missing, is not what it must be or is empty, or the answer has no mark or nothing after
            it.
    """
    messages = None
    if isinstance(row.columns.get(data.prompt_column), list | tuple):
        messages = read_conversation(row.columns[data.prompt_column], data.prompt_column)
    prompt = _text(row, data.prompt_column) if messages is None else _question(messages)
    columns = dict(row.columns)
    if data.answer_column is not None:
        answer = _text(row, data.answer_column, number=True)
        if marked:
            solution, mark, answer = answer.rpartition(REFERENCE_MARK)
            if not mark:
                raise RowError(f"no {REFERENCE_MARK} in column {data.answer_column!r}")
            if not answer.strip():
                raise RowError(f"nothing after {REFERENCE_MARK} in column {data.answer_column!r}")
            columns.setdefault("solution", solution.strip())
        columns["answer"] = answer.strip()
    return Example(prompt, columns, row.number, messages)


def read_conversation(messages: Iterable[Any], column: str) -> tuple[dict[str, str], ...]:
    """The chat messages of a prompt column: `role`, `content` and what other fields hold text, as `tool_call_id`.

    Args:
        messages: What the column holds.
        column: Its name, for messages.

    Raises:
        RowError: They are not messages, one has no text or an unknown role or calls tools, or the last one is not the
            user's or a tool's.
    """
    conversation = []
    for place, message in enumerate(messages, start=1):
        at = f"message {place}"
        if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
            raise RowError(f"column {column!r} holds a message without role and content", f"{at} is {message!r:.80}")
        role, content = message["role"], message["content"]
        if role not in ROLES:
            raise RowError(f"column {column!r} holds a message of an unknown role", f"{at}: {role!r:.80}")
        if not isinstance(content, str):
            raise RowError(f"column {column!r} holds a message that is not text", f"{at}: {type(content).__name__}")
        if message.get("tool_calls"):
            raise RowError(f"column {column!r} holds a message that calls tools", at)
        conversation.append({field: value for field, value in message.items() if isinstance(value, str)})
    if not conversation:
        raise RowError(f"column {column!r} is empty")
    if conversation[-1]["role"] not in ASKING_ROLES:
        raise RowError(f"column {column!r} does not end with the user's message", f"but {conversation[-1]['role']}'s")
    if not conversation[-1]["content"].strip():
        raise RowError(f"column {column!r} ends with an empty message")
    return tuple(conversation)


def _question(messages: Sequence[Mapping[str, str]]) -> str:
    """The last message of the user, or the last one where there is none."""
    asked = [message["content"] for message in messages if message["role"] == "user" and message["content"].strip()]
    return asked[-1] if asked else messages[-1]["content"]


def number_text(value: float | decimal.Decimal) -> str:
    """A finite number as a reference: `72` of 72.0, `0.1` of 0.1."""
    if not isinstance(value, int) and -(2**53) < value < 2**53 and value == int(value):
        return str(int(value))
    return str(value)


def _text(row: Row, column: str, *, number: bool = False) -> str:
    if column not in row.columns:
        raise _no_column(row, column)
    value = row.columns[column]
    if number and isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise RowError(f"column {column!r} is no finite number", f"it is {value}")
        return number_text(value)
    if not isinstance(value, str):
        raise RowError(f"column {column!r} is not text", f"it is {type(value).__name__}")
    if not value.strip():
        raise RowError(f"column {column!r} is empty")
    return value


def _no_column(row: Row, column: str) -> RowError:
    return RowError(f"no column {column!r}", f"it has {', '.join(map(repr, row.columns)) or 'none'}")
