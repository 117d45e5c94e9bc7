"""A dataset's row as an example: the problem put to the model, and everything a reward may ask about it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from agent_tunix.config.schema import DataConfig
from agent_tunix.data.dropped import RowError

REFERENCE_MARK = "####"


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
        prompt: The problem put to the model, as people and rewards see it; of a conversation, the last user's message.
        columns: Every column of the row, untouched, and `answer`, the stripped reference; in a marked dataset also
            `solution`, the worked solution before the mark, unless the row has a column of that name.
        index: The row's number in its source, from 1; the line number of a file.
        messages: The conversation that the model answers, `{"role": …, "content": …}` each, the last one the user's;
            None where the prompt column holds text.
    """

    prompt: str
    columns: Mapping[str, Any]
    index: int
    messages: tuple[Mapping[str, str], ...] | None = None


def is_marked(rows: Iterable[Row], answer_column: str) -> bool:
    """Whether any of these rows writes its answer as GSM8K does, `worked solution #### reference`."""
    answers = (row.columns.get(answer_column) for row in rows)
    return any(isinstance(answer, str) and REFERENCE_MARK in answer for answer in answers)


def make_example(row: Row, data: DataConfig, *, marked: bool) -> Example:
    """The example that a row holds.

    Args:
        row: The row.
        data: Names the columns of the problem and of the answer.
        marked: Whether answers are written `worked solution #### reference`. The reference is what follows the last
            mark, and an answer without one is malformed. Otherwise the whole answer is the reference.

    Raises:
        RowError: A column is missing, is no text or is empty, or the answer has no mark or nothing after it.
    """
    prompt = _text(row, data.prompt_column)
    answer = _text(row, data.answer_column, number=True)
    columns = dict(row.columns)
    if marked:
        solution, mark, answer = answer.rpartition(REFERENCE_MARK)
        if not mark:
            raise RowError(f"no {REFERENCE_MARK} in column {data.answer_column!r}")
        if not answer.strip():
            raise RowError(f"nothing after {REFERENCE_MARK} in column {data.answer_column!r}")
        columns.setdefault("solution", solution.strip())
    columns["answer"] = answer.strip()
    return Example(prompt=prompt, columns=columns, index=row.number)


def _text(row: Row, column: str, *, number: bool = False) -> str:
    if column not in row.columns:
        raise RowError(f"no column {column!r}", f"it has {', '.join(map(repr, row.columns)) or 'none'}")
    value = row.columns[column]
    if number and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise RowError(f"column {column!r} is not text", f"it is {type(value).__name__}")
    if not value.strip():
        raise RowError(f"column {column!r} is empty")
    return value
