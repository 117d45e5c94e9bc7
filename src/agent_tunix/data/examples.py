"""A dataset's row as an example: the problem put to the model, and the columns that rewards may use."""

import dataclasses
import decimal
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agent_tunix.config.schema import DataConfig
from agent_tunix.data.dropped import RowError
from agent_tunix.data.pair_layout import fit_pairs, with_shared_prompt
from agent_tunix.data.tool_schemas import from_swift_roles, read_tool_call, read_tools
from agent_tunix.rewards.answers.numbers import number_text

REFERENCE_MARK = "####"
# Column with the text before the mark.
WORKED_SOLUTION = "worked_solution"
ROLES = ("system", "user", "assistant", "tool")
_MISSING = object()
# Roles that the model answers.
ASKING_ROLES = ("user", "tool")


class Row(NamedTuple):
    """One row as it was read."""

    number: int  # position in the source, from 1; for a file, the line number
    columns: dict[str, Any]  # values by column name
    # True if the source writes null for each field that another row's nested value has, as Arrow does.
    is_padded: bool = False


@dataclass(frozen=True, slots=True)
class Example:
    """One problem with its reference."""

    prompt: str  # the problem as people and rewards see it; for a conversation, the user's last message
    # All columns of the row, unchanged. `answer` is added if there is a reference; its text is stripped. In a dataset
    # with GSM8K's mark, `worked_solution` is the text before the mark, unless the row has that column. In a mixture,
    # `data_source` is the name of the set.
    columns: Mapping[str, Any]
    index: int  # number of the row in its source, from 1; for a file, the line number
    # The conversation that the model answers: `{"role": …, "content": …}`, other text fields and `tool_calls`. The last
    # message is the user's or a tool's. None if the prompt column holds text.
    messages: tuple[Mapping[str, Any], ...] | None = None
    is_padded: bool = False  # see `Row`

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools that the row declares, as OpenAI's objects; raises RowError if they cannot be read."""
        return read_tools(self.columns, is_padded=self.is_padded)


def is_marked(rows: Iterable[Row], answer_column: str | None) -> bool:
    """Return True if at least half of the answers have GSM8K's form, `worked solution #### reference`.

    If fewer have it, `####` in an answer may just be a heading. Otherwise, an answer without `####` may be damaged.
    Rows without an answer do not count.
    """
    answers = [None if answer_column is None else find_column(row.columns, answer_column) for row in rows]
    present = [answer for answer in answers if answer is not None]
    num_marked = sum(isinstance(answer, str) and REFERENCE_MARK in answer for answer in present)
    return num_marked > 0 and 2 * num_marked >= len(present)


def find_column(columns: Mapping[str, Any], name: str, missing: Any = None) -> Any:
    """Return the value of a column; a dotted name may mean a nested one, such as `reward_model.ground_truth`.

    `missing` is returned if there is no such column.
    """
    if name in columns:
        return columns[name]
    outer, dot, inner = name.partition(".")
    nested = columns.get(outer)
    if not dot or not isinstance(nested, Mapping):
        return missing
    return find_column(nested, inner, missing)


def rename_columns(row: Row, names: Mapping[str, str]) -> Row:
    """Return the row with some columns renamed.

    Args:
        row: Row to change.
        names: New name → old name. A nested column has a dotted name; it is copied and stays in its place.

    Raises:
        RowError: No column has the old name, or another column has the new one.
    """
    if not names:
        return row
    columns = {name: value for name, value in row.columns.items() if name not in names.values()}
    for new, old in names.items():
        value = find_column(row.columns, old, _MISSING)
        if value is _MISSING:
            raise _no_column(row, old)
        if new in columns:
            raise RowError(f"column {old!r} cannot be renamed to {new!r}, because the row already has that column")
        columns[new] = value
    return row._replace(columns=columns)


def make_example(row: Row, data: DataConfig, *, marked: bool) -> Example:
    """Return the example of a row.

    Args:
        row: Row with its columns renamed.
        data: Names the columns of the problem and the answer.
        marked: True if answers have the form `worked solution #### reference`. The reference is the text after the last
            mark, and an answer without a mark is malformed. Otherwise the whole answer is the reference.

    Raises:
        RowError: A column is missing, empty or of the wrong type, or the answer has no mark or nothing after it.
    """
    row = row._replace(columns=with_shared_prompt(row.columns, data.prompt_column))
    names = [name for name in (data.prompt_column, data.answer_column) if name is not None]
    if missing := [name for name in names if find_column(row.columns, name, _MISSING) is _MISSING]:
        raise _no_column(row, *missing)
    messages = None
    if isinstance(conversation := find_column(row.columns, data.prompt_column), list | tuple):
        messages = read_conversation(
            conversation, data.prompt_column, is_padded=row.is_padded, may_be_empty=data.empty_prompts
        )
    prompt = _text(row, data.prompt_column) if messages is None else question_of(messages)
    columns = dict(row.columns)
    if data.answer_column is not None:
        answer = _reference(row, data.answer_column)
        if marked:
            answer = _text(row, data.answer_column) if not is_number(answer) else number_text(answer)
            solution, mark, answer = answer.rpartition(REFERENCE_MARK)
            if not mark:
                raise RowError(f"no {REFERENCE_MARK} in column {data.answer_column!r}")
            if not answer.strip():
                raise RowError(f"nothing after {REFERENCE_MARK} in column {data.answer_column!r}")
            columns.setdefault(WORKED_SOLUTION, solution.strip())
        columns["answer"] = answer.strip() if isinstance(answer, str) else answer
    return Example(prompt, columns, row.number, messages, row.is_padded)


