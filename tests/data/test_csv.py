import gzip
from pathlib import Path

import pytest

from agent_tunix.data.examples import Row
from tests.data.reading import read, refusal

HEADER = b"question,answer\n"


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
    rows, dropped = read(tmp_path / "rows.csv", HEADER + content)
    assert [row.columns for row in rows] == [columns]
    assert dropped.total == 0


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"q", "not the 2 fields of the header"),
        (b"q,1,2", "not the 2 fields of the header"),
        (b"q;1", "not the 2 fields of the header"),
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
    rows, dropped = read(tmp_path / "rows.csv", HEADER + b"first,1\n" + row + b"\nlast,2\n")
    assert rows[0] == Row(2, {"question": "first", "answer": "1"})
    assert rows[-1].columns == {"question": "last", "answer": "2"}
    assert dropped.rows[reason] == [3]


def test_an_open_quote_takes_the_lines_up_to_the_next_with_it(tmp_path: Path) -> None:
    content = b'first,1\n"open,1\nsecond,2\n"third",3\nlast,4\n"'
    rows, dropped = read(tmp_path / "rows.csv", HEADER + content)
    assert [row.number for row in rows] == [2, 6]
    assert dropped.rows == {"not CSV": [3, 7]}


@pytest.mark.parametrize("size", [999, 1000])
def test_longest_row_that_is_allowed(size: int, tmp_path: Path) -> None:
    content = HEADER + b"x" * (size - 2) + b",1\n"
    rows, dropped = read(tmp_path / "rows.csv", content, max_row_bytes=999)
    assert (len(rows), dropped.total) == ((1, 0) if size == 999 else (0, 1))


def test_rows_are_numbered_by_the_line_on_which_they_begin(tmp_path: Path) -> None:
    rows, _ = read(tmp_path / "rows.csv", HEADER + b'"a\nb\nc",1\nd,2\n')
    assert [row.number for row in rows] == [2, 5]


@pytest.mark.parametrize("header", [b"\xef\xbb\xbfquestion,answer\n", b'\xef\xbb\xbf"question",answer\n'])
def test_a_byte_order_mark_is_no_part_of_the_header(header: bytes, tmp_path: Path) -> None:
    rows, _ = read(tmp_path / "rows.csv", header + b"q,1\n")
    assert rows[0].columns == {"question": "q", "answer": "1"}


@pytest.mark.parametrize(
    ("header", "code", "words"),
    [
        (b"question,answer,question\n", "invalid_header", "'question'"),
        (b"\n", "invalid_header", "empty line"),
        ("question,answer\n".encode("utf-16"), "invalid_header", "not UTF-8"),
        (b"question,answer\rq,1\r", "invalid_header", "not CSV"),
        (b'"question,answer\n', "invalid_header", "not CSV"),
    ],
)
def test_a_header_that_cannot_be_one_refuses_the_file(header: bytes, code: str, words: str, tmp_path: Path) -> None:
    assert words in refusal(code, tmp_path / "rows.csv", header + b"q,1,2\n")


def test_tab_separated_files_go_by_their_name(tmp_path: Path) -> None:
    content = b"question\tanswer\na, b\t1\n"
    assert read(tmp_path / "rows.tsv", content)[0][0].columns == {"question": "a, b", "answer": "1"}
    assert read(tmp_path / "rows.tsv.gz", gzip.compress(content))[0][0].columns == {"question": "a, b", "answer": "1"}


def test_each_file_has_a_header_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "part-1.csv").write_bytes(b"question,answer\nq,1\nbad\n")
    (tmp_path / "part-2.csv").write_bytes(b"answer,question,level\n2,r,hard\nworse\n")
    rows, dropped = read(tmp_path / "part-*.csv")
    assert rows == [
        Row(2, {"question": "q", "answer": "1"}),
        Row(5, {"question": "r", "answer": "2", "level": "hard"}),
    ]
    assert "part-1.csv line 3; it has 1" in dropped.describe()
    assert "part-2.csv line 3; it has 1" in dropped.describe()
