"""The files of the embedded model that calls tools: its chat template, tokenizer and sizes."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from transformers import AutoTokenizer

from agent_tunix.config.schema import PromptConfig
from agent_tunix.environments import (
    Message,
    ToolCall,
    format_of_template,
    parse_turn,
    resolve_environment,
)
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.directory import EMBEDDED_MODELS

DIRECTORY = EMBEDDED_MODELS["tiny_tools"]
SYSTEM = {"role": "system", "content": "Give the result between <answer> and </answer>."}
CALLS = {"calculator": ToolCall("calculator", {"expression": "47 * 86"}), "guess": ToolCall("guess", {"number": 10})}


def tools_of(name: str, **args: Any) -> list[dict[str, Any]]:
    environment = resolve_environment(name, args=args).open()
    environment.reset({"target": 1}, 0)
    return [tool.declaration() for tool in environment.tools]


TOOLS = {"calculator": tools_of("calculator"), "guess": tools_of("guess_number", low=1, high=10)}


def tokenizer(tools: Sequence[dict[str, Any]] | None) -> Tokenizer:
    return Tokenizer(DIRECTORY, PromptConfig(template_args={"tools": tools}))


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def calling(arguments: Any, content: str | None = "") -> Message:
    calls = [{"id": "call_0", "type": "function", "function": {"name": "calculator", "arguments": arguments}}]
    return {"role": "assistant", "content": content, "tool_calls": calls}


MAPPING = {"expression": "47 * 86"}
RESULT = {"role": "tool", "tool_call_id": "call_0", "name": "calculator", "content": "4042"}
ANSWER = {"role": "assistant", "content": "<answer>4042</answer>"}
NO_ARGUMENTS = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
UNTYPED = {
    "name": "find",
    "parameters": {"properties": {"what": {"anyOf": [{"type": "string"}]}, "n": {"type": "number"}}},
}

CONVERSATIONS: dict[str, tuple[list[Message], list[dict[str, Any]] | None]] = {
    "no tools": ([user("2 + 2?")], None),
    "system": ([SYSTEM, user("2 + 2?")], None),
    "tools": ([user("2 + 2?")], TOOLS["calculator"]),
    "system and tools": ([SYSTEM, user("2 + 2?")], TOOLS["guess"]),
    "a call": ([SYSTEM, user("47 * 86?"), calling(MAPPING), RESULT, ANSWER], TOOLS["calculator"]),
    "arguments as text": ([user("47 * 86?"), calling(json.dumps(MAPPING)), RESULT], TOOLS["calculator"]),
    "text before a call": ([user("47 * 86?"), calling(MAPPING, "I see."), RESULT], TOOLS["calculator"]),
    "no content": ([user("47 * 86?"), calling(MAPPING, None), RESULT], TOOLS["calculator"]),
    "two calls": ([user("?"), {**calling(MAPPING), "tool_calls": calling(MAPPING)["tool_calls"] * 2}], None),
    "other tools": ([user("?")], [NO_ARGUMENTS, UNTYPED]),
    "marks": ([user("<|im_end|><tool_call>é{{ 7 }}"), calling({"expression": 'a"b\\'})], TOOLS["calculator"]),
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_template_renders_as_in_transformers(name: str) -> None:
    messages, tools = CONVERSATIONS[name]
    reference: Any = AutoTokenizer.from_pretrained(DIRECTORY)
    expected = reference.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
    assert tokenizer(tools).render_chat(messages) == expected


def test_a_conversation_has_the_documented_form() -> None:
    messages, tools = CONVERSATIONS["a call"]
    assert tokenizer(tools).render_chat(messages) == (
        "<|im_start|>system\nGive the result between <answer> and </answer>.\nTools:\n"
        "calculator(expression: string)<|im_end|>\n"
        "<|im_start|>user\n47 * 86?<|im_end|>\n"
        "<|im_start|>assistant\n"
        '<tool_call>\n{"name": "calculator", "arguments": {"expression": "47 * 86"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>tool\n4042<|im_end|>\n"
        "<|im_start|>assistant\n<answer>4042</answer><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    untyped = tokenizer([NO_ARGUMENTS, UNTYPED]).render_chat([user("?")])
    assert untyped.startswith(
        "<|im_start|>system\nTools:\nlook()\nfind(what: any, n: number)<|im_end|>\n<|im_start|>user"
    )


@pytest.mark.parametrize("name", ["a call", "arguments as text", "text before a call", "no content", "two calls"])
def test_the_parser_reads_the_calls_that_the_template_writes(name: str) -> None:
    messages, tools = CONVERSATIONS[name]
    written = tokenizer(tools)
    assert format_of_template(written.chat_template or "") == "hermes"
    turn = written.render_chat(messages).split("<|im_start|>assistant\n")[1]
    parsed = parse_turn(turn.split("<|im_end|>")[0], "hermes")
    assert parsed.calls == (ToolCall("calculator", MAPPING),) * (2 if name == "two calls" else 1)
    assert parsed.content == ("I see." if name == "text before a call" else "")


@pytest.mark.parametrize("tag", ["<answer>", "</answer>", "<tool_call>", "</tool_call>"])
def test_a_tag_is_one_token_that_decoding_keeps(tag: str) -> None:
    ids = tokenizer(None).encode(tag)
    assert len(ids) == 1
    assert tokenizer(None).decode(ids) == tag


def test_the_vocabulary_encodes_any_text_and_every_digit_alone() -> None:
    reader = tokenizer(None)
    text = "Any <text> at all, 12345 naïve 漢字\t🙂"
    assert reader.decode(reader.encode(text)) == text
    vocabulary = json.loads((DIRECTORY / "tokenizer.json").read_text())["model"]["vocab"]
    assert not [token for token in vocabulary if re.search(r"\d.|.\d", token)]
