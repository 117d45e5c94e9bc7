"""Rows of CSV files."""

import gzip
from pathlib import Path

import pytest

from agent_tunix.config.schema import Config, DataConfig
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row
from agent_tunix.data.sources import read_rows
from agent_tunix.errors import DataError

HEADER = b"question,answer\n"


def read(content: bytes, path: Path, max_row_bytes: int = 65536) -> tuple[list[Row], Dropped]:
    path.write_bytes(content)
    dropped = Dropped()
    config = Config(data=DataConfig(path=str(path), max_row_bytes=max_row_bytes))
    return list(read_rows(config, "train", dropped)), dropped


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        (b"q,1\n", {"question": "q", "answer": "1"}),
        (b"q,1", {"question": "q", "answer": "1"}),
        (b"q,1\r\n", {"question": "q", "answer": "1"}),
        (b'"a, b","say ""1"""\n', {"question": "a, b", "answer": 'say "1"'}),
        (b'"two\nlines","three\n\nlines"\n', {"question": "two\nlines", "answer": "three\n\nlines"}),
        (b'"a\r\nb",1\r\n', {"question": "a\r\nb", "answer": "1"}),
        (b",\n", {"question": "", "answer": ""}),
        (b" q , 1 \n", {"question": " q ", "answer": " 1 "}),
        (b"007,1e3\n", {"question": "007", "answer": "1e3"}),
        (b"null,NaN\n", {"question": "null", "answer": "NaN"}),
        (b"2020-01-01,true\n", {"question": "2020-01-01", "answer": "true"}),
        ("½ €,😀\n".encode(), {"question": "½ €", "answer": "😀"}),
        (b"a\x00b,1\n", {"question": "a\x00b", "answer": "1"}),
        (b"'q',1\n", {"question": "'q'", "answer": "1"}),
    ],
)
def test_values_stay_the_text_that_they_are(content: bytes, columns: dict[str, str], tmp_path: Path) -> None:
    rows, dropped = read(HEADER + content, tmp_path / "rows.csv")
    assert [row.columns for row in rows] == [columns]
    assert dropped.total == 0


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"q", "not 2 fields, as the header has"),
        (b"q,1,2", "not 2 fields, as the header has"),
        (b"q;1", "not 2 fields, as the header has"),
        (b"", "empty line"),
        (b'"q"x,1', "not CSV"),
        (b"q\rr,1", "not CSV"),
        (b"\xff,1", "not UTF-8"),
        (b"\xe9t\xe9,1", "not UTF-8"),
        (b"x" * 70_000 + b",1", "longer than data.max_row_bytes=65536"),
        (b'"' + b"x\n" * 40_000 + b"x", "longer than data.max_row_bytes=65536"),
    ],
)
def test_damaged_row_is_dropped_with_its_line(row: bytes, reason: str, tmp_path: Path) -> None:
    rows, dropped = read(HEADER + b"first,1\n" + row + b"\nlast,2\n", tmp_path / "rows.csv")
    assert rows[0] == Row(2, {"question": "first", "answer": "1"})
    assert rows[-1].columns == {"question": "last", "answer": "2"}
    assert dropped.rows[reason] == [3]


def test_a_quote_that_is_never_closed_costs_its_own_line_in_a_long_file(tmp_path: Path) -> None:
    content = HEADER + b'first,1\n"open,1\nsecond,2\n' + b"third,3\n" * 20_000
    rows, dropped = read(content, tmp_path / "rows.csv", max_row_bytes=1000)
    assert dropped.counts == {"longer than data.max_row_bytes=1000": 1}
    assert dropped.rows == {"longer than data.max_row_bytes=1000": [3]}
    assert len(rows) == 20_002


def test_a_quote_left_open_at_the_end_is_counted(tmp_path: Path) -> None:
    rows, dropped = read(HEADER + b'first,1\n"open,1\n', tmp_path / "rows.csv")
    assert len(rows) == 1
    assert dropped.rows == {"not CSV": [3]}


@pytest.mark.parametrize("size", [999, 1000])
def test_longest_row_that_is_allowed(size: int, tmp_path: Path) -> None:
    content = HEADER + b"x" * (size - 2) + b",1\n"
    rows, dropped = read(content, tmp_path / "rows.csv", max_row_bytes=999)
    assert (len(rows), dropped.total) == ((1, 0) if size == 999 else (0, 1))


def test_a_field_may_be_longer_than_the_library_would_have_it(tmp_path: Path) -> None:
    rows, _ = read(HEADER + b"x" * 200_000 + b",1\n", tmp_path / "rows.csv", max_row_bytes=300_000)
    assert len(rows[0].columns["question"]) == 200_000


def test_rows_are_numbered_by_the_line_on_which_they_begin(tmp_path: Path) -> None:
    rows, _ = read(HEADER + b'"a\nb\nc",1\nd,2\n', tmp_path / "rows.csv")
    assert [row.number for row in rows] == [2, 5]


