import decimal
from typing import Any

import pytest

from agent_tunix.config.schema import DataConfig
from agent_tunix.data.dropped import Dropped, RowError
from agent_tunix.data.examples import Row, find_column, is_marked, make_example, rename_columns


def row(**columns: Any) -> Row:
    return Row(7, columns)


OTHERS: dict[str, Any] = {"difficulty": 3, "tags": ["a", {"b": None}]}
RENAMED = DataConfig(prompt_column="problem", answer_column="label")
UNANSWERED = DataConfig(answer_column=None)


@pytest.mark.parametrize(
    ("columns", "data", "marked", "more"),
    [
        (
            {"question": "q", "answer": "6*4=24\n#### 24 "},
            DataConfig(),
            True,
            {"answer": "24", "worked_solution": "6*4=24"},
        ),
        (
            {"question": "q", "answer": "#### a draft\n#### 1,234"},
            DataConfig(),
            True,
            {"answer": "1,234", "worked_solution": "#### a draft"},
        ),
        ({"question": "q", "answer": " Paris\n"}, DataConfig(), False, {"answer": "Paris"}),
        (
            {"question": "q", "answer": "work #### 5", "worked_solution": " own ", **OTHERS},
            DataConfig(),
            True,
            {"answer": "5"},
        ),
        ({"problem": "q", "label": "work #### 5"}, RENAMED, True, {"answer": "5", "worked_solution": "work"}),
        ({"question": "q", "level": 2}, UNANSWERED, False, {}),
        ({"question": "q", "answer": ["1", "one #### 1"]}, UNANSWERED, False, {}),
    ],
)
def test_the_reference_is_the_answer_or_what_follows_its_last_mark(
    columns: dict[str, Any], data: DataConfig, marked: bool, more: dict[str, str]
) -> None:
    original = row(**columns)
    example = make_example(original, data, marked=marked)
    assert (example.prompt, example.index) == ("q", 7)
    assert example.columns == {**columns, **more}
    assert example.messages is None
    assert original.columns == columns


@pytest.mark.parametrize(
    ("columns", "reason", "detail"),
    [
        ({"answer": "#### 1"}, "no column 'question'", "it has 'answer'"),
        ({}, "no column 'question' or 'answer'", "it has none"),
        ({"question": "q"}, "no column 'answer'", "it has 'question'"),
        ({"question": 5, "answer": "#### 1"}, "column 'question' is not text", "it is int"),
        ({"question": "q", "answer": None}, "column 'answer' is not text", "it is NoneType"),
        ({"question": " \n", "answer": "#### 1"}, "column 'question' is empty", ""),
        ({"question": "q", "answer": ""}, "column 'answer' is empty", ""),
        ({"question": "q", "answer": float("nan")}, "column 'answer' is not a finite number", "it is nan"),
        ({"question": "q", "answer": float("inf")}, "column 'answer' is not a finite number", "it is inf"),
        ({"question": "q", "answer": "just 24"}, "no #### in column 'answer'", ""),
        ({"question": "q", "answer": "work #### \n"}, "nothing after #### in column 'answer'", ""),
    ],
)
def test_malformed_row_says_what_is_wrong(columns: dict[str, Any], reason: str, detail: str) -> None:
    with pytest.raises(RowError) as caught:
        make_example(row(**columns), DataConfig(), marked=True)
    assert (caught.value.reason, caught.value.detail) == (reason, detail)


@pytest.mark.parametrize(
    ("answers", "marked"),
    [
        (["24", "#### 24"], True),
        (["24", "24", "#### 24"], False),
        (["24", "#24"], False),
        ([None, 24, "x #### 3"], True),
        ([None, None, "x #### 3"], True),
        ([None], False),
        ([], False),
    ],
)
def test_a_dataset_is_marked_if_half_of_its_answers_are(answers: list[Any], marked: bool) -> None:
    rows = [row(answer=answer) for answer in answers]
    assert is_marked(rows, "answer") is marked
    assert not is_marked(rows, None)


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        ({}, {"a": 1, "b": 2}),
        ({"new": "a"}, {"b": 2, "new": 1}),
        ({"a": "b", "b": "a"}, {"a": 2, "b": 1}),
        ({"x": "a", "y": "a"}, {"b": 2, "x": 1, "y": 1}),
        ({"a": "a"}, {"b": 2, "a": 1}),
    ],
)
def test_columns_are_renamed_and_keep_their_values(names: dict[str, str], columns: dict[str, Any]) -> None:
    assert rename_columns(row(a=1, b=2), names) == Row(7, columns)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"new": "c"}, "no column 'c'"),
        ({"b": "a"}, "column 'a' cannot be renamed to 'b', because the row already has that column"),
    ],
)
def test_a_rename_that_loses_a_column_is_told(names: dict[str, str], reason: str) -> None:
    with pytest.raises(RowError) as caught:
        rename_columns(row(a=1, b=2), names)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "value", [72, 72.0, 0.1, 2**64, decimal.Decimal("1.10"), True, ["4", "four"], [], {"city": "Paris", "year": 1900}]
)
def test_a_reference_that_is_no_text_stays_as_it_is(value: Any) -> None:
    example = make_example(row(question="q", answer=value), DataConfig(), marked=False)
    assert example.columns["answer"] == value
    assert type(example.columns["answer"]) is type(value)


def test_a_dotted_name_means_a_nested_column() -> None:
    data = DataConfig(prompt_column="task.text", answer_column="reward_model.ground_truth")
    nested = row(task={"text": "q"}, reward_model={"ground_truth": {"a": [1]}})
    example = make_example(nested, data, marked=False)
    assert (example.prompt, example.columns["answer"]) == ("q", {"a": [1]})
    assert rename_columns(nested, {"truth": "reward_model.ground_truth"}).columns["truth"] == {"a": [1]}


