"""Tools of a row in every layout that transformers, TRL or ms-swift accept."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent_tunix.config.schema import Config
from agent_tunix.data import Dropped, RowError, iter_examples
from agent_tunix.data.tool_schemas import read_tools
from agent_tunix.policy.chat.chat_template import ChatTemplate

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "weather", "description": "Tell the weather.", "parameters": PARAMETERS}
TOOL = {"type": "function", "function": FUNCTION}
SWIFT = {"name_for_model": "weather", "description_for_model": "Tell the weather.", "parameters": PARAMETERS}


@pytest.mark.parametrize(
    "given",
    [
        [TOOL],
        (TOOL,),
        TOOL,
        [FUNCTION],
        [{"function": FUNCTION}],
        [{"type": "function", **FUNCTION}],
        [SWIFT],
        [{**FUNCTION, "parameters": json.dumps(PARAMETERS)}],
        json.dumps([TOOL]),
        json.dumps(TOOL),
        json.dumps([FUNCTION]),
        [json.dumps(TOOL)],
        [json.dumps(FUNCTION)],
        repr([TOOL]),
        [repr(TOOL)],
    ],
)
def test_every_layout_gives_the_same_tools(given: Any) -> None:
    assert read_tools({"tools": given}) == [TOOL]


@pytest.mark.parametrize("given", [None, [], "", "  ", "[]", "null", {}])
def test_a_row_may_have_no_tools(given: Any) -> None:
    assert read_tools({"tools": given}) == read_tools({}) == []


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("calculator, search", "neither JSON nor a Python literal"),
        (["calculator"], "neither JSON|no object"),
        (3, "int instead of a list"),
        ("7", "int instead of a list"),
        ([3], "no object"),
        ([{"name": "weather", "input_schema": PARAMETERS}], "Anthropic"),
        ([{"name": "weather", "inputSchema": PARAMETERS}], "MCP"),
        ([{"functionDeclarations": [FUNCTION]}], "Gemini"),
        ([{"type": "web_search"}], "without a name"),
        ([{"type": "function", "function": {"name": None}}], "without a name"),
        ([{"name": "weather", "parameters": "city"}], "parameters are no object"),
    ],
)
def test_other_layouts_are_refused_by_name(given: Any, reason: str) -> None:
    with pytest.raises(RowError, match=reason):
        read_tools({"tools": given})


def test_only_padded_rows_lose_their_nulls() -> None:
    unit = {"type": ["string", "null"], "default": None, "description": None}
    parameters = {"type": "object", "properties": {"unit": unit, "other": None, "kind": {"enum": ["a", None]}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    assert read_tools({"tools": [tool]}) == [tool]
    ((_, padded),) = [one.values() for one in read_tools({"tools": [tool]}, is_padded=True)]
    kept = {"unit": {"type": ["string", "null"], "default": None}, "kind": {"enum": ["a", None]}}
    assert padded["parameters"]["properties"] == kept
    assert read_tools({"tools": [json.dumps(tool)]}, is_padded=True) == [tool]


def _examples(path: Path) -> Any:
    config = Config()
    config.data.path = str(path)
    return list(iter_examples(config, "train", Dropped()))


def test_parquet_and_json_lines_give_the_same_tools_and_calls(tmp_path: Path) -> None:
    def row(name: str, kind: str, **arguments: Any) -> dict[str, Any]:
        schema = {"type": "object", "properties": {key: {"type": kind} for key in arguments}}
        call = {"type": "function", "function": {"name": name, "arguments": arguments}}
        talk = [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "ok"},
        ]
        return {"question": talk, "answer": "1", "tools": [{"name": name, "parameters": schema}]}

    rows = [row("add", "integer", a=1, b=2), row("find", "string", text="x"), row("stop", "null")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    packed, written = _examples(tmp_path / "rows.parquet"), _examples(tmp_path / "rows.jsonl")
    assert [example.tools for example in packed] == [example.tools for example in written]
    assert [example.messages for example in packed] == [example.messages for example in written]
    assert len(packed) == 3


def test_a_null_argument_of_a_json_line_stays(tmp_path: Path) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {"unit": None}}}
    talk = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    row = {"question": [*talk, {"role": "tool", "content": "ok"}], "answer": "1"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    (example,) = _examples(tmp_path / "rows.jsonl")
    assert example.messages[1]["tool_calls"] == [call]


def test_calls_and_results_in_the_roles_of_ms_swift_are_read(tmp_path: Path) -> None:
    calls = [{"name": "add", "arguments": {"a": 1}}, {"name": "add", "arguments": {"a": 2}}]
    talk = [
        {"role": "user", "content": "Go."},
        *({"role": "tool_call", "content": json.dumps(call)} for call in calls),
        {"role": "tool_response", "content": "3"},
    ]
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": talk, "answer": "3"}))
    (example,) = _examples(tmp_path / "rows.jsonl")
    assert example.messages == (
        {"role": "user", "content": "Go."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": call} for call in calls],
        },
        {"role": "tool", "content": "3"},
    )


@pytest.mark.parametrize("joined", ["+ call.function.arguments +", "~ (call.function.arguments | tojson) ~"])
def test_a_template_gets_arguments_as_it_wants_them(joined: str) -> None:
    source = (
        "{% for m in messages %}{% for call in m.tool_calls or [] %}"
        f"{{{{ call.function.name + ' ' {joined} '' }}}}{{% endfor %}}{{% endfor %}}"
    )
    template = ChatTemplate(source, origin="a template", variables={}, date="2024-07-26")
    calls = [{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}]
    assert template.render([{"role": "assistant", "content": "", "tool_calls": calls}]) == 'add {"a": 1}'
