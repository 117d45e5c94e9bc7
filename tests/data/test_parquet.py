import datetime
import decimal
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent_tunix.data.dataset import load_examples
from tests.data.reading import config_for, read, refusal

UTC = datetime.UTC


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (pa.array([2**53 + 1, None]), [2**53 + 1, None]),
        (pa.array([2**64 - 1, 0], pa.uint64()), [2**64 - 1, 0]),
        (pa.array([[1, 2], None]), [[1, 2], None]),
        (pa.array([{"a": None, "b": [{"c": 1}]}, None]), [{"a": None, "b": [{"c": 1}]}, None]),
        (pa.array([[], [{}]], pa.list_(pa.struct([("a", pa.int8())]))), [[], [{"a": None}]]),
        (pa.array([b"\xff\x00", None]), [b"\xff\x00", None]),
        (pa.array([True, None]), [True, None]),
        (pa.array([None, None]), [None, None]),
        (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
        (pa.array([decimal.Decimal("1.10"), None]), [decimal.Decimal("1.10"), None]),
        (pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())), [[("k", 1)], None]),
        (pa.array([datetime.date(1, 1, 1), None]), [datetime.date(1, 1, 1), None]),
        (
            pa.array([1_500_000_000_123_456_789, None], pa.timestamp("ns", "UTC")),
            [datetime.datetime(2017, 7, 14, 2, 40, 0, 123456, UTC), None],
        ),
        (
            pa.array([[1_001], []], pa.list_(pa.timestamp("ns"))),
            [[datetime.datetime(1970, 1, 1, 0, 0, 0, 1)], []],
        ),
        (
            pa.array([{"t": 1_001}, None], pa.struct([("t", pa.duration("ns"))])),
            [{"t": datetime.timedelta(microseconds=1)}, None],
        ),
        (pa.array([[1_001], None], pa.list_(pa.duration("ns"), 1)), [[datetime.timedelta(microseconds=1)], None]),
        (pa.array([1_001, None], pa.time64("ns")), [datetime.time(0, 0, 0, 1), None]),
    ],
)
def test_values_are_plain_python_and_unchanged(array: pa.Array, values: list[Any], tmp_path: Path) -> None:
    pq.write_table(pa.table({"value": array}), tmp_path / "rows.parquet")
    rows, dropped = read(tmp_path / "rows.parquet")
    found = [row.columns["value"] for row in rows]
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]
    assert dropped.total == 0


@pytest.mark.parametrize(
    ("kind", "values"),
    [(pa.float32(), [0.1, 72.0, 16777216.0, 1e-30, None]), (pa.float16(), [0.1, 72.0, 0.3333, None])],
)
def test_short_floats_are_the_shortest_numbers_that_round_to_them(
    kind: pa.DataType, values: list[float | None], tmp_path: Path
) -> None:
    numbers = pa.array([None if value is None else np.float32(value) for value in values], pa.float32())
    pq.write_table(pa.table({"value": numbers.cast(kind)}), tmp_path / "rows.parquet")
    assert [row.columns["value"] for row in read(tmp_path / "rows.parquet")[0]] == values


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_numbers_that_are_not_finite_stay(kind: pa.DataType, tmp_path: Path) -> None:
    pq.write_table(pa.table({"value": pa.array([math.nan, -math.inf], kind)}), tmp_path / "rows.parquet")
    first, second = (row.columns["value"] for row in read(tmp_path / "rows.parquet")[0])
    assert math.isnan(first)
    assert second == -math.inf


def test_a_32_bit_answer_is_the_reference_that_was_written(tmp_path: Path) -> None:
    table = pa.table({"question": ["a", "b"], "answer": pa.array([0.1, 72.0], pa.float32())})
    pq.write_table(table, tmp_path / "rows.parquet")
    loaded = load_examples(config_for(tmp_path / "rows.parquet"), "train")
    assert [example.columns["answer"] for example in loaded.examples] == [0.1, 72.0]


def break_page(content: bytes) -> bytes:
    """Replace the first page of a file."""
    return content[:4] + b"\x55" * 396 + content[400:]


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda content: content[: len(content) // 2], "damaged_data"),
        (lambda content: content[:-1], "damaged_data"),
        (lambda content: b"", "damaged_data"),
        (lambda content: b"PAR1", "damaged_data"),
        (lambda content: b"question,answer\n", "damaged_data"),
        (break_page, "damaged_data"),
    ],
)
def test_a_damaged_file_is_refused(damage: Callable[[bytes], bytes], code: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"value": list(range(1000))}), path)
    path.write_bytes(damage(path.read_bytes()))
    assert "rows.parquet" in refusal(code, path)


def test_columns_of_the_same_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["value", "value"])
    pq.write_table(table, tmp_path / "rows.parquet")
    refusal("invalid_row", tmp_path / "rows.parquet")


def test_rows_are_numbered_through_row_groups(tmp_path: Path) -> None:
    pq.write_table(pa.table({"value": list(range(700))}), tmp_path / "rows.parquet", row_group_size=300)
    rows, _ = read(tmp_path / "rows.parquet")
    assert [(row.number, row.columns["value"]) for row in rows] == [(n + 1, n) for n in range(700)]
