import enum
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.environments import (
    CallFault,
    FunctionTool,
    MalformedCall,
    SchemaTool,
    ToolCall,
    ToolCallFormat,
    format_of_template,
    parse_turn,
    render_calls,
    render_declarations,
)
from agent_tunix.environments.tool_calls import MOST_CALLS


def add(a: int, b: float = 0.0, note: str = "", tags: list[str] | None = None) -> float:
    """Add two numbers."""
    return a + b


ADD = FunctionTool(add)
H, X, L, G, O = ToolCallFormat  # noqa: E741


def hermes(text: str) -> str:
    return f"<tool_call>\n{text}\n</tool_call>"


def xml(text: str) -> str:
    return f"<tool_call>\n{text}\n</tool_call>"


def block(text: str) -> str:
    return f"<function_calls>{text}</function_calls>"


def fence(text: str, language: str = "tool_code") -> str:
    return f"```{language}\n{text}\n```"


READ: list[tuple[ToolCallFormat, str, list[dict[str, Any]], str]] = [
    (H, hermes('{"name": "add", "arguments": {"a": 1}}'), [{"a": 1}], ""),
    (H, "Let me see. " + hermes('{"name": "add", "arguments": {"a": 1}}'), [{"a": 1}], "Let me see."),
    (H, hermes('{"name": "add", "arguments": {"a": 1}}') * 2, [{"a": 1}, {"a": 1}], ""),
    (H, hermes('{"name": "add"}'), [{}], ""),
    (H, hermes('{"name": "add", "arguments": null}'), [{}], ""),
    (H, hermes('{"name": "add", "arguments": "{\\"a\\": 1}"}'), [{"a": 1}], ""),
    (H, hermes('{"name": "add", "arguments": {"note": "</tool_call>"}}'), [{"note": "</tool_call>"}], ""),
    (H, '<tool_call>{"name": "add", "arguments": {"a": 1}}', [{"a": 1}], ""),
    (H, '<tool_call>{"name": "add"}\n<tool_call>{"name": "add"}</tool_call>', [{}, {}], ""),
    (H, "<think>" + hermes("{}") + "</think>" + hermes('{"name": "add"}'), [{}], "<think>" + hermes("{}") + "</think>"),
    (H, hermes('{"name": "add"}') + "<|im_end|>", [{}], ""),
    (X, xml("<function=add>\n<parameter=a>\n1\n</parameter>\n</function>"), [{"a": 1}], ""),
    (X, xml("<function=add>\n</function>"), [{}], ""),
    (X, xml("<function=add><parameter=note>1</parameter></function>"), [{"note": "1"}], ""),
    (X, xml("<function=add><parameter=note>\na\n\nb\n</parameter></function>"), [{"note": "a\n\nb"}], ""),
    (X, xml('<function=add><parameter=tags>["x"]</parameter></function>'), [{"tags": ["x"]}], ""),
    (X, xml("<function=add><parameter=a>one</parameter></function>"), [{"a": "one"}], ""),
    (X, xml("<function=add><parameter=unknown>1</parameter></function>"), [{"unknown": "1"}], ""),
    (X, "<tool_call><function=add><parameter=a>1</parameter></function>", [{"a": 1}], ""),
    (X, xml("<function=add><parameter=a>12 apples</parameter></function>"), [{"a": "12 apples"}], ""),
    (X, xml("<function=add><parameter=a>True</parameter></function>"), [{"a": True}], ""),
    (X, xml("<function=add><parameter=tags>\nNone\n</parameter></function>"), [{"tags": None}], ""),
    (X, xml("<function=add><parameter=note>None</parameter></function>"), [{"note": "None"}], ""),
    (X, "I add." + xml("<function=add></function>") + xml("<function=add></function>"), [{}, {}], "I add."),
    (L, '{"name": "add", "parameters": {"a": 1}}', [{"a": 1}], ""),
    (L, '{"name": "add", "parameters": {"a": 1}}; {"name": "add", "parameters": {}}<|eom_id|>', [{"a": 1}, {}], ""),
    (L, 'I add. <|python_tag|>{"name": "add", "parameters": {"a": 1}}<|eot_id|>', [{"a": 1}], "I add."),
    (G, fence("add(a=1, note='x')"), [{"a": 1, "note": "x"}], ""),
    (
        G,
        "First:\n" + fence("add(a=1)\nprint(add(a=-2.5))") + "\nthen wait.",
        [{"a": 1}, {"a": -2.5}],
        "First:\n\nthen wait.",
    ),
    (G, fence("[add(a=1), add(tags=('x',))]"), [{"a": 1}, {"tags": ["x"]}], ""),
    (G, fence("default_api.add(a=1)"), [{"a": 1}], ""),
    (G, fence('{"name": "add", "parameters": {"a": 1}}', "json"), [{"a": 1}], ""),
    (G, fence('[{"name": "add", "parameters": {"a": 1}}]', "json"), [{"a": 1}], ""),
    (G, '{"name": "add", "parameters": {"a": 1}}', [{"a": 1}], ""),
    (G, "```tool_code\nadd(a=1)", [{"a": 1}], ""),
    (G, '```json\n[\n  {"name": "add", "arguments": {"a": 1}}\n]\n```', [{"a": 1}], ""),
    (O, block("add(a=1)"), [{"a": 1}], ""),
    (
        O,
        "I add. " + block('add(a=1, note="x")\nadd(tags=[true, null])'),
        [{"a": 1, "note": "x"}, {"tags": [True, None]}],
        "I add.",
    ),
    (O, "<function_calls>\nadd(b=-2.5)\n<|im_end|>", [{"b": -2.5}], ""),
]


