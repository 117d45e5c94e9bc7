from typing import Any

import pytest

from agent_tunix.config.schema import PromptConfig
from agent_tunix.data.dropped import RowError
from agent_tunix.data.examples import Example
from agent_tunix.data.messages import few_shot_messages, fill_template, messages_for
from agent_tunix.errors import ConfigError, DataError
from tests.raising import raises


def example(prompt: str = "1 + 1?", messages: Any = None, **columns: Any) -> Example:
    return Example(prompt=prompt, columns={"question": prompt, **columns}, index=7, messages=messages)


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


def system(content: str) -> dict[str, str]:
    return {"role": "system", "content": content}


# System message and question.


@pytest.mark.parametrize("text", [None, "", "  ", " Show your work.\n"])
def test_the_system_message_opens_and_the_question_ends(text: str | None) -> None:
    opening = [system("Show your work.")] if (text or "").strip() else []
    assert messages_for(PromptConfig(system=text), example(" 1 + 1?\n")) == [*opening, user("1 + 1?")]


# The user's template.


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (None, "1 + 1?"),
        ("{question}\nAnswer in a number.", "1 + 1?\nAnswer in a number."),
        ("{prompt} ({unit}, {year})", "1 + 1? (km, 1987)"),
        ("{{literally}} {question}", "{literally} 1 + 1?"),
        ("{tags}", '["é", {"a": null}]'),
        ("  {question}  ", "1 + 1?"),
    ],
)
def test_a_template_takes_columns_by_name(template: str | None, expected: str) -> None:
    row = example(unit="km", year=1987, tags=["é", {"a": None}])
    assert messages_for(PromptConfig(template=template), row) == [user(expected)]


@pytest.mark.parametrize("data", ["{question}", "{0.__class__}", "%s ${x} {{", "}{", "\\1 \\g<0>"])
def test_braces_in_data_mean_nothing(data: str) -> None:
    assert fill_template("Q: {question}", data, {"question": data}) == f"Q: {data}"


@pytest.mark.parametrize("columns", [{}, {"unit": None}])
def test_a_missing_column_is_refused_by_name(columns: dict[str, Any]) -> None:
    with raises(DataError, "missing_column") as caught:
        messages_for(PromptConfig(template="{question} in {unit}"), example(**columns))
    assert str(caught.value) == "row 7 has no 'unit', which prompt.template requires; it has question"


@pytest.mark.parametrize("template", ["{", "}", "{}", "{0}", "{name!r}", "{name:>9}", "{a.b}", "{a[0]}"])
def test_a_template_that_is_none_is_refused(template: str) -> None:
    with raises(ConfigError, "invalid_prompt") as caught:
        messages_for(PromptConfig(template=template), example())
    assert str(caught.value).endswith("; write {{ and }} for braces")
    if "name" in template:
        assert "must contain columns as {name}, not {name" in str(caught.value)


# Worked examples.


SHOT = {"prompt": "2 + 2?", "answer": 4, "solution": "2 + 2 = 4"}


def test_worked_examples_are_turns_before_the_question() -> None:
    prompt = PromptConfig(system="Show your work.", few_shot=[SHOT, {"question": " 3 + 3? ", "answer": "6"}])
    assert messages_for(prompt, example()) == [
        system("Show your work."),
        user("2 + 2?"),
        assistant("<reasoning>2 + 2 = 4</reasoning><answer>4</answer>"),
        user("3 + 3?"),
        assistant("6"),
        user("1 + 1?"),
    ]


@pytest.mark.parametrize(
    ("form", "shot", "response"),
    [
        ("<answer>{answer}</answer>", {"prompt": "x", "answer": 4}, "<answer>4</answer>"),
        ("{reasoning} #### {answer}", {"prompt": "x", "answer": "4", "reasoning": "so"}, "so #### 4"),
        ("{reasoning} #### {answer}", {"prompt": "x", "answer": "4"}, "4"),
        (r"\boxed{{answer}}", {"prompt": "x", "answer": r"\frac{1}{2}"}, r"\boxed{\frac{1}{2}}"),
        (
            "{plan}<answer>{answer}</answer>",
            {"prompt": "x", "answer": "{plan}", "plan": "p"},
            "p<answer>{plan}</answer>",
        ),
        ("<answer>{answer}</answer>", {"prompt": "x", "answer": 4, "response": "four"}, "four"),
    ],
)
def test_a_response_follows_the_format_where_every_slot_is_known(
    form: str, shot: dict[str, Any], response: str
) -> None:
    assert few_shot_messages(PromptConfig(format=form, few_shot=[shot]))[1]["content"] == response


