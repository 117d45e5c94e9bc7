import json
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.schema import DataConfig
from agent_tunix.data.problems import make_problem, read_problems
from agent_tunix.errors import DataError
from tests.raising import raises

TALK = [{"role": role, "content": text} for role, text in (("user", "Hi."), ("assistant", "Hi."), ("user", "1 + 1?"))]


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"problem": "1 + 1?", "question": "another"}, "1 + 1?"),
        ({"prompt": "1 + 1?"}, "1 + 1?"),
        ({"question": "1 + 1?"}, "1 + 1?"),
        ({"problem": "", "question": "1 + 1?"}, "1 + 1?"),
        ({"messages": TALK}, "1 + 1?"),
        ({"prompt": TALK}, "1 + 1?"),
    ],
)
def test_a_problem_is_found_by_its_column(row: dict[str, Any], prompt: str) -> None:
    example = make_problem(row, 3, DataConfig(prompt_column="problem"))
    assert (example.prompt, example.index, example.columns) == (prompt, 3, row)
    assert example.messages == (tuple(TALK) if TALK in row.values() else None)


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"answer": " 4 "}, {"answer": "4"}),
        ({"answer": 4}, {"answer": 4}),
        ({"answer": {"a": 1}}, {"answer": {"a": 1}}),
        ({"answer": "2 + 2 #### 4"}, {"answer": "4", "worked_solution": "2 + 2"}),
        ({"gold": "4"}, {"gold": "4", "answer": "4"}),
        ({"answer": None}, {"answer": None}),
    ],
)
def test_the_reference_is_what_training_takes_for_it(row: dict[str, Any], columns: dict[str, Any]) -> None:
    data = DataConfig(answer_column="gold" if "gold" in row else "answer")
    assert make_problem({"question": "x", **row}, 1, data).columns == {"question": "x", **columns}


def test_lines_are_counted_and_blank_ones_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    first, second = ({"prompt": text} for text in ("a\u2028b\x85c", "d"))
    path.write_bytes(b"\xef\xbb\xbf" + f"{json.dumps(first, ensure_ascii=False)}\r\n\n{json.dumps(second)}".encode())
    assert [(example.index, example.prompt) for example in read_problems(path, DataConfig())] == [
        (1, "a\u2028b\x85c"),
        (3, "d"),
    ]


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (b'{"prompt": "x"}\n{\n', "invalid_row", "line 2 must be a JSON object"),
        (b'{"prompt": "x"}\n[]\n', "invalid_row", "not an object: it is list"),
        (b'{"answer": 3}\n', "invalid_row", "no problem: it has 'answer'"),
        (b'{"prompt": 3}\n', "invalid_row", "no problem"),
        (b'{"prompt": ["x"]}\n', "invalid_row", "without role and content"),
        (b"\n" + b"[" * 100_000, "invalid_row", "line 2 must be"),
        (None, "damaged_data", "rows.jsonl"),
        (b"\xff\xfe", "damaged_data", "rows.jsonl"),
        (b"\n \n", "no_rows", "rows.jsonl"),
    ],
)
def test_a_file_without_problems_is_refused(content: bytes | None, code: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    if content is not None:
        path.write_bytes(content)
    with raises(DataError, code, words):
        read_problems(path, DataConfig())


def test_a_conversation_is_read_as_in_training() -> None:
    call = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 1}'}}
    row = {
        "messages": [
            {"role": "user", "content": "1 + 1?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "2", "tool_calls": None},
        ]
    }
    example = make_problem(row, 1, DataConfig())
    assert example.prompt == "1 + 1?"
    assert example.messages is not None
    assert example.messages[1]["tool_calls"][0]["function"]["arguments"] == {"a": 1, "b": 1}
    assert [message["content"] for message in example.messages] == ["1 + 1?", "", "2"]


def test_columns_have_the_names_of_training() -> None:
    config = DataConfig(prompt_column="extra.question", columns={"level": "difficulty"})
    example = make_problem({"extra": {"question": "1 + 1?"}, "difficulty": 3}, 1, config)
    assert (example.prompt, example.columns["level"]) == ("1 + 1?", 3)