def test_a_column_whose_own_name_has_a_dot_comes_first() -> None:
    assert find_column({"a.b": 1, "a": {"b": 2}}, "a.b") == 1
    assert find_column({"a": {"b.c": 3}}, "a.b.c") == 3
    assert find_column({"a": 1}, "a.b", "none") == "none"


@pytest.mark.parametrize("name", ["reward_model.truth", "other.ground_truth", "reward_model.ground_truth.deeper"])
def test_a_nested_column_that_is_missing_is_named(name: str) -> None:
    nested = row(question="q", reward_model={"ground_truth": "4"})
    with pytest.raises(RowError) as caught:
        make_example(nested, DataConfig(answer_column=name), marked=False)
    assert caught.value.reason == f"no column {name!r}"


USER = {"role": "user", "content": "What is 2 + 2?"}
CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": ""},
    USER,
]


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_conversation_is_kept_and_its_last_message_is_the_problem(kind: type) -> None:
    example = make_example(row(question=kind(CONVERSATION), answer="4"), DataConfig(), marked=False)
    assert example.prompt == "What is 2 + 2?"
    assert example.messages == tuple(CONVERSATION)
    assert example.columns["question"] == kind(CONVERSATION)


def test_fields_that_a_parquet_file_fills_with_nothing_are_left_out() -> None:
    message = {**USER, "name": None, "tool_calls": None}
    example = make_example(row(question=[message], answer="4"), DataConfig(), marked=False)
    assert example.messages == (USER,)


def test_a_conversation_may_end_with_what_a_tool_gave_and_keeps_its_other_texts() -> None:
    result = {"role": "tool", "name": "add", "tool_call_id": "call_7", "content": "4", "weight": 1}
    talk = [USER, {"role": "assistant", "content": "add(2, 2)"}, result]
    example = make_example(row(question=talk, answer="4"), DataConfig(), marked=False)
    assert example.messages is not None
    assert example.messages[-1] == {"role": "tool", "name": "add", "tool_call_id": "call_7", "content": "4"}
    assert example.prompt == USER["content"]


@pytest.mark.parametrize("arguments", [{"a": 2}, '{"a": 2}'])
def test_tool_calls_are_kept_with_their_arguments_as_a_mapping(arguments: Any) -> None:
    call = {"id": "call_7", "type": "function", "function": {"name": "add", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": "call_7", "content": "4"}
    talk = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
    example = make_example(row(question=talk, answer="4"), DataConfig(), marked=False)
    assert example.messages is not None
    function = {"name": "add", "arguments": {"a": 2}}
    assert example.messages[1] == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call_7", "type": "function", "function": function}],
    }


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "is empty"),
        (["What is 2 + 2?"], "has a message without role and content"),
        ([{"role": "user"}], "has a message without role and content"),
        ([{"content": "q"}], "has a message without role and content"),
        ([{"role": "human", "content": "q"}], "has a message with an unknown role"),
        ([{"role": None, "content": "q"}], "has a message with an unknown role"),
        ([{"role": ["user"], "content": "q"}], "has a message with an unknown role"),
        ([{"role": "user", "content": None}], "has a message that is not text"),
        ([{"role": "user", "content": [{"type": "text"}]}], "has a message that is not text"),
        ([{**USER, "tool_calls": [{"name": "f"}]}], "has a tool call without a name and arguments"),
        ([{**USER, "tool_calls": ["f()"]}], "has a tool call without a name and arguments"),
        (
            [{**USER, "tool_calls": [{"name": "f", "arguments": '{"a": "\\ud800"}'}]}],
            "has a tool call without a name and arguments",
        ),
        ([{"role": "system", "content": "q"}], "does not end with the user's message"),
        ([USER, {"role": "assistant", "content": "4"}], "does not end with the user's message"),
        ([{"role": "user", "content": " \n"}], "ends with an empty message"),
        ({"role": "user", "content": "q"}, "is not text"),
    ],
)
def test_messages_that_cannot_be_continued_are_told(messages: Any, reason: str) -> None:
    with pytest.raises(RowError) as caught:
        make_example(row(question=messages, answer="4"), DataConfig(), marked=False)
    assert caught.value.reason == f"column 'question' {reason}"


def test_the_prompt_may_come_from_the_environment() -> None:
    columns = {"question": [{"role": "user", "content": ""}], "answer": "4"}
    assert make_example(row(**columns), DataConfig(empty_prompts=True), marked=False).prompt == ""


def test_pairs_of_texts_require_a_prompt() -> None:
    with pytest.raises(RowError) as caught:
        make_example(
            row(chosen="Human: 2?\n\nAssistant: 2.", rejected="Human: 2?\n\nAssistant: 3."), DataConfig(), marked=False
        )
    assert "list of messages" in caught.value.reason


def test_each_reason_is_counted_and_the_first_rows_are_shown() -> None:
    dropped = Dropped()
    for number in range(1, 9):
        dropped.add("not JSON", number, f"detail of {number}")
    dropped.add("empty line", 40)
    dropped.add("not UTF-8", 3, "byte 2 is 0xff")
    assert dropped.total == 10
    assert dropped.describe() == (
        "8 × not JSON (lines 1, 2, 3, 4, 5, …; the first: detail of 1), 1 × empty line (line 40), "
        "1 × not UTF-8 (line 3; byte 2 is 0xff)"
    )