@pytest.mark.parametrize(("kind", "text", "arguments", "content"), READ)
def test_calls_are_read(kind: ToolCallFormat, text: str, arguments: list[dict[str, Any]], content: str) -> None:
    turn = parse_turn(text, kind, [ADD])
    assert turn.calls == tuple(ToolCall("add", one) for one in arguments)
    assert turn.content == content


MALFORMED: list[tuple[ToolCallFormat, str, CallFault]] = [
    (H, "<tool_call></tool_call>", CallFault.EMPTY),
    (H, '<tool_call>{"name": "add", "argum', CallFault.UNCLOSED),
    (H, "<tool_call>", CallFault.UNCLOSED),
    (H, '{"name": "add"}</tool_call>', CallFault.UNOPENED),
    (H, hermes("{name: add}"), CallFault.NOT_JSON),
    (H, hermes("{'name': 'add'}"), CallFault.NOT_JSON),
    (H, hermes("add(1)"), CallFault.NOT_JSON),
    (H, hermes('["add"]'), CallFault.NOT_AN_OBJECT),
    (H, hermes('{"arguments": {}}'), CallFault.NO_NAME),
    (H, hermes('{"name": "", "arguments": {}}'), CallFault.NO_NAME),
    (H, hermes('{"name": 3, "arguments": {}}'), CallFault.NAME_NOT_TEXT),
    (H, hermes('{"name": "add", "arguments": [1]}'), CallFault.ARGUMENTS_NOT_AN_OBJECT),
    (H, hermes('{"name": "add", "arguments": "one"}'), CallFault.ARGUMENTS_NOT_AN_OBJECT),
    (H, hermes('{"name": "add", "arguments": {"a": 1, "a": 2}}'), CallFault.DUPLICATE_ARGUMENT),
    (H, hermes('{"name": "add", "arguments": {"a": NaN}}'), CallFault.NOT_FINITE),
    (H, hermes('{"name": "add", "arguments": {"a": 1e999}}'), CallFault.NOT_FINITE),
    (H, hermes('{"name": "add", "arguments": {"note": "\\ud800"}}'), CallFault.NOT_UNICODE),
    (H, hermes('{"name": "\\ud800"}'), CallFault.NOT_UNICODE),
    (H, hermes('{"name": "add", "arguments": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}"), CallFault.TOO_DEEP),
    (H, hermes('{"name": "add"} and so on'), CallFault.TRAILING_TEXT),
    (H, hermes('{"name": "add"}}'), CallFault.TRAILING_TEXT),
    (X, xml('{"name": "add"}'), CallFault.NO_FUNCTION),
    (X, xml(""), CallFault.EMPTY),
    (X, xml("<function=></function>"), CallFault.NO_NAME),
    (X, xml("<function=add><parameter=>1</parameter></function>"), CallFault.NO_ARGUMENT_NAME),
    (X, xml("<function=add><parameter=a>1</function>"), CallFault.UNCLOSED_PARAMETER),
    (X, xml("<function=add>a=1</function>"), CallFault.UNEXPECTED_TEXT),
    (
        X,
        xml("<function=add><parameter=a>1</parameter><parameter=a>2</parameter></function>"),
        CallFault.DUPLICATE_ARGUMENT,
    ),
    (X, "<tool_call><function=add>", CallFault.UNCLOSED),
    (L, '{"name": "add", "parameters": {"a": 1}', CallFault.NOT_JSON),
    (L, "<|python_tag|>add.call(a=1)", CallFault.NOT_JSON),
    (L, "<|python_tag|>", CallFault.EMPTY),
    (L, '{"name": "add", "parameters": {}} Done.', CallFault.NOT_JSON),
    (G, fence("add(a=1"), CallFault.NOT_PYTHON),
    (G, fence("x = add(a=1)"), CallFault.NOT_A_CALL),
    (G, fence("1 + 1"), CallFault.NOT_A_CALL),
    (G, fence("add(1)"), CallFault.POSITIONAL_ARGUMENT),
    (G, fence("add(**{'a': 1})"), CallFault.POSITIONAL_ARGUMENT),
    (G, fence("add(a=open('/etc/passwd'))"), CallFault.NOT_A_LITERAL),
    (G, fence("add(a={1, 2})"), CallFault.NOT_A_LITERAL),
    (G, fence("add(a=1e999)"), CallFault.NOT_FINITE),
    (G, fence("add(a=0x" + "f" * 5000 + ")"), CallFault.NOT_A_LITERAL),
    (G, fence("add(a=" + "[" * 150 + "]" * 150 + ")"), CallFault.TOO_DEEP),
    (G, fence("add(a=" + "(" * 1000 + ")" * 1000 + ")"), CallFault.NOT_PYTHON),
    (G, fence("add(a=f'" + "{a}" * 20_000 + "')"), CallFault.NOT_PYTHON),
    (G, fence(" "), CallFault.EMPTY),
    (O, block(""), CallFault.EMPTY),
    (O, block("add(1)"), CallFault.POSITIONAL_ARGUMENT),
    (O, block("add(a=1"), CallFault.NOT_PYTHON),
    (O, block("add(a=b)"), CallFault.NOT_A_LITERAL),
    (O, "add(a=1)</function_calls>", CallFault.UNOPENED),
]


@pytest.mark.parametrize(("kind", "text", "fault"), MALFORMED)
def test_a_malformed_call_says_what_was_wrong(kind: ToolCallFormat, text: str, fault: CallFault) -> None:
    found = [call for call in parse_turn(text, kind, [ADD]).calls if isinstance(call, MalformedCall)]
    assert [call.fault for call in found] == [fault]
    assert found[0].message.startswith("malformed tool call: ")


@pytest.mark.parametrize("kind", ToolCallFormat)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "The answer is 4.",
        '{"answer": 4}',
        '{"name": "Ada", "age": 36}',
        "[1, 2]",
        "```python\nadd(a=1)\n```",
        "```json\n{}\n```",
        "```",
        "a < b and <tool> is no call",
        "<think>I might write <tool_call>{}</tool_call> or\n```tool_code\nadd(1)\n```",
    ],
)
def test_other_text_makes_no_call_and_is_kept(kind: ToolCallFormat, text: str) -> None:
    turn = parse_turn(text, kind, [ADD])
    assert turn.calls == ()
    assert turn.content == text


