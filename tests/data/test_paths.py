"""Which files hold the rows of a split, and which source reads them."""

import bz2
import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent_tunix.config.schema import Config, DataConfig, TrainingConfig
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.sources import read_rows
from agent_tunix.data.sources.paths import find_files, source_of_path
from agent_tunix.errors import DataError

LINE = b'{"question": "q", "answer": "1"}\n'


def config_for(path: Path | str | None) -> Config:
    return Config(data=DataConfig(path=None if path is None else str(path)))


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


@pytest.mark.parametrize("name", ["rows.txt", "rows", "rows.parquet.gz", "rows.xlsx"])
def test_a_file_of_unknown_kind_is_refused_with_the_known_ones(name: str, tmp_path: Path) -> None:
    touch(tmp_path, name)
    with pytest.raises(
        DataError, match=r"does not say what kind of file .* \.jsonl, .*\.parquet, or set data\.source="
    ):
        source_of_path(config_for(tmp_path / name), "train")


def test_a_file_that_is_not_there_is_refused_whatever_its_name() -> None:
    with pytest.raises(DataError, match=r"data\.path=/no/rows .* No such file"):
        source_of_path(config_for("/no/rows"), "train")


def test_the_files_of_a_directory_say_which_source_reads_them(tmp_path: Path) -> None:
    touch(tmp_path, "train-00000.parquet", "test.parquet", "notes.csv", "training.jsonl")
    assert source_of_path(config_for(tmp_path), "train") == "parquet"


def test_a_directory_with_files_of_two_kinds_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "train.csv", "train.jsonl")
    with pytest.raises(DataError, match=r"train files of several kinds; set data\.source=jsonl or csv"):
        source_of_path(config_for(tmp_path), "train")


def test_a_directory_without_the_split_names_what_is_wanted(tmp_path: Path) -> None:
    touch(tmp_path, "validation.csv")
    with pytest.raises(
        DataError, match=r"there is no train\.jsonl, train\.csv, train\.parquet in it; .*data\.train_spl"
    ):
        source_of_path(config_for(tmp_path), "train")


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["train.jsonl", "train_old.jsonl", "trainer.jsonl", "test.jsonl"], ["train.jsonl"]),
        (["train.jsonl", "train-0.jsonl"], ["train.jsonl"]),
        (["train-00001-of-00002.jsonl", "train-00000-of-00002.jsonl"], []),
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


def test_two_files_of_the_same_split_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, "train.jsonl", "train.jsonl.gz")
    with pytest.raises(DataError, match=r"has train\.jsonl and train\.jsonl\.gz; leave one"):
        found(tmp_path)


@pytest.mark.parametrize(
    ("present", "words"),
    [
        ([0, 1, 3], r"has 3 of 4 files of a set and lacks train-00002-of-00004\.jsonl;"),
        ([1, 2], r"lacks train-00000-of-00004\.jsonl, train-00003-of-00004\.jsonl;"),
        ([2, 3, 4], r"lacks train-00001-of-00004\.jsonl;"),
        ([0, 1, 2, 4], r"has train-00004-of-00004\.jsonl, a number that a set of 4 has not"),
    ],
)
def test_missing_numbered_files_are_named(present: list[int], words: str, tmp_path: Path) -> None:
    touch(tmp_path, *(f"train-{number:05}-of-00004.jsonl" for number in present))
    with pytest.raises(DataError, match=words):
        found(tmp_path)


def test_of_very_many_missing_files_a_few_are_named(tmp_path: Path) -> None:
    touch(tmp_path, "train-0-of-999999999999.jsonl")
    with pytest.raises(DataError, match=r"train-5-of-999999999999\.jsonl and 999999999993 more; add"):
        found(tmp_path)


def test_numbered_files_may_count_from_one(tmp_path: Path) -> None:
    touch(tmp_path, "train-1-of-2.jsonl", "train-2-of-2.jsonl")
    assert len(found(tmp_path)) == 2


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["train-00000-of-00001.jsonl", "train-1.jsonl"], r"has both train-00000-of-00001\.jsonl and train-1\.jsonl;"),
        (["train-00000-of-00001.jsonl", "train-00000-of-00002.jsonl"], "has files of several sets"),
        (["train-00000-of-00001.jsonl", "train-00000-of-00001.jsonl.gz"], "has files of several sets"),
    ],
)
def test_numbered_files_of_several_sets_are_refused(names: list[str], words: str, tmp_path: Path) -> None:
    touch(tmp_path, *names)
    with pytest.raises(DataError, match=words):
        found(tmp_path)


