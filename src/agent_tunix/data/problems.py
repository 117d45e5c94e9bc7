"""Problems given by the user for generation, not training; their rows need no answer."""

import json
from pathlib import Path
from typing import Any

from agent_tunix.config.schema import DataConfig
from agent_tunix.data.dropped import RowError
from agent_tunix.data.examples import (
    REFERENCE_MARK,
    WORKED_SOLUTION,
    Example,
    find_column,
    question_of,
    read_conversation,
)
from agent_tunix.errors import DataError


def read_problems(path: Path, data: DataConfig) -> list[Example]:
    """Read the rows of a JSONL file; blank lines are skipped.

    The problem of a row is in `data.prompt_column`, or else in `prompt`, `messages` or `question`. It is a text or a
    list of chat messages.

    Raises:
        DataError: The file cannot be read or has no row, or a line is not a row with a problem; the error names the
            line.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}", code="damaged_data") from error
    examples = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            examples.append(make_problem(json.loads(line), number, data))
        except (ValueError, RecursionError, RowError) as error:
            reason = f"{error.reason}: {error.detail}" if isinstance(error, RowError) else str(error)
            columns = ", ".join(dict.fromkeys((data.prompt_column, "prompt", "messages", "question")))
            raise DataError(
                f"{path}, line {number} must be a JSON object with one of {columns}, but: {reason}", code="invalid_row"
            ) from error
    if not examples:
        raise DataError(f"{path} must contain at least one row, but is empty; add rows", code="no_rows")
    return examples


def make_problem(row: Any, number: int, data: DataConfig) -> Example:
    """Return one row as an example.

    Args:
        row: Parsed value of a line.
        number: Line number, from 1.
        data: Names the columns.

    Raises:
        RowError: The row has no problem.
    """
    if not isinstance(row, dict):
        raise RowError("not an object", f"it is {type(row).__name__}")
    renamed = {new: find_column(row, old) for new, old in data.columns.items() if find_column(row, old) is not None}
    row = {**renamed, **row}
    names = (data.prompt_column, "prompt", "messages", "question")
    column, problem = next(((name, text) for name in names if (text := find_column(row, name))), ("", None))
    if isinstance(problem, str) and problem.strip():
        return Example(problem, _with_reference(row, data), number)
    if isinstance(problem, list):
        messages = read_conversation(problem, column)
        return Example(question_of(messages), _with_reference(row, data), number, messages)
    raise RowError("no problem", f"it has {', '.join(map(repr, row)) or 'nothing'}")


def _with_reference(row: dict[str, Any], data: DataConfig) -> dict[str, Any]:
    """Return the columns with the reference as in training: for GSM8K answers, the text after the mark."""
    answer = find_column(row, data.answer_column or "answer", row.get("answer"))
    if not isinstance(answer, str):
        return row if answer is None else {**row, "answer": answer}
    solution, mark, reference = ("", "", answer) if data.answer_mark == "none" else answer.rpartition(REFERENCE_MARK)
    columns = {**row, "answer": reference.strip()}
    if mark:
        columns.setdefault(WORKED_SOLUTION, solution.strip())
    return columns
