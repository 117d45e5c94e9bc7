"""Turns without a call that contain one in another form are found, and prose is not."""

import pytest

from agent_tunix.config.checks import check
from agent_tunix.config.schema import Config
from agent_tunix.environments import (
    ToolCall,
    ToolCallFormat,
    UnreadCall,
    parse_turn,
    render_calls,
    resolve_environment,
    run_episode,
)
from agent_tunix.environments.unread_calls import find_unread_call
from agent_tunix.workbench.diagnosis.episodes import CALL_FORMATS
from tests.environments.support import script

TOOLS = list(resolve_environment("calculator").declare())
CALL = ToolCall("calculator", {"expression": "6 * 7"})
FORMATS = list(ToolCallFormat)


@pytest.mark.parametrize("read", FORMATS)
@pytest.mark.parametrize("written", FORMATS)
def test_a_call_in_one_format_is_seen_by_the_others(written: ToolCallFormat, read: ToolCallFormat) -> None:
    for before in ("", "I calculate.\n", "<think>6 times 7</think>\n"):
        text = before + render_calls([CALL], written)
        if not parse_turn(text, read, TOOLS).calls:
            assert find_unread_call(text, read, TOOLS), (text, read)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (render_calls([CALL], "qwen_xml"), "qwen_xml"),
        (render_calls([CALL], "llama3"), "llama3"),
        (render_calls([CALL], "gemma"), "gemma"),
        (render_calls([CALL], "olmo3"), "olmo3"),
        ("<|tool_call>call:calculator{expression:6}<tool_call|>", "gemma4"),
        ('[TOOL_CALLS] [{"name": "calculator", "arguments": {"expression": "6"}}]', "mistral"),
        ("<\uff5ctool\u2581calls\u2581begin\uff5c>calculator", "deepseek"),
        ("<|tool_calls_section_begin|>functions.calculator:0", "kimi"),
        ('<invoke name="calculator"><parameter name="expression">6</parameter></invoke>', "anthropic"),
        ('<function=calculator>{"expression": "6"}</function>', "function_tag"),
        ("Thought: I need it.\nAction: calculator\nAction Input: 6 * 7", "react"),
        ('I call it: {"name": "calculator", "arguments": {"expression": "6"}}', "json"),
        ("{'tool': 'calculator', 'expression': '6'}", "json"),
        ('```python\nprint(calculator("6 * 7"))\n```', "python"),
        ('[calculator(expression="6")]', "python"),
        ("<calculator>6 * 7</calculator>", "tag"),
    ],
)
def test_each_form_has_its_name(text: str, form: str) -> None:
    calls = parse_turn(text, "hermes", TOOLS).calls
    assert not any(isinstance(call, ToolCall) for call in calls)
    assert find_unread_call(text, "hermes", TOOLS, is_malformed=bool(calls)) == form


@pytest.mark.parametrize(
    "text",
    [
        "It is 42.",
        "The calculator says 42.",
        "I could use calculator (the tool) for 6 * 7.",
        '{"answer": 42}',
        '{"name": "Ada", "parameters": {"age": 36}}',
        "```python\nprint(6 * 7)\n```",
        "<think>calculator(expression=6)",
        "<think><tool_call>...</tool_call></think>It is 42.",
        "a <b> c, f(x) = 3",
        "",
    ],
)
@pytest.mark.parametrize("read", FORMATS)
def test_other_text_is_no_call(text: str, read: ToolCallFormat) -> None:
    assert find_unread_call(text, read, TOOLS) == ""


def test_an_episode_counts_the_turn() -> None:
    turn = render_calls([CALL], "qwen_xml")
    calls = render_calls([CALL], "hermes")
    other = render_calls([CALL], "gemma")
    environment = resolve_environment("calculator").open()
    result = run_episode(environment, script(calls, turn, other), {"question": "6 * 7?"})
    assert result.unread_calls == (UnreadCall(1, "qwen_xml"), UnreadCall(2, "gemma"))
    assert [call.name for call in result.calls] == ["calculator", ""]


def test_a_broken_call_in_the_format_that_is_read_is_only_malformed() -> None:
    turn = '<tool_call>{"name": "calculator", "arguments": {</tool_call>'
    result = run_episode(resolve_environment("calculator").open(), script(turn, "42"), {"question": "6 * 7?"})
    assert (result.unread_calls, len(result.calls)) == ((), 1)


def test_a_reader_of_texts_has_no_calls() -> None:
    turn = render_calls([CALL], "qwen_xml")
    result = run_episode(resolve_environment("guess_number").open(), script("5"), {"target": 5})
    assert result.unread_calls == ()
    assert find_unread_call(turn, "hermes", []) == ""


@pytest.mark.parametrize("name", ["auto", *FORMATS])
def test_the_configuration_takes_every_format(name: str) -> None:
    config = Config()
    config.environment.call_format = name
    check(config)


def test_the_findings_know_all_formats() -> None:
    assert tuple(FORMATS) == CALL_FORMATS