@pytest.mark.parametrize("depth", [300, 700, 950])
def test_a_nested_value_without_a_type_is_text(depth: int) -> None:
    value = "[" * depth + "]" * depth
    text = xml(f"<function=add><parameter=tags>{value}</parameter></function>")
    assert parse_turn(text, X, [ADD]).calls == (ToolCall("add", {"tags": value}),)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": ["string", "null"]}, "5", "5"),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": "string"}, "null", "null"),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, "2.5", 2.5),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, "None", None),
        ({"type": "boolean"}, "false", False),
        ({"type": "object"}, '{"x": [1]}', {"x": [1]}),
        ({}, "[1] and more", "[1] and more"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"$ref": "#/$defs/Grade"}, "1", "1"),
        ({"$ref": "#/$defs/Grade"}, "null", "null"),
        ({"anyOf": [{"$ref": "#/$defs/Grade"}, {"type": "null"}]}, "1", "1"),
        ({"anyOf": [{"$ref": "#/$defs/Grade"}, {"type": "null"}]}, "null", None),
        ({"$ref": "#/$defs/Number"}, "1", 1),
        ({"$ref": "#/$defs/Unknown"}, "1", 1),
    ],
)
def test_the_schema_types_a_value_that_is_written_without_quotes(schema: Any, text: str, value: Any) -> None:
    definitions = {"Grade": {"enum": ["1", "2"], "type": "string"}, "Number": {"enum": [1, 2], "type": "integer"}}
    tool = SchemaTool("add", "", {"properties": {"a": schema}, "$defs": definitions}, len)
    (call,) = parse_turn(xml(f"<function=add><parameter=a>{text}</parameter></function>"), X, [tool]).calls
    assert call == ToolCall("add", {"a": value})


class Grade(enum.Enum):
    ONE = "1"
    TWO = "2"


def test_the_text_of_an_enumeration_fits_the_tool() -> None:
    def grade(level: Grade) -> str:
        """Grade."""
        return level.name

    tool = FunctionTool(grade)
    (call,) = parse_turn(xml("<function=grade><parameter=level>1</parameter></function>"), X, [tool]).calls
    assert isinstance(call, ToolCall)
    assert tool.call(call.arguments).text == "ONE"


