"""What becomes of one row."""

import decimal
from typing import Any

import pytest

from agent_tunix.config.schema import DataConfig
from agent_tunix.data.dropped import RowError
from agent_tunix.data.examples import Row, is_marked, make_example, rename_columns


def row(**columns: Any) -> Row:
    return Row(7, columns)


def test_gsm8k_answer_is_split_into_solution_and_reference() -> None:
    example = make_example(row(question="6 × 4?", answer="6*4=24\n#### 24 "), DataConfig(), marked=True)
    assert example.prompt == "6 × 4?"
    assert example.columns == {"question": "6 × 4?", "answer": "24", "solution": "6*4=24"}
    assert example.index == 7


def test_reference_is_what_follows_the_last_mark() -> None:
    example = make_example(row(question="q", answer="#### a draft\n#### 1,234"), DataConfig(), marked=True)
    assert example.columns["answer"] == "1,234"
    assert example.columns["solution"] == "#### a draft"


def test_whole_answer_is_the_reference_of_an_unmarked_dataset() -> None:
    example = make_example(row(question="q", answer=" Paris\n"), DataConfig(), marked=False)
    assert example.columns == {"question": "q", "answer": "Paris"}


def test_other_columns_are_untouched() -> None:
    others = {"difficulty": 3, "tags": ["a", {"b": None}], "solution": " its own "}
    original = row(question="q", answer="work #### 5", **others)
    example = make_example(original, DataConfig(), marked=True)
    assert {name: example.columns[name] for name in others} == others
    assert original.columns["answer"] == "work #### 5"


def test_columns_of_other_names_are_kept_beside_the_reference() -> None:
    data = DataConfig(prompt_column="problem", answer_column="label")
    example = make_example(row(problem="p", label="work #### 5"), data, marked=True)
    assert example.prompt == "p"
    assert example.columns == {"problem": "p", "label": "work #### 5", "answer": "5", "solution": "work"}


@pytest.mark.parametrize(
    ("columns", "reason", "detail"),
    [
        ({"answer": "#### 1"}, "no column 'question'", "it has 'answer'"),
        ({}, "no column 'question'", "it has none"),
        ({"question": "q"}, "no column 'answer'", "it has 'question'"),
        ({"question": 5, "answer": "#### 1"}, "column 'question' is not text", "it is int"),
        ({"question": "q", "answer": None}, "column 'answer' is not text", "it is NoneType"),
        ({"question": " \n", "answer": "#### 1"}, "column 'question' is empty", ""),
        ({"question": "q", "answer": ""}, "column 'answer' is empty", ""),
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
def test_dataset_is_marked_if_half_of_its_answers_are(answers: list[Any], marked: bool) -> None:
    assert is_marked([row(answer=answer) for answer in answers], "answer") is marked


# --- columns ---------------------------------------------------------------------------------------------------------


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
    [({"new": "c"}, "no column 'c'"), ({"b": "a"}, "column 'a' cannot become 'b', which the row has too")],
)
def test_a_rename_that_loses_a_column_is_told(names: dict[str, str], reason: str) -> None:
    with pytest.raises(RowError) as caught:
        rename_columns(row(a=1, b=2), names)
    assert caught.value.reason == reason


def test_a_dataset_may_have_no_references() -> None:
    example = make_example(row(question="q", level=2), DataConfig(answer_column=None), marked=False)
    assert example.columns == {"question": "q", "level": 2}


def test_without_an_answer_column_a_column_of_that_name_is_as_any_other() -> None:
    data = DataConfig(answer_column=None)
    rows = [row(question="q", answer=["1", "one #### 1"])]
    assert not is_marked(rows, None)
    assert make_example(rows[0], data, marked=False).columns["answer"] == ["1", "one #### 1"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_answer_that_is_no_finite_number_is_no_reference(value: float) -> None:
    with pytest.raises(RowError, match="column 'answer' is no finite number"):
        make_example(row(question="q", answer=value), DataConfig(), marked=False)


@pytest.mark.parametrize(
    ("value", "reference"),
    [
        (72, "72"),
        (72.0, "72"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e300, "1e+300"),
        (2**64, str(2**64)),
        (decimal.Decimal("1.10"), "1.10"),
        (decimal.Decimal("72.00"), "72"),
    ],
)
def test_a_number_is_a_reference_as_people_write_it(value: Any, reference: str) -> None:
    example = make_example(row(question="q", answer=value), DataConfig(), marked=False)
    assert example.columns["answer"] == reference


# --- conversations ---------------------------------------------------------------------------------------------------

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


def test_text_is_no_conversation() -> None:
    assert make_example(row(question="q", answer="4"), DataConfig(), marked=False).messages is None


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "column 'question' is empty"),
        (["What is 2 + 2?"], "column 'question' holds a message without role and content"),
        ([{"role": "user"}], "column 'question' holds a message without role and content"),
        ([{"content": "q"}], "column 'question' holds a message without role and content"),
        ([None], "column 'question' holds a message without role and content"),
        ([{"role": "human", "content": "q"}], "column 'question' holds a message of an unknown role"),
        ([{"role": None, "content": "q"}], "column 'question' holds a message of an unknown role"),
        ([{"role": ["user"], "content": "q"}], "column 'question' holds a message of an unknown role"),
        ([{"role": "user", "content": None}], "column 'question' holds a message that is not text"),
        ([{"role": "user", "content": [{"type": "text"}]}], "column 'question' holds a message that is not text"),
        ([{**USER, "tool_calls": [{"name": "f"}]}], "column 'question' holds a message that calls tools"),
        ([{"role": "system", "content": "q"}], "column 'question' does not end with the user's message"),
        ([USER, {"role": "assistant", "content": "4"}], "column 'question' does not end with the user's message"),
        ([{"role": "user", "content": " \n"}], "column 'question' ends with an empty message"),
        ({"role": "user", "content": "q"}, "column 'question' is not text"),
    ],
)
def test_messages_that_cannot_be_continued_are_told(messages: Any, reason: str) -> None:
    with pytest.raises(RowError) as caught:
        make_example(row(question=messages, answer="4"), DataConfig(), marked=False)
    assert caught.value.reason == reason
