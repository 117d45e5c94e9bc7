"""`/v1/chat/completions` as the `openai` client uses it."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.serving.support import Running, running

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def write(prompt: str) -> str:
    """The script: what the user asks decides."""
    asked = prompt.rsplit("user", 1)[-1]
    if "tool" in asked:
        return f"Let me add.\n{CALL}"
    if "stop" in asked:
        return "one two END three"
    return "Grüße, 世界 🌍!"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(write) as server:
        yield server


def ask(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def test_a_reply_has_text_usage_and_the_version_of_the_policy(server: Running) -> None:
    reply = server.openai().chat.completions.create(model="policy", messages=ask("hello"), seed=7, temperature=0.5)
    assert reply.choices[0].message.content == "Grüße, 世界 🌍!"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.system_fingerprint == "version-3"
    assert reply.usage is not None
    request = server.source.requests[-1]
    assert reply.usage.prompt_tokens == len(request.prompt)
    assert (request.seed, request.temperature, request.max_tokens) == (7, 0.5, 4096 - len(request.prompt))


@pytest.mark.parametrize(("temperature", "used"), [(1e-40, 0.0), (0.0, 0.0), (1e-4, 1e-4)])
def test_a_temperature_that_logits_cannot_be_divided_by_is_greedy(
    server: Running, temperature: float, used: float
) -> None:
    server.openai().chat.completions.create(model="policy", messages=ask("hello"), temperature=temperature)
    assert server.source.requests[-1].temperature == used


def test_n_replies_have_seeds_of_their_own(server: Running) -> None:
    before = len(server.source.requests)
    reply = server.openai().chat.completions.create(model="policy", messages=ask("hello"), n=3, seed=7)
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert len({request.seed for request in server.source.requests[before:]}) == 3


def test_calls_of_tools_come_apart_from_the_text(server: Running) -> None:
    reply = server.openai().chat.completions.create(model="policy", messages=ask("tool"), tools=[TOOL])
    (choice,) = reply.choices
    assert (choice.message.content, choice.finish_reason) == ("Let me add.", "tool_calls")
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 1})


def test_tool_choice_none_leaves_calls_in_the_text(server: Running) -> None:
    reply = server.openai().chat.completions.create(
        model="policy",
        messages=ask("tool"),
        tools=[TOOL],
        tool_choice="none",
    )
    assert reply.choices[0].message.content == f"Let me add.\n{CALL}"
    assert reply.choices[0].message.tool_calls is None


@pytest.mark.parametrize("asked", ["hello", "tool", "stop"])
@pytest.mark.parametrize("part_size", [1, 2, 50])
def test_a_stream_says_what_the_whole_answer_says(asked: str, part_size: int) -> None:
    options: dict[str, Any] = {"model": "policy", "messages": ask(asked), "tools": [TOOL], "stop": "END"}
    with running(write, part_size=part_size) as server:
        client = server.openai()
        whole = client.chat.completions.create(**options)
        with client.chat.completions.stream(**options, stream_options={"include_usage": True}) as stream:
            deltas = [event.delta for event in stream if event.type == "content.delta"]
            streamed = stream.get_final_completion()
    assert (streamed.choices[0].message.content or "") == (whole.choices[0].message.content or "")
    assert "".join(deltas) == (whole.choices[0].message.content or "")
    assert streamed.choices[0].finish_reason == whole.choices[0].finish_reason
    calls = [choice.choices[0].message.tool_calls or [] for choice in (whole, streamed)]
    assert [call.id for call in calls[0]] == [call.id for call in calls[1]]
    assert streamed.usage == whole.usage


def test_logprobs_and_token_ids_are_those_of_the_source(server: Running) -> None:
    reply = server.openai().chat.completions.create(
        model="policy", messages=ask("hello"), logprobs=True, top_logprobs=2, extra_body={"return_token_ids": True}
    )
    (choice,) = reply.choices
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    ids = server.source.tokenizer.encode("Grüße, 世界 🌍!", allow_special=False)
    assert choice.model_extra is not None
    assert choice.model_extra["token_ids"] == [*ids, server.source.tokenizer.eos_id()]
    assert reply.model_extra is not None
    assert reply.model_extra["prompt_token_ids"] == list(server.source.requests[-1].prompt)
    assert [entry.logprob for entry in choice.logprobs.content[:4]] == [0.0, -0.25, -0.5, -0.75]
    assert {len(entry.top_logprobs) for entry in choice.logprobs.content} == {2}
    whole = [entry for entry in choice.logprobs.content if entry.bytes is not None]
    assert all(bytes(entry.bytes or ()).decode() == entry.token for entry in whole)


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"logit_bias": {"3": 1}}, "logit_bias"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"extra_body": {"guided_regex": "a"}}, "guided_regex"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"n": 0}, "n"),
        ({"temperature": -1}, "temperature"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(server: Running, parameters: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        server.openai().chat.completions.create(model="policy", messages=ask("hello"), **parameters)
    assert error.value.param == param


def test_values_that_ask_for_nothing_pass(server: Running) -> None:
    server.openai().chat.completions.create(
        model="policy",
        messages=ask("hello"),
        frequency_penalty=0,
        presence_penalty=0.0,
        logit_bias={},
        user="somebody",
        response_format={"type": "text"},
        tool_choice="auto",
        extra_body={"top_k": -1, "min_p": 0.0, "suffix": None},
    )


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"role": "robot", "content": "x"}, "invalid_messages"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "invalid_messages"),
        ({"role": "user"}, "invalid_messages"),
        ({"role": "user", "content": "x" * 40_000}, "context_length_exceeded"),
    ],
)
def test_messages_that_cannot_be_used_are_refused(server: Running, message: Any, code: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        server.openai().chat.completions.create(model="policy", messages=[message])
    assert (error.value.code, error.value.param) == (code, "messages")


def test_an_unknown_model_is_told_which_there_are(server: Running) -> None:
    with pytest.raises(openai.NotFoundError) as error:
        server.openai().chat.completions.create(model="gpt-4o", messages=ask("hello"))
    assert error.value.code == "model_not_found"
    assert "policy" in error.value.message