@pytest.mark.parametrize("header", [b"\xef\xbb\xbfquestion,answer\n", b'\xef\xbb\xbf"question",answer\n'])
def test_a_byte_order_mark_is_no_part_of_the_header(header: bytes, tmp_path: Path) -> None:
    rows, _ = read(header + b"q,1\n", tmp_path / "rows.csv")
    assert rows[0].columns == {"question": "q", "answer": "1"}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"question,answer,question\n", "several columns named 'question'; give each its own name"),
        (b"\n", "should begin with a header, .* empty line"),
        ("question,answer\n".encode("utf-16"), "should begin with a header, .* not UTF-8"),
        (b"question,answer\rq,1\r", "should begin with a header, .* not CSV"),
        (b'"question,answer\n', "should begin with a header, .* not CSV"),
    ],
)
def test_a_header_that_cannot_be_one_refuses_the_file(header: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=words):
        read(header + b"q,1,2\n", tmp_path / "rows.csv")


@pytest.mark.parametrize("content", [b"", HEADER, b"question,answer"])
def test_a_file_without_rows_has_none(content: bytes, tmp_path: Path) -> None:
    rows, dropped = read(content, tmp_path / "rows.csv")
    assert (rows, dropped.total) == ([], 0)


def test_tab_separated_files_go_by_their_name(tmp_path: Path) -> None:
    content = b"question\tanswer\na, b\t1\n"
    assert read(content, tmp_path / "rows.tsv")[0][0].columns == {"question": "a, b", "answer": "1"}
    assert read(gzip.compress(content), tmp_path / "rows.tsv.gz")[0][0].columns == {"question": "a, b", "answer": "1"}


def test_each_file_has_a_header_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "part-1.csv").write_bytes(b"question,answer\nq,1\nbad\n")
    (tmp_path / "part-2.csv").write_bytes(b"answer,question,level\n2,r,hard\nworse\n")
    dropped = Dropped()
    rows = list(read_rows(Config(data=DataConfig(path=str(tmp_path / "part-*.csv"))), "train", dropped))
    assert rows == [
        Row(2, {"question": "q", "answer": "1"}),
        Row(5, {"question": "r", "answer": "2", "level": "hard"}),
    ]
    assert "part-1.csv line 3; it has 1" in dropped.describe()
    assert "part-2.csv line 3; it has 1" in dropped.describe()


# --- a stray quote costs its own line -------------------------------------------------------------------------------


def test_a_stray_quote_costs_its_own_line(tmp_path: Path) -> None:
    rows_around = [b'"a, %d",%d\n' % (number, number) for number in range(40)]
    rows, dropped = read(HEADER + b"".join([*rows_around[:3], b'"open,1\n', *rows_around[3:]]), tmp_path / "rows.csv")
    assert [row.columns["answer"] for row in rows] == [str(number) for number in range(40)]
    assert dropped.rows == {"not CSV": [5]}
    assert [row.number for row in rows] == [2, 3, 4, *range(6, 43)]


def test_a_quote_left_open_in_the_middle_of_a_short_file_costs_its_own_line(tmp_path: Path) -> None:
    rows, dropped = read(HEADER + b'first,1\n"open,1\n' + b"next,2\n" * 50, tmp_path / "rows.csv")
    assert len(rows) == 51
    assert dropped.rows == {"not CSV": [3]}


def test_as_many_stray_quotes_as_lines_cost_no_more_than_these(tmp_path: Path) -> None:
    rows, dropped = read(HEADER + b'"open,1\n' * 50_000 + b"last,2\n", tmp_path / "rows.csv")
    assert [row.number for row in rows] == [50_002]
    assert dropped.counts == {"not CSV": 50_000}


def test_lines_after_a_stray_quote_keep_their_faults_and_their_numbers(tmp_path: Path) -> None:
    content = HEADER + b'"open,1\nshort\n"two\nlines",2\n"open,3\n\xff,4\nlast,5\n'
    rows, dropped = read(content, tmp_path / "rows.csv")
    assert [(row.number, row.columns["answer"]) for row in rows] == [(4, "2"), (8, "5")]
    assert dropped.rows == {"not CSV": [2, 6], "not 2 fields, as the header has": [3], "not UTF-8": [7]}


def test_rows_after_a_file_with_a_stray_quote_are_numbered_through(tmp_path: Path) -> None:
    (tmp_path / "part-1.csv").write_bytes(HEADER + b'"open,1\nq,1\n')
    (tmp_path / "part-2.csv").write_bytes(HEADER + b"r,2\n")
    rows = list(read_rows(Config(data=DataConfig(path=str(tmp_path / "part-*.csv"))), "train", Dropped()))
    assert [row.number for row in rows] == [3, 5]
