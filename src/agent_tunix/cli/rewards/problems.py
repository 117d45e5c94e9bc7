"""Rows for `agent-tunix rewards`, from files or the package's word problems."""

import json
import os
from pathlib import Path
from typing import Any

from agent_tunix.config.schema import Config
from agent_tunix.data import Dropped, load_examples
from agent_tunix.data.dataset import COLUMN_ADVICE
from agent_tunix.data.sources import read_rows
from agent_tunix.data.sources.paths import source_of_name
from agent_tunix.errors import DataError
from agent_tunix.tracking.stored_run import StoredRun
from agent_tunix.workbench.checks import CheckProblem, LabelledCompletion

PROMPT_COLUMNS = ("question", "prompt", "problem")
ANSWER_COLUMNS = ("answer", "ground_truth", "label")
RESPONSE_COLUMNS = ("response", "completion")
# Steps of a run whose completions are read.
_LAST_STEPS = 8


def load_problems(
    data: str | None, rows: int, prompt_column: str | None, answer_column: str | None
) -> list[CheckProblem]:
    """Return at most `rows` problems, spread evenly over a file; without one, generated word problems.

    Args:
        data: JSONL, CSV or Parquet file, or a directory with a file named train; None for word problems. A file without
            a known suffix is read as JSON lines.
        rows: At least 1.
        prompt_column: None for the first of `PROMPT_COLUMNS` in the first row.
        answer_column: None for the first of `ANSWER_COLUMNS` in the first row. Without any of them, the problems
            have no references.

    Raises:
        DataError: The file cannot be read, or has no usable row.
    """
    config = Config()
    if data is None:
        config.data.num_train = rows
    else:
        path = _find(data)
        config.data.source = source_of(data)
        config.data.path = str(path)
        first = next((row.columns for row in read_rows(config, "train", Dropped())), {})
        config.data.prompt_column = prompt_column or _pick(PROMPT_COLUMNS, first)
        config.data.answer_column = answer_column or _answer_column(first)
    try:
        examples = load_examples(config, "train").examples
    except DataError as error:
        message = str(error).replace(COLUMN_ADVICE, "correct them, or set --prompt-column and --answer-column")
        raise DataError(message, code=error.code) from error
    count = min(rows, len(examples))
    sampled_examples = [examples[place * len(examples) // count] for place in range(count)]
    return [CheckProblem(example.prompt, example.columns) for example in sampled_examples]


def load_completions(file: str, *, with_answer: bool = True) -> list[LabelledCompletion]:
    """Return the completions of a JSONL file; raise DataError if it cannot be read or a line lacks a required column.

    Columns are `response`, `answer` (optional without `with_answer`), and optionally `prompt`, `label` and others.
    """
    completions = []
    try:
        lines = Path(file).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the completions of {file} cannot be read: {error}", code="damaged_data") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            completions.append(_completion(line, f"{file}, line {number}", with_answer))
    if not completions:
        raise DataError(
            f"{file} contains no completions; add at least one, as a JSON object per line", code="missing_completions"
        )
    return completions


def load_responses(path: str) -> list[str]:
    """Return the responses of a run's last recorded steps, or of a JSONL file with `response` in each line.

    Raises:
        DataError, RunDirectoryError: There are none, or they cannot be read.
    """
    if Path(path).is_dir():
        rollouts = StoredRun(path).rollouts
        steps = rollouts.steps()[-_LAST_STEPS:]
        responses = [sample.response for step in rollouts.iterate(steps=steps) for sample in step.samples]
    else:
        responses = [completion.response for completion in load_completions(path, with_answer=False)]
    if not responses:
        raise DataError(f"{path} contains no completions; give a run with rollouts", code="missing_completions")
    return responses


def _completion(line: str, where: str, with_answer: bool) -> LabelledCompletion:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise DataError(f"{where} is not JSON: {error}", code="invalid_row") from error
    response_column = next((name for name in RESPONSE_COLUMNS if isinstance(row, dict) and name in row), None)
    if with_answer and isinstance(row, dict) and "answer" not in row:
        response_column = None
    if response_column is None or not isinstance(row[response_column], str):
        requirement = "the texts `response` and `answer`" if with_answer else "the text `response`"
        raise DataError(f"{where} must be an object with {requirement}, not {line[:80]}", code="invalid_row")
    label = row.pop("label", None)
    if label is not None and not isinstance(label, bool):
        raise DataError(
            f"{where}: `label` must be true (the response is right) or false, not {label!r}", code="invalid_row"
        )
    response = row.pop(response_column)
    row["answer"] = str(row.get("answer", "")).rpartition("####")[2].strip()
    prompt = next((str(row[name]) for name in PROMPT_COLUMNS if name in row), "")
    return LabelledCompletion(CheckProblem(prompt, row), response, label, where.rpartition(", ")[2])


def source_of(data: str) -> str:
    """Return the `data.source` for a path of the command line; `jsonl` if the suffix is unknown."""
    path = Path(os.path.expanduser(data))
    return "auto" if path.is_dir() or source_of_name(path.name) else "jsonl"


def _find(data: str) -> Path:
    path = Path(os.path.expanduser(data))
    if not path.exists():
        raise DataError(
            f"--data {data} must be a JSONL, CSV or Parquet file, but there is no file {path}", code="missing_data"
        )
    return path


def _answer_column(row: dict[str, Any]) -> str | None:
    """Return the column of the reference; None if a row has none. Rows of verl hold it in `reward_model`."""
    if "reward_model" in row:
        return _pick(ANSWER_COLUMNS, row)
    return next((name for name in ANSWER_COLUMNS if name in row), None)


def _pick(columns: tuple[str, ...], row: dict[str, Any]) -> str:
    return next((column for column in columns if column in row), columns[0])
