import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from agent_tunix.config.schema import TrainingConfig
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.sources import Split, read_rows
from agent_tunix.data.sources.paths import find_files, source_of_path
from agent_tunix.errors import DataError
from tests.data.reading import config_for, read
from tests.raising import raises

LINE = b'{"question": "q", "answer": "1"}\n'


def touch(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()


def found(directory: Path, source: str = "jsonl") -> list[str]:
    return [path.name for path in find_files(config_for(directory), "train", source)]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("rows.jsonl", "jsonl"),
        ("rows.ndjson", "jsonl"),
        ("rows.json", "jsonl"),
        ("rows.jsonl.gz", "jsonl"),
        ("ROWS.JSONL", "jsonl"),
        ("rows.csv", "csv"),
        ("rows.tsv.zst", "csv"),
        ("rows.parquet", "parquet"),
        ("rows.csv.parquet", "parquet"),
    ],
)
def test_a_suffix_says_which_source_reads(name: str, source: str, tmp_path: Path) -> None:
    touch(tmp_path, name)
    assert source_of_path(config_for(tmp_path / name), "train") == source
    assert source_of_path(config_for(tmp_path / f"*{name[4:]}"), "train") == source


def test_without_a_path_problems_are_made() -> None:
    assert source_of_path(config_for(None), "train") == "synthetic"


def test_the_files_of_a_directory_say_which_source_reads_them(tmp_path: Path) -> None:
    touch(tmp_path, "train-00000.parquet", "test.parquet", "notes.csv", "training.jsonl")
    assert source_of_path(config_for(tmp_path), "train") == "parquet"


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["train.jsonl", "train_old.jsonl", "trainer.jsonl", "test.jsonl"], ["train.jsonl"]),
        (["train.jsonl", "train-0.jsonl"], ["train.jsonl"]),
        (["train-00001-of-00002.jsonl", "train-00000-of-00002.jsonl"], []),
        (["train-1-of-2.jsonl", "train-2-of-2.jsonl"], []),
        (["train.jsonl.gz"], ["train.jsonl.gz"]),
        (["train.ndjson"], ["train.ndjson"]),
        (["train_0.jsonl", "train_1.jsonl.zst"], ["train_0.jsonl", "train_1.jsonl.zst"]),
    ],
)
def test_a_directory_holds_one_file_of_a_split_or_numbered_ones(
    names: list[str], wanted: list[str], tmp_path: Path
) -> None:
    touch(tmp_path, *names)
    assert found(tmp_path) == (wanted or sorted(names))


def shards(*numbers: int) -> list[str]:
    return [f"train-{number:05}-of-00004.jsonl" for number in numbers]


@pytest.mark.parametrize(
    ("names", "path", "split", "source", "code", "words"),
    [
        (["rows.txt"], "rows.txt", "train", "auto", "unsupported_data", ".jsonl, .ndjson"),
        (["rows"], "rows", "train", "auto", "unsupported_data", "set data.source="),
        (["rows.parquet.gz"], "rows.parquet.gz", "train", "auto", "unsupported_data", ".parquet, or set"),
        ([], "no/rows", "train", "auto", "missing_data", "No such file"),
        ([], "x" * 5000, "train", "jsonl", "missing_data", "File name too long"),
        ([], "*.jsonl", "train", "jsonl", "missing_data", "correct data.path"),
        ([], None, "test", "jsonl", "missing_data", "neither data.path nor training.test_data_dir"),
        (["train.csv", "train.jsonl"], ".", "train", "auto", "unsupported_data", "data.source=jsonl or csv"),
        (["validation.csv"], ".", "train", "auto", "missing_data", "train.jsonl, train.csv, train.parquet"),
        ([], ".", "train", "jsonl", "missing_data", "data.train_split"),
        (["train.jsonl", "train.jsonl.gz"], ".", "train", "jsonl", "missing_data", "train.jsonl.gz"),
        (["a.jsonl", "b.jsonl"], "*.jsonl", "test", "jsonl", "no_rows", "matches 2 files"),
        (["rows.jsonl"], "rows.jsonl", "test", "jsonl", "no_rows", "training.train_fraction=0.9"),
        (shards(0, 1, 3), ".", "train", "jsonl", "damaged_data", "lacks train-00002-of-00004.jsonl;"),
        (shards(1, 2), ".", "train", "jsonl", "damaged_data", ", ".join(shards(0, 3))),
        (shards(2, 3, 4), ".", "train", "jsonl", "damaged_data", "lacks train-00001-of-00004.jsonl;"),
        (shards(0, 1, 2, 4), ".", "train", "jsonl", "damaged_data", shards(4)[0]),
        (["train-0-of-999999999999.jsonl"], ".", "train", "jsonl", "damaged_data", "and 999999999993 more"),
        ([*shards(0), "train-1.jsonl"], ".", "train", "jsonl", "damaged_data", "train-1.jsonl;"),
        ([*shards(0), "train-00000-of-00002.jsonl"], ".", "train", "jsonl", "damaged_data", "one set of shards"),
        ([*shards(0), f"{shards(0)[0]}.gz"], ".", "train", "jsonl", "damaged_data", "one set of shards"),
    ],
)
def test_files_that_cannot_be_a_split_are_refused(
    names: list[str], path: str | None, split: Split, source: str, code: str, words: str, tmp_path: Path
) -> None:
    touch(tmp_path, *names)
    config = config_for(None if path is None else tmp_path / path)
    with raises(DataError, code, words):
        find_files(config, split, source_of_path(config, split) if source == "auto" else source)


