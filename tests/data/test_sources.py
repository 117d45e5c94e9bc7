"""Reading rows from files."""

import json
import os
import sys
import tracemalloc
import types
from pathlib import Path

import pytest

from agent_tunix.config.schema import Config, DataConfig, TrainingConfig
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row
from agent_tunix.data.sources import read_rows
from agent_tunix.data.sources.paths import find_files
from agent_tunix.errors import ConfigError, DataError

GOOD = b'{"question": "q", "answer": "#### 1"}'


def jsonl(path: Path | str | None, max_row_bytes: int = 65536) -> Config:
    data = DataConfig(source="jsonl", path=None if path is None else str(path), max_row_bytes=max_row_bytes)
    return Config(data=data)


def read(content: bytes, directory: Path, max_row_bytes: int = 65536) -> tuple[list[Row], Dropped]:
    path = directory / "rows.jsonl"
    path.write_bytes(content)
    dropped = Dropped()
    return list(read_rows(jsonl(path, max_row_bytes), "train", dropped)), dropped


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "empty line"),
        (b" \t\r", "empty line"),
        (b"{", "not JSON"),
        (b"question: q", "not JSON"),
        (b'{"question": "q"} {}', "not JSON"),
        (b'{"question": "torn', "not JSON"),
        (b'{"n": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"[" * 50_000, "not JSON"),
        (b"[1, 2]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"null", "not a JSON object"),
        (b'{"question": "\xff"}', "not UTF-8"),
        (b'{"question": "\xe9t\xe9"}', "not UTF-8"),
        (b'{"question": "\xed\xa0\x80"}', "not UTF-8"),
        ('{"question": "q"}'.encode("utf-16"), "not UTF-8"),
        (b'{"question": "\\ud83d"}', "not Unicode"),
        (b'{"tags": [{"\\ude00": 1}]}', "not Unicode"),
        (b'{"question": "' + b"x" * 1_000_000 + b'"}', "longer than data.max_row_bytes=65536"),
    ],
)
def test_malformed_line_is_dropped_with_its_number(line: bytes, reason: str, tmp_path: Path) -> None:
    rows, dropped = read(b"\n".join([GOOD, line, GOOD, b""]), tmp_path)
    assert [row.number for row in rows] == [1, 3]
    assert dropped.counts == {reason: 1}
    assert dropped.rows == {reason: [2]}


@pytest.mark.parametrize(
    "line",
    [
        GOOD,
        GOOD + b"\r",
        b"  " + GOOD,
        '{"question": "12 € für ½"}'.encode(),
        b'{"question": "\\ud83d\\ude00"}',
        b'{"question": "\\u0000"}',
        b'{"nested": {"deep": [1, 2.5, null, true]}}',
        b"{}",
    ],
)
def test_unusual_but_valid_line_is_read(line: bytes, tmp_path: Path) -> None:
    rows, dropped = read(line + b"\n", tmp_path)
    assert [row.columns for row in rows] == [json.loads(line)]
    assert dropped.total == 0


def test_byte_order_mark_and_missing_last_newline_are_no_faults(tmp_path: Path) -> None:
    rows, dropped = read(b"\xef\xbb\xbf" + GOOD + b"\n" + GOOD, tmp_path)
    assert len(rows) == 2
    assert dropped.total == 0


@pytest.mark.parametrize("end", [b"\n", b""])
def test_longest_row_that_is_allowed(end: bytes, tmp_path: Path) -> None:
    rows, dropped = read(GOOD + end, tmp_path, max_row_bytes=len(GOOD))
    assert (len(rows), dropped.total) == (1, 0)
    rows, dropped = read(GOOD + end, tmp_path, max_row_bytes=len(GOOD) - 1)
    assert (len(rows), dropped.total) == (0, 1)


def test_long_line_is_not_held_in_memory(tmp_path: Path) -> None:
    content = b'{"question": "' + b"x" * 20_000_000 + b'"}\n' + GOOD
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        (tmp_path / "rows.jsonl").write_bytes(content)
        tracemalloc.reset_peak()
        rows = list(read_rows(jsonl(tmp_path / "rows.jsonl"), "train", Dropped()))
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert [row.number for row in rows] == [2]
    assert peak < 1_000_000