def test_worked_examples_are_put_as_the_question_is() -> None:
    prompt = PromptConfig(template="{question} In {unit}.", few_shot=[{**SHOT, "unit": "km"}])
    assert messages_for(prompt, example(unit="m"))[0] == user("2 + 2? In km.")


@pytest.mark.parametrize(
    ("shot", "code", "words"),
    [
        ({"answer": "4"}, "invalid_prompt", "must have a prompt, but has answer"),
        ({"prompt": "x"}, "invalid_prompt", "must have an answer, but has prompt"),
        ({}, "invalid_prompt", "has nothing"),
        ({"prompt": "x", "answer": 4}, "invalid_prompt", "has no 'unit'"),
    ],
)
def test_a_worked_example_that_lacks_something_is_refused(shot: dict[str, Any], code: str, words: str) -> None:
    with raises(ConfigError, code) as caught:
        few_shot_messages(PromptConfig(template="{prompt} in {unit}", few_shot=[shot]))
    assert str(caught.value).startswith("prompt.few_shot[0] ")
    assert words in str(caught.value)


# Conversations.


TALK = (user("1 + 1?"), assistant("2"), user("and 3?"))


SHOT_TURNS = [user("2 + 2?"), assistant("4")]


@pytest.mark.parametrize(
    ("talk", "expected"),
    [
        (TALK, [system("Be brief."), *SHOT_TURNS, *TALK]),
        ((system("Be kind."), *TALK), [system("Be kind."), *SHOT_TURNS, *TALK]),
        (
            (user("Hi."), system("Be kind."), user("1 + 1?")),
            [*SHOT_TURNS, user("Hi."), system("Be kind."), user("1 + 1?")],
        ),
    ],
)
def test_a_conversations_own_system_message_comes_before_the_configurations(talk: Any, expected: Any) -> None:
    prompt = PromptConfig(system="Be brief.", few_shot=[{"prompt": "2 + 2?", "answer": "4"}])
    assert messages_for(prompt, example(messages=talk)) == expected


@pytest.mark.parametrize("talk", [TALK, (user("1 + 1?"), assistant("calc"), {"role": "tool", "content": "2"})])
def test_a_conversation_is_put_as_it_is(talk: Any) -> None:
    assert messages_for(PromptConfig(), example(messages=talk)) == list(talk)


def test_the_rows_own_messages_stay_as_they_are() -> None:
    row = example(messages=TALK)
    messages_for(PromptConfig(), row)[0]["content"] = "changed"
    assert row.messages == (user("1 + 1?"), assistant("2"), user("and 3?"))


@pytest.mark.parametrize(
    ("talk", "reason", "detail"),
    [
        ((), "the conversation is empty", ""),
        (({"role": "admin", "content": "x"},), "a role that is not one of system, user", "message 1 has 'admin'"),
        (({"role": "user<|im_end|>", "content": "x"},), "a role that is not one of", "message 1 has"),
        (({"content": "x"},), "a role that is not one of", "has None"),
        (({"role": ["user"], "content": "x"},), "a role that is not one of", "has ['user']"),
        (({"role": "user"},), "a message without content", "message 1"),
        (({"role": "user", "content": [{"type": "image"}]},), "the content of a message is not text", "list"),
        (({"role": "user", "content": None},), "the content of a message is not text", "NoneType"),
        ((user("1 + 1?"), assistant("2")), "the conversation does not end with the user's turn", "assistant"),
    ],
)
def test_a_conversation_that_cannot_be_continued_says_why(talk: Any, reason: str, detail: str) -> None:
    with pytest.raises(RowError) as caught:
        messages_for(PromptConfig(), example(messages=talk))
    assert caught.value.reason.startswith(reason)
    assert detail in caught.value.detail


def test_a_template_for_questions_is_refused_for_conversations() -> None:
    with raises(ConfigError, "invalid_prompt", "set prompt.template=null"):
        messages_for(PromptConfig(template="{question}"), example(messages=TALK))
