"""The promises that the readers of all file formats keep."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.reading import read

Write = Callable[[Path, list[bytes]], None]


def write_jsonl(path: Path, values: list[bytes]) -> None:
    path.write_bytes(b"".join(b'{"value": "' + value + b'"}\n' for value in values))


def write_csv(path: Path, values: list[bytes]) -> None:
    path.write_bytes(b"".join(value + b"\n" for value in [b"value", *values]))


def write_parquet(path: Path, values: list[bytes]) -> None:
    text = pa.array(values, pa.binary()).view(pa.string())  # Arrow does not look into it.
    pq.write_table(pa.table({"value": text}), path, compression="none")


FORMATS: dict[str, Write] = {"jsonl": write_jsonl, "csv": write_csv, "parquet": write_parquet}
every_format = pytest.mark.parametrize(("suffix", "write"), FORMATS.items())


@every_format
def test_rows_are_numbered_through_files(suffix: str, write: Write, tmp_path: Path) -> None:
    for part in range(2):
        write(tmp_path / f"train-{part}-of-2.{suffix}", [b"%d" % n for n in range(700)])
    header = suffix == "csv"
    rows, _ = read(tmp_path)
    assert [row.columns["value"] for row in rows] == 2 * [str(n) for n in range(700)]
    assert [row.number for row in rows] == [
        *range(1 + header, 701 + header),
        *range(701 + 2 * header, 1401 + 2 * header),
    ]


@every_format
def test_a_row_that_is_too_long_or_not_utf8_is_dropped(suffix: str, write: Write, tmp_path: Path) -> None:
    values = [b"good"] * 300 + [b"\xff"] + [b"good", b"x" * 2000, b"good"] * 200
    write(tmp_path / f"rows.{suffix}", values)
    rows, dropped = read(tmp_path / f"rows.{suffix}", max_row_bytes=1000)
    assert {row.columns["value"] for row in rows} == {"good"}
    assert dropped.counts == {"not UTF-8": 1, "longer than data.max_row_bytes=1000": 200}
    first = 302 if suffix == "csv" else 301
    assert dropped.rows["not UTF-8"] == [first]
    assert dropped.rows["longer than data.max_row_bytes=1000"][:2] == [first + 2, first + 5]


@every_format
def test_a_file_without_rows_has_none(suffix: str, write: Write, tmp_path: Path) -> None:
    write(tmp_path / f"rows.{suffix}", [])
    rows, dropped = read(tmp_path / f"rows.{suffix}")
    assert (rows, dropped.total) == ([], 0)


MANY, LONG = [b"%05d" % n * 40 for n in range(50_000)], [b"x" * 10_000_000]