def test_good_and_malformed_calls_keep_their_order() -> None:
    text = hermes('{"name": "add"}') + hermes("{oops") + hermes('{"name": "add", "arguments": {"a": 2}}')
    first, second, third = parse_turn(text, H).calls
    assert (first, third) == (ToolCall("add", {}), ToolCall("add", {"a": 2}))
    assert isinstance(second, MalformedCall)


def test_the_number_of_calls_of_a_turn_is_limited() -> None:
    calls = parse_turn(hermes('{"name": "add"}') * 5000, H).calls
    assert len(calls) == MOST_CALLS + 1
    assert isinstance(calls[-1], MalformedCall)
    assert calls[-1].fault is CallFault.TOO_MANY


def test_long_broken_turns_are_read_in_linear_time() -> None:
    for text in (
        "<tool_call>" * 100_000,
        "<tool_call><function=add>" * 50_000,
        "```tool_code\n" * 50_000,
        "{" * 200_000,
        "</think>" * 50_000,
        '<tool_call>{"</think>' * 50_000,
    ):
        for kind in ToolCallFormat:
            assert len(parse_turn(text, kind, [ADD]).calls) <= MOST_CALLS + 1


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
ARGUMENTS = st.dictionaries(
    st.one_of(st.sampled_from(["from", "class", "a", "b c"]), st.text(min_size=1)),
    st.one_of(VALUES, st.lists(VALUES, max_size=3)),
    max_size=4,
)


@pytest.mark.parametrize("kind", [H, L, G, O])
@given(arguments=st.lists(ARGUMENTS, min_size=1, max_size=3))
def test_what_is_rendered_is_read_again(kind: ToolCallFormat, arguments: list[dict[str, Any]]) -> None:
    calls = [ToolCall("add", one) for one in arguments]
    if kind is G and "```" in json.dumps(arguments):
        return  # a fence cannot hold a fence
    assert parse_turn(render_calls(calls, kind), kind).calls == tuple(calls)


@pytest.mark.parametrize("kind", ToolCallFormat)
@pytest.mark.parametrize("before", ["", "<think>I add.</think>", "I add.</think>", "<think>a</think><think>b</think>"])
@pytest.mark.parametrize("note", ["</think>", "a</think> b</think>", "<think>a</think>", "```</think>"])
def test_the_end_of_a_thought_in_an_argument_ends_no_thought(kind: ToolCallFormat, before: str, note: str) -> None:
    if kind is G and "```" in note:
        return
    calls = [ToolCall("add", {"a": 1, "note": note})]
    turn = parse_turn(before + render_calls(calls, kind), kind, [ADD])
    assert turn.calls == tuple(calls)
    assert turn.content == before


@pytest.mark.parametrize("kind", ToolCallFormat)
@pytest.mark.parametrize("note", ["", "</think>"])
def test_a_call_in_a_thought_that_began_in_the_prompt_does_not_count(kind: ToolCallFormat, note: str) -> None:
    draft, call = (render_calls([ToolCall("add", {"a": number, "note": note})], kind) for number in (1, 2))
    draft = draft if not note else draft[:20]
    turn = parse_turn(f"{draft} Is it right?</think>{call}", kind, [ADD])
    assert turn.calls == (ToolCall("add", {"a": 2, "note": note}),)


def test_an_open_xml_call_in_a_thought_does_not_reach_into_the_call() -> None:
    call = xml("<function=add><parameter=a>2</parameter></function>")
    text = f"I could write <tool_call><function=add><parameter=a>1, I guess.</think>{call}"
    assert parse_turn(text, X, [ADD]).calls == (ToolCall("add", {"a": 2}),)


def test_rendered_xml_is_read_again_by_the_types_of_the_tool() -> None:
    calls = (ToolCall("add", {"a": 1, "b": 2.5, "note": "3\n4", "tags": ["x", "y"]}), ToolCall("add", {"a": -1}))
    assert parse_turn(render_calls(calls, X), X, [ADD]).calls == calls


@pytest.mark.parametrize("kind", ToolCallFormat)
def test_a_declaration_names_the_tool_and_shows_the_form(kind: ToolCallFormat) -> None:
    block = render_declarations([ADD], kind)
    assert '"name": "add"' in block
    assert "NAME" in block
    assert render_declarations([], kind) == ""


@pytest.mark.parametrize(
    ("template", "kind"),
    [
        ("{{ '<tool_call>\n<function=example>' }}", X),
        ("{{ '<tool_call>' + call | tojson }}", H),
        ("{{ '<function_calls>' + calls + '</function_calls>' }}", O),
        ("<|start_header_id|>{{ role }}<|end_header_id|>", L),
        ("<start_of_turn>{{ role }}", G),
        ("{{ messages }}", H),
    ],
)
def test_the_format_is_told_by_the_template(template: str, kind: ToolCallFormat) -> None:
    assert format_of_template(template) is kind