def read_conversation(
    messages: Iterable[Any], column: str, *, is_padded: bool = False, may_be_empty: bool = False
) -> tuple[dict[str, Any], ...]:
    """Return the chat messages of a prompt column: `role`, `content`, other text fields, and `tool_calls`.

    Args:
        messages: Value of the column.
        column: Name of the column, for error messages.
        is_padded: True if nested values may have nulls that their author did not write; see `Row`.
        may_be_empty: True if the last message may have no text.

    Raises:
        RowError: The value is not a list of messages, a message has no text or an unknown role, a tool call cannot be
            read, or the last one is not the user's or a tool's.
    """
    conversation: list[dict[str, Any]] = []
    for place, message in enumerate(from_swift_roles(messages), start=1):
        at = f"message {place}"
        if isinstance(message, Mapping) and message.get("tool_calls") and message.get("content") is None:
            message = {**message, "content": ""}
        if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
            raise RowError(f"column {column!r} has a message without role and content", f"{at} is {message!r:.80}")
        role, content = message["role"], message["content"]
        if role not in ROLES:
            raise RowError(f"column {column!r} has a message with an unknown role", f"{at}: {role!r:.80}")
        if not isinstance(content, str):
            raise RowError(f"column {column!r} has a message that is not text", f"{at}: {type(content).__name__}")
        conversation.append({field: value for field, value in message.items() if isinstance(value, str)})
        if message.get("tool_calls"):
            conversation[-1]["tool_calls"] = [
                read_tool_call(call, column, at, is_padded=is_padded) for call in message["tool_calls"]
            ]
    if not conversation:
        raise RowError(f"column {column!r} is empty")
    if conversation[-1]["role"] not in ASKING_ROLES:
        raise RowError(f"column {column!r} does not end with the user's message", f"but {conversation[-1]['role']}'s")
    if not may_be_empty and not conversation[-1]["content"].strip():
        raise RowError(f"column {column!r} ends with an empty message")
    return tuple(conversation)


def question_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the user's last message that has text; without one, the last message."""
    questions = [message["content"] for message in messages if message["role"] == "user" and message["content"].strip()]
    return str(questions[-1] if questions else messages[-1]["content"])


def _reference(row: Row, column: str) -> Any:
    """Return the reference; raise RowError if it is None, empty text or a number that is not finite."""
    value = find_column(row.columns, column)
    if value is None or isinstance(value, str):
        return _text(row, column)
    if is_number(value) and not math.isfinite(value):
        raise RowError(f"column {column!r} is not a finite number", f"it is {value}")
    return value


def is_number(value: Any) -> bool:
    """Return True for an integer, a float or a decimal number."""
    return isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool)


def _text(row: Row, column: str) -> str:
    value = find_column(row.columns, column)
    if not isinstance(value, str):
        raise RowError(f"column {column!r} is not text", f"it is {type(value).__name__}")
    if not value.strip():
        raise RowError(f"column {column!r} is empty")
    return value


def _no_column(row: Row, *columns: str) -> RowError:
    names = " or ".join(map(repr, columns))
    return RowError(f"no column {names}", f"it has {', '.join(map(repr, row.columns)) or 'none'}")


_LOGGER = logging.getLogger("agent_tunix.data")

_VERL_PROMPT = "prompt"
_VERL_ANSWER = "reward_model.ground_truth"


def fit_layout(data: DataConfig, rows: Sequence[Row]) -> DataConfig:
    """Return the configuration with the columns of verl's layout, or of preference data, if the rows have it.

    verl's rows hold `data_source`, `prompt` and `reward_model.ground_truth`. A column that the configuration sets, or
    that the rows have under its default name, stays.

    Args:
        data: Names the columns of the problem and the answer.
        rows: First rows, before columns are renamed.
    """
    if not rows or find_column(rows[0].columns, _VERL_ANSWER) is None:
        return fit_pairs(data, rows[0].columns) if rows else data
    columns, default = rows[0].columns, DataConfig()
    columns_found: dict[str, Any] = {}
    for key, name in (("prompt_column", _VERL_PROMPT), ("answer_column", _VERL_ANSWER)):
        configured = getattr(data, key)
        is_free = configured == getattr(default, key) and configured not in (*columns, *data.columns)
        if is_free and find_column(columns, name) is not None:
            columns_found[key] = name
    if columns_found:
        advice = ", ".join(f"data.{key}={name}" for key, name in columns_found.items())
        _LOGGER.info("the rows have verl's layout: %s", advice)
    return dataclasses.replace(data, **columns_found)
