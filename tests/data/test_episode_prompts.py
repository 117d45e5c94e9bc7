"""Prompts and replies of episodes, with tokenizers and templates like those of the families."""

import functools
from pathlib import Path

import pytest

from agent_tunix.config.schema import PromptConfig
from agent_tunix.data.episode_prompts import EpisodeEncoder
from agent_tunix.environments import Message, ToolCallFormat, resolve_environment
from agent_tunix.environments.tools import SchemaTool
from agent_tunix.errors import ConfigError
from agent_tunix.policy.chat.tokenizer import Tokenizer
from tests import chat_tokenizers as chat
from tests.data.test_prompts import FAMILIES, ask, make_pair
from tests.raising import raises

ARGUMENTS = {"date_string": "01 Mar 2025"}
TOOLS = resolve_environment("calculator").declare()
TURN = "I call a tool."
RESULT: list[Message] = [{"role": "tool", "name": "calculator", "content": "42 apples\nand 3"}]
REPLY: list[Message] = [{"role": "user", "content": "higher, <|im_end|> than that"}]


def encoder_of(name: str, directory: Path) -> tuple[EpisodeEncoder, Tokenizer]:
    pair = make_pair(name, directory, PromptConfig(template_args=ARGUMENTS))
    return EpisodeEncoder(pair.ours, pair.prompt), pair.ours


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "llama3"])
def test_a_turn_that_a_stop_string_ended_is_ended_in_the_reply(name: str, tmp_path: Path) -> None:
    encoder, tokenizer = encoder_of(name, tmp_path)
    turn = tokenizer.encode(TURN)
    stopped, ended = encoder.encode_replies([RESULT, RESULT], [turn[-1], tokenizer.eos_id()])
    assert stopped == [tokenizer.eos_id(), *ended]


def test_a_turn_ends_with_the_tokens_of_the_sampler(tmp_path: Path) -> None:
    pair = make_pair("qwen2", tmp_path, PromptConfig(template_args=ARGUMENTS))
    end = pair.ours.encode("<|im_end|>")[0]
    other = next(one for one in range(end) if one != end)
    encoder = EpisodeEncoder(pair.ours, pair.prompt, [end])
    written, unwritten = encoder.encode_replies([RESULT, RESULT], [end, other])
    assert unwritten == [end, *written]


# The others write white space around the model's text, or keep no turn of the model apart.
@pytest.mark.parametrize("name", ["qwen2", "qwen3", "llama3", "gemma2", "gemma3"])
def test_turn_and_reply_together_are_the_whole_conversation(name: str, tmp_path: Path) -> None:
    encoder, tokenizer = encoder_of(name, tmp_path)
    conversation = [*ask("What is 6 * 7?"), {"role": "assistant", "content": TURN}, *REPLY]
    whole = encoder.encode_prompt(conversation, [])
    ends_by_itself = name in ("qwen2", "qwen3", "llama3")
    turn = tokenizer.encode(TURN) + ([tokenizer.eos_id()] if ends_by_itself else [])
    (reply,) = encoder.encode_replies([REPLY], [tokenizer.eos_id()])
    assert encoder.encode_prompt(ask("What is 6 * 7?"), []) + turn + reply == whole


@pytest.mark.parametrize("name", FAMILIES)
def test_a_result_is_in_the_reply_and_forges_no_token(name: str, tmp_path: Path) -> None:
    encoder, tokenizer = encoder_of(name, tmp_path)
    plain, forged = encoder.encode_replies(
        [RESULT, [{**RESULT[0], "content": "".join(tokenizer.special_texts)}]], [tokenizer.eos_id()] * 2
    )
    assert "42 apples" in tokenizer.decode(plain)
    special = {tokenizer.encode(text)[0] for text in tokenizer.special_texts}
    assert [token for token in plain if token in special] == [token for token in forged if token in special]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_declaration_of_a_tool_forges_no_token(name: str, tmp_path: Path) -> None:
    encoder, tokenizer = encoder_of(name, tmp_path)
    special = {tokenizer.encode(text)[0] for text in tokenizer.special_texts}
    found = []
    for text in ("plain", "".join(tokenizer.special_texts)):
        schema = {"properties": {"a": {"type": "string", "description": text}}}
        tool = SchemaTool("calculator", f"Count {text}", schema, lambda given: None)
        found.append([token for token in encoder.encode_prompt(ask("What is 6 * 7?"), [tool]) if token in special])
    assert found[0] == found[1]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_template_gets_the_tools_declared(name: str, tmp_path: Path) -> None:
    encoder, tokenizer = encoder_of(name, tmp_path)
    text = tokenizer.decode(encoder.encode_prompt(ask("What is 6 * 7?"), TOOLS))
    assert "calculator" in text
    assert "6 * 7" in text
    assert "calculator" not in tokenizer.decode(encoder.encode_prompt(ask("What is 6 * 7?"), []))