def test_splits_may_have_other_names(tmp_path: Path) -> None:
    touch(tmp_path, "main.csv", "validation.csv")
    config = config_for(tmp_path)
    config.data.train_split, config.data.test_split = "main", "validation"
    assert find_files(config, "train", "csv") == [tmp_path / "main.csv"]
    assert find_files(config, "test", "csv") == [tmp_path / "validation.csv"]


def test_a_pattern_means_its_files_in_alphabetical_order(tmp_path: Path) -> None:
    touch(tmp_path, "b.jsonl", "a.jsonl", "deep/c.jsonl", "d.jsonl/none")
    assert [path.name for path in find_files(config_for(tmp_path / "*.jsonl"), "train", "jsonl")] == [
        "a.jsonl",
        "b.jsonl",
    ]
    assert len(find_files(config_for(tmp_path / "**" / "*.jsonl"), "train", "jsonl")) == 3


def test_a_pattern_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file matches it; correct data\.path"):
        find_files(config_for(tmp_path / "*.jsonl"), "train", "jsonl")


def test_a_file_whose_name_looks_like_a_pattern_is_itself(tmp_path: Path) -> None:
    touch(tmp_path, "rows[1].jsonl", "rows1.jsonl")
    assert found(tmp_path / "rows[1].jsonl") == ["rows[1].jsonl"]


def test_files_of_a_pattern_leave_nothing_for_the_evaluation(tmp_path: Path) -> None:
    touch(tmp_path, "a.jsonl", "b.jsonl")
    with pytest.raises(DataError, match=r"means 2 files, which hold training rows and leaves none"):
        find_files(config_for(tmp_path / "*.jsonl"), "test", "jsonl")


def test_held_out_rows_may_be_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("question,answer\nq,1\n")
    (tmp_path / "held_out.jsonl").write_bytes(LINE * 2)
    config = config_for(tmp_path / "rows.csv")
    config.training = TrainingConfig(test_data_dir=str(tmp_path / "held_out.jsonl"))
    assert len(list(read_rows(config, "train", Dropped()))) == 1
    assert len(list(read_rows(config, "test", Dropped()))) == 2


def compress(content: bytes, name: str) -> bytes:
    if name.endswith(".zst"):
        compressed: bytes = pa.Codec("zstd").compress(content, asbytes=True)
        return compressed
    return gzip.compress(content) if name.endswith(".gz") else bz2.compress(content)


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.jsonl.zst", "rows.jsonl.bz2", "rows.JSONL.GZ"])
def test_compressed_rows_are_read_as_others_are(name: str, tmp_path: Path) -> None:
    content = LINE * 5000 + b"{\n" + LINE
    (tmp_path / name).write_bytes(compress(content, name.lower()))
    dropped = Dropped()
    rows = list(read_rows(config_for(tmp_path / name), "train", dropped))
    assert [row.number for row in rows] == [*range(1, 5001), 5002]
    assert dropped.rows == {"not JSON": [5001]}


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.jsonl.zst", "rows.jsonl.bz2"])
@pytest.mark.parametrize("damage", [lambda content: content[:-9], lambda content: b"junk" + content])
def test_damaged_compression_is_refused_with_the_file(name: str, damage: object, tmp_path: Path) -> None:
    assert callable(damage)
    (tmp_path / name).write_bytes(damage(compress(LINE * 5000, name)))
    with pytest.raises(DataError, match=rf"the train rows cannot be read: .*{name}"):
        list(read_rows(config_for(tmp_path / name), "train", Dropped()))


def test_rows_of_several_files_are_told_by_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(LINE + b"{\n" + LINE)
    (tmp_path / "b.jsonl").write_bytes(b"[\n" + LINE)
    dropped = Dropped()
    rows = list(read_rows(config_for(tmp_path / "*.jsonl"), "train", dropped))
    assert [row.number for row in rows] == [1, 3, 5]
    assert dropped.describe().startswith("2 × not JSON (a.jsonl line 2, b.jsonl line 1; the first: ")
    assert dropped.origin == f"2 files of {tmp_path}"


def test_parquet_files_of_a_directory_are_found_without_being_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"question": ["q"], "answer": [1]}), tmp_path / "train-00000-of-00001.parquet")
    assert next(read_rows(config_for(tmp_path), "train", Dropped())).columns == {"question": "q", "answer": 1}
