import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.schema import Config, DataConfig, TrainingConfig
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row
from agent_tunix.data.generated.arithmetic import make_arithmetic
from agent_tunix.data.generated.numbers import make_numbers
from agent_tunix.data.generated.word_problems import Split, make_problems
from agent_tunix.data.sources import read_rows
from agent_tunix.errors import ConfigError
from tests.data.reading import read, refusal
from tests.raising import raises

GOOD = b'{"question": "q", "answer": "#### 1"}'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "empty line"),
        (b" \t\r", "empty line"),
        (b"{", "not JSON"),
        (b'{"n": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"[" * 50_000, "not JSON"),
        (b"[1, 2]", "not a JSON object"),
        (b'{"question": "\xff"}', "not UTF-8"),
        (b'{"question": "\xed\xa0\x80"}', "not UTF-8"),
        (b'{"question": "\\ud83d"}', "not Unicode"),
        (b'{"tags": [{"\\ude00": 1}]}', "not Unicode"),
        (b'{"question": "' + b"x" * 1_000_000 + b'"}', "longer than data.max_row_bytes=65536"),
    ],
)
def test_malformed_line_is_dropped_with_its_number(line: bytes, reason: str, tmp_path: Path) -> None:
    rows, dropped = read(tmp_path / "rows.jsonl", b"\n".join([GOOD, line, GOOD, b""]))
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
    rows, dropped = read(tmp_path / "rows.jsonl", line + b"\n")
    assert [row.columns for row in rows] == [json.loads(line)]
    assert dropped.total == 0


def test_byte_order_mark_and_missing_last_newline_are_no_faults(tmp_path: Path) -> None:
    rows, dropped = read(tmp_path / "rows.jsonl", b"\xef\xbb\xbf" + GOOD + b"\n" + GOOD)
    assert len(rows) == 2
    assert dropped.total == 0


@pytest.mark.parametrize("end", [b"\n", b""])
def test_longest_row_that_is_allowed(end: bytes, tmp_path: Path) -> None:
    rows, dropped = read(tmp_path / "rows.jsonl", GOOD + end, max_row_bytes=len(GOOD))
    assert (len(rows), dropped.total) == (1, 0)
    rows, dropped = read(tmp_path / "rows.jsonl", GOOD + end, max_row_bytes=len(GOOD) - 1)
    assert (len(rows), dropped.total) == (0, 1)


@pytest.mark.parametrize("content", [b'[\n  {"question": "q"}\n]\n', b'\n [{"question": "q"}]', b"\xef\xbb\xbf[]"])
def test_a_file_that_is_a_json_array_is_refused_with_the_remedy(content: bytes, tmp_path: Path) -> None:
    assert "jq -c '.[]' rows.json > rows.jsonl" in refusal("invalid_row", tmp_path / "rows.json", content)


def test_a_json_file_may_hold_an_object_a_line(tmp_path: Path) -> None:
    rows, dropped = read(tmp_path / "rows.json", b"\n" + GOOD + b"\n[1]\n" + GOOD)
    assert len(rows) == 2
    assert dropped.rows == {"empty line": [1], "not a JSON object": [3]}


def test_an_unknown_source_names_the_nearest_and_training_comes_before_the_group(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_bytes(GOOD)
    config = Config(data=DataConfig(source="json", path=str(tmp_path)))
    with raises(ConfigError, "invalid_config") as caught:
        read_rows(config, "train", Dropped())
    assert str(caught.value).startswith("data.source must be one of auto, synthetic, jsonl, csv")
    assert "did you mean jsonl?" in str(caught.value)
    config.training = TrainingConfig(data_source="jsonl")
    assert len(list(read_rows(config, "train", Dropped()))) == 1
    config.training.data_source = "tfsd"
    with raises(ConfigError, "invalid_config") as caught:
        read_rows(config, "train", Dropped())
    assert str(caught.value).startswith("training.data_source must be")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").touch(mode=0)
    assert "Permission denied" in refusal("damaged_data", tmp_path)


def test_synthetic_rows_follow_the_configuration() -> None:
    config = Config(data=DataConfig(num_train=3, num_test=2, seed=5))
    counts: dict[Split, int] = {"train": 3, "test": 2}
    for split, count in counts.items():
        rows = list(read_rows(config, split, Dropped()))
        assert rows == [Row(n, problem) for n, problem in enumerate(make_problems(split, count, seed=5), 1)]


@pytest.mark.parametrize(("problems", "make"), [("arithmetic", make_arithmetic), ("numbers", make_numbers)])
def test_other_problems_are_generated_by_name(problems: str, make: Callable[..., list[dict[str, Any]]]) -> None:
    config = Config(data=DataConfig(num_test=12, seed=5, problems=problems))
    assert [row.columns for row in read_rows(config, "test", Dropped())] == make("test", 12, seed=5)