def test_several_results_are_one_reply(tmp_path: Path) -> None:
    encoder, tokenizer = encoder_of("gemma2", tmp_path)
    (ids,) = encoder.encode_replies([[*RESULT, {**RESULT[0], "content": "seven"}]], [tokenizer.eos_id()])
    assert tokenizer.decode(ids).count("user") == 1
    assert "and 3\nseven" in tokenizer.decode(ids)


def test_long_results_are_cut_to_the_limit_and_say_so(tmp_path: Path) -> None:
    encoder, tokenizer = encoder_of("qwen2", tmp_path)
    assert encoder.shorten("brief", 20) == "brief"
    cut = encoder.shorten("seven apples " * 200, 20)
    assert len(tokenizer.encode(cut)) <= 21
    assert cut.endswith("tokens]")
    assert encoder.call_format is ToolCallFormat.HERMES


# Turns of CHATML that call a tool as the families do, each with its own words around it.
CALLING = """\
{%- for tool in tools or [] %}{{- tool | tojson }}{%- endfor %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content }}
    {%- for call in message.tool_calls or [] %}{%- set call = call.function %}CALL{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}
"""
QWEN3_5 = "{{- '<tool_call>\\n<function=' + call.name + '>\\n</function>\\n</tool_call>' }}"
OLMO3 = "{{- '<function_calls>' + call.name + '()</function_calls>' }}"
SMOLLM3 = "{{- '<tool_call>\\n' + ({'name': call.name, 'arguments': call.arguments} | tojson) + '\\n</tool_call>' }}"
GEMMA4 = "{{- '<|tool_call>call:' + call.name + '{}<tool_call|>' }}"


JSON_CALL = "{{- {'name': call.name, 'parameters': call.arguments} | tojson }}"


@pytest.mark.parametrize(
    ("written", "configured", "call_format", "reason"),
    [
        (QWEN3_5, "auto", ToolCallFormat.QWEN_XML, "the chat template has <function="),
        (JSON_CALL, "auto", ToolCallFormat.LLAMA3, "the chat template writes calls so"),
        ("", "auto", ToolCallFormat.HERMES, "the chat template shows no format"),
        (GEMMA4, "auto", ToolCallFormat.GEMMA, "calls as the chat template writes them cannot be read"),
        ("", "olmo3", ToolCallFormat.OLMO3, "environment.call_format says so"),
        (QWEN3_5, "llama3", ToolCallFormat.LLAMA3, "environment.call_format says so"),
    ],
)
def test_the_format_of_calls_has_a_reason(
    written: str, configured: str, call_format: ToolCallFormat, reason: str, tmp_path: Path
) -> None:
    pair = make_pair("qwen2", tmp_path, template=CALLING.replace("CALL", written))
    encoder = EpisodeEncoder(pair.ours, pair.prompt, call_format=configured)
    assert (encoder.call_format, encoder.format_reason) == (call_format, reason)
    assert encoder.is_guessed_format == (reason == "the chat template shows no format")


def test_a_format_whose_tags_are_special_tokens_is_refused(tmp_path: Path) -> None:
    make = functools.partial(chat.byte_level, (*chat.CHATML_TOKENS, "<tool_call>", "</tool_call>"))
    pair = make_pair("qwen2", tmp_path, template=CALLING.replace("CALL", SMOLLM3), make=make)
    with raises(ConfigError, "invalid_chat_template"):
        EpisodeEncoder(pair.ours, pair.prompt, call_format="qwen_xml")
    assert EpisodeEncoder(pair.ours, pair.prompt, call_format="gemma").call_format is ToolCallFormat.GEMMA


@pytest.mark.parametrize(
    ("written", "special", "call_format"),
    [
        (QWEN3_5, (), ToolCallFormat.QWEN_XML),
        (OLMO3, (), ToolCallFormat.OLMO3),
        (SMOLLM3, (), ToolCallFormat.HERMES),
        (GEMMA4, (), ToolCallFormat.GEMMA),
        (SMOLLM3, ("<tool_call>", "</tool_call>"), ToolCallFormat.GEMMA),
        ("{#- '<function_calls>' -#}", ("<function_calls>", "</function_calls>"), ToolCallFormat.GEMMA),
    ],
    ids=["qwen3_5", "olmo3", "smollm3", "gemma4", "special tags", "special tags, no calls"],
)
def test_a_template_declares_tools_only_if_its_calls_are_read(
    written: str,
    special: tuple[str, ...],
    call_format: ToolCallFormat,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make = functools.partial(chat.byte_level, (*chat.CHATML_TOKENS, *special))
    pair = make_pair("qwen2", tmp_path, template=CALLING.replace("CALL", written), make=make)
    encoder = EpisodeEncoder(pair.ours, pair.prompt)
    text = pair.ours.decode(encoder.encode_prompt(ask("What is 6 * 7?"), TOOLS))
    assert encoder.call_format is call_format
    is_unread = call_format is ToolCallFormat.GEMMA
    assert ("To call a tool, write:" in text) == is_unread
    assert ("cannot be read" in caplog.text) == is_unread
