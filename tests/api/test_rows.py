"""Rows in memory as files."""

import json
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent_tunix.api.rows import write_rows
from agent_tunix.errors import DataError
from tests.raising import raises

ROWS = [{"question": "What is 1 + 1?", "answer": "2"}, {"question": "What is 2 + 2?", "answer": "4"}]


@pytest.mark.parametrize(
    "rows", [ROWS, iter(ROWS), pa.Table.from_pylist(ROWS), pandas.DataFrame(ROWS, index=[7, 9])], ids=type
)
def test_rows_of_every_form_are_the_same_file(rows: Any, tmp_path: Path) -> None:
    path = write_rows(rows, tmp_path / "data", "train")
    assert path == tmp_path / "data" / "train.parquet"
    assert pq.read_table(path).to_pylist() == ROWS


def test_a_missing_column_is_null(tmp_path: Path) -> None:
    path = write_rows([*ROWS, {"question": "?"}], tmp_path, "train")
    assert pq.read_table(path).to_pylist()[2] == {"question": "?", "answer": None}


@pytest.mark.parametrize(
    "rows",
    [
        [{"answer": 1}, {"answer": "two"}],
        [{"tests": {"inputs": [1]}}, {"tests": {"outputs": [2]}}],
        [{"answer": 2**70}],
    ],
)
def test_rows_that_parquet_would_change_are_json_lines(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    path = write_rows(rows, tmp_path, "train")
    assert path.suffix == ".jsonl"
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == rows


@pytest.mark.parametrize(
    ("rows", "code"),
    [([], "no_rows"), ("text", "unsupported_data"), ([1], "unsupported_data"), ([{"a": object()}], "invalid_row")],
)
def test_what_cannot_be_rows_is_refused(rows: Any, code: str, tmp_path: Path) -> None:
    with raises(DataError, code):
        write_rows(rows, tmp_path, "train")
    assert list(tmp_path.iterdir()) == []