@pytest.mark.parametrize("content", [b'[\n  {"question": "q"}\n]\n', b'\n [{"question": "q"}]', b"\xef\xbb\xbf[]"])
def test_a_file_that_is_a_json_array_is_refused_with_the_remedy(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_bytes(content)
    remedy = r"rows\.json is a JSON array, .*one JSON object a line; .* jq -c '\.\[\]' rows\.json > rows\.jsonl"
    with pytest.raises(DataError, match=remedy):
        list(read_rows(jsonl(tmp_path / "rows.json"), "train", Dropped()))


def test_a_json_file_may_hold_an_object_a_line(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_bytes(b"\n" + GOOD + b"\n[1]\n" + GOOD)
    dropped = Dropped()
    assert len(list(read_rows(jsonl(tmp_path / "rows.json"), "train", dropped))) == 2
    assert dropped.rows == {"empty line": [1], "not a JSON object": [3]}


def test_unknown_source_names_the_known_ones_and_the_nearest(tmp_path: Path) -> None:
    config = Config(data=DataConfig(source="json"))
    with pytest.raises(
        ConfigError, match=r"must be one of auto, synthetic, jsonl, csv, parquet, .*, not 'json'; did you mean jsonl\?"
    ):
        read_rows(config, "train", Dropped())


def test_training_data_source_overrides_the_data_group(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_bytes(GOOD)
    config = Config(
        data=DataConfig(source="synthetic", path=str(tmp_path)), training=TrainingConfig(data_source="jsonl")
    )
    assert len(list(read_rows(config, "train", Dropped()))) == 1
    config.training.data_source = "tfsd"
    with pytest.raises(ConfigError, match=r"training\.data_source must be"):
        read_rows(config, "train", Dropped())


def test_directory_holds_a_file_for_each_split(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").touch()
    (tmp_path / "test.jsonl").touch()
    assert find_files(jsonl(tmp_path), "train", "jsonl") == [tmp_path / "train.jsonl"]
    assert find_files(jsonl(tmp_path), "test", "jsonl") == [tmp_path / "test.jsonl"]


def test_each_split_has_an_override(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    for name in ("train.jsonl", "one.jsonl", "more/test.jsonl"):
        (tmp_path / name).touch()
    config = jsonl(tmp_path)
    config.training.test_data_dir = str(tmp_path / "more")
    assert find_files(config, "train", "jsonl") == [tmp_path / "train.jsonl"]
    assert find_files(config, "test", "jsonl") == [tmp_path / "more/test.jsonl"]
    config.training.test_data_dir = str(tmp_path / "one.jsonl")
    assert find_files(config, "test", "jsonl") == [tmp_path / "one.jsonl"]


def test_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "train.jsonl").touch()
    assert find_files(jsonl("~"), "train", "jsonl") == [tmp_path / "train.jsonl"]


def test_missing_path_says_what_to_set() -> None:
    with pytest.raises(DataError, match=r"neither data\.path nor training\.test_data_dir is set; set data\.path to"):
        find_files(jsonl(None), "test", "jsonl")


def test_missing_file_is_named_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"data\.path=.* there is no train\.jsonl in it; correct data\.path or .* data\.train_split"
    ):
        find_files(jsonl(tmp_path), "train", "jsonl")
    config = jsonl(tmp_path)
    config.training.train_data_dir = "/no/such/place"
    with pytest.raises(DataError, match=r"training\.train_data_dir=/no/such/place .* No such file"):
        find_files(config, "train", "jsonl")


def test_path_that_no_system_accepts_is_a_data_error() -> None:
    with pytest.raises(DataError, match="File name too long"):
        find_files(jsonl("x" * 5000), "train", "jsonl")


def test_one_file_has_no_held_out_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").touch()
    config = jsonl(tmp_path / "rows.jsonl")
    assert find_files(config, "train", "jsonl") == [tmp_path / "rows.jsonl"]
    with pytest.raises(DataError, match=r"is one file.*training\.train_fraction=0\.9"):
        find_files(config, "test", "jsonl")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_is_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(GOOD)
    path.chmod(0)
    with pytest.raises(DataError, match=r"cannot be read: .*Permission denied"):
        list(read_rows(jsonl(tmp_path), "train", Dropped()))


def test_directory_in_place_of_a_file_is_a_data_error(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").mkdir()
    with pytest.raises(DataError, match=r"cannot be read: .*Is a directory"):
        list(read_rows(jsonl(tmp_path), "train", Dropped()))


def test_synthetic_rows_follow_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_problems(split: str, count: int, seed: int) -> list[dict[str, str]]:
        return [{"question": f"{split} {seed} {number}", "answer": "#### 1"} for number in range(count)]

    module = types.ModuleType("word_problems")
    module.make_problems = make_problems  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "agent_tunix.data.word_problems", module)
    config = Config(data=DataConfig(num_train=3, num_test=2, seed=5))
    train = list(read_rows(config, "train", Dropped()))
    assert train == [Row(n, {"question": f"train 5 {n - 1}", "answer": "#### 1"}) for n in (1, 2, 3)]
    assert len(list(read_rows(config, "test", Dropped()))) == 2