def test_splits_may_have_other_names(tmp_path: Path) -> None:
    touch(tmp_path, "main.csv", "validation.csv")
    config = config_for(tmp_path)
    config.data.train_split, config.data.test_split = "main", "validation"
    assert find_files(config, "train", "csv") == [tmp_path / "main.csv"]
    assert find_files(config, "test", "csv") == [tmp_path / "validation.csv"]


def test_each_split_has_an_override(tmp_path: Path) -> None:
    touch(tmp_path, "train.jsonl", "one.jsonl", "more/test.jsonl")
    config = config_for(tmp_path)
    for place, wanted in (("more", "more/test.jsonl"), ("one.jsonl", "one.jsonl")):
        config.training.test_data_dir = str(tmp_path / place)
        assert find_files(config, "train", "jsonl") == [tmp_path / "train.jsonl"]
        assert find_files(config, "test", "jsonl") == [tmp_path / wanted]
    config.training.train_data_dir = "/no/such/place"
    with raises(DataError, "missing_data", "training.train_data_dir=/no/such/place"):
        find_files(config, "train", "jsonl")


def test_a_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    touch(tmp_path, "train.jsonl")
    assert find_files(config_for("~"), "train", "jsonl") == [tmp_path / "train.jsonl"]


def test_a_pattern_means_its_files_in_alphabetical_order(tmp_path: Path) -> None:
    touch(tmp_path, "b.jsonl", "a.jsonl", "deep/c.jsonl", "d.jsonl/none")
    assert found(tmp_path / "*.jsonl") == ["a.jsonl", "b.jsonl"]
    assert len(found(tmp_path / "**" / "*.jsonl")) == 3


def test_held_out_rows_may_be_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("question,answer\nq,1\n")
    (tmp_path / "held_out.jsonl").write_bytes(LINE * 2)
    config = config_for(tmp_path / "rows.csv")
    config.training = TrainingConfig(test_data_dir=str(tmp_path / "held_out.jsonl"))
    assert len(list(read_rows(config, "train", Dropped()))) == 1
    assert len(list(read_rows(config, "test", Dropped()))) == 2


def zstd(content: bytes) -> bytes:
    compressed: bytes = pa.Codec("zstd").compress(content, asbytes=True)
    return compressed


COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "zst": zstd, "bz2": bz2.compress}


@pytest.mark.parametrize("suffix", [*COMPRESS, "GZ"])
def test_compressed_rows_are_read_as_others_are(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows.jsonl.{suffix}"
    path.write_bytes(COMPRESS[suffix.lower()](LINE * 5000 + b"{\n" + LINE))
    rows, dropped = read(path)
    assert [row.number for row in rows] == [*range(1, 5001), 5002]
    assert dropped.rows == {"not JSON": [5001]}


def test_rows_of_several_files_are_told_by_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(LINE + b"{\n" + LINE)
    (tmp_path / "b.jsonl").write_bytes(b"[\n" + LINE)
    rows, dropped = read(tmp_path / "*.jsonl")
    assert [row.number for row in rows] == [1, 3, 5]
    assert dropped.describe().startswith("2 × not JSON (a.jsonl line 2, b.jsonl line 1; the first: ")
    assert dropped.origin == f"2 files of {tmp_path}"
