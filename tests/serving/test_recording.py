"""Calls of rollouts are recorded, and a conversation continues the token ids of its earlier calls."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from agent_tunix.sampling.requests import TokenRequest
from agent_tunix.serving.calls import RecordedCall
from agent_tunix.serving.recorder import RolloutRecorder
from tests.serving.routes.test_chat import TOOL, ask, write
from tests.serving.support import Running, running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(write, recorder=RolloutRecorder(max_calls=6, max_tokens=200)) as server:
        yield server


@pytest.fixture
def recorder(server: Running) -> RolloutRecorder:
    assert server.recorder is not None
    return server.recorder


def written(call: RecordedCall) -> tuple[int, ...]:
    return (*call.prompt, *call.tokens)


def converse(client: openai.OpenAI, messages: list[Any], asked: str, **options: Any) -> None:
    """Ask, and put the reply into the messages as the client's library writes it."""
    messages.append({"role": "user", "content": asked})
    reply = client.chat.completions.create(model="policy", messages=messages, **options)
    messages.append(reply.choices[0].message.model_dump(exclude_none=True))


def test_a_conversation_that_appends_continues_the_token_ids(server: Running, recorder: RolloutRecorder) -> None:
    rollout = recorder.open("0")
    messages: list[Any] = []
    for asked in ("hello", "tool", "hello"):
        if messages and messages[-1].get("tool_calls"):
            messages.append({"role": "tool", "tool_call_id": messages[-1]["tool_calls"][0]["id"], "content": "3"})
        converse(server.openai(rollout.key), messages, asked, tools=[TOOL])
    first, second, third = recorder.close(rollout.key)
    assert second.prompt[: len(written(first))] == written(first)
    assert third.prompt[: len(written(second))] == written(second)
    assert server.source.tokenizer.decode(third.prompt[len(written(second)) :]).count("3") == 1
    assert [call.num_cached for call in (first, second, third)] == [2, 2, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"refusal": None, "annotations": [], "audio": None},
        {"content": "Let me add. "},
        {"tool_calls": "rewritten"},
    ],
)
def test_fields_that_clients_add_or_rewrite_do_not_matter(
    server: Running, recorder: RolloutRecorder, change: dict[str, Any]
) -> None:
    rollout = recorder.open("0")
    client = server.openai(rollout.key)
    messages: list[Any] = []
    converse(client, messages, "tool", tools=[TOOL])
    if change.get("tool_calls"):
        (call,) = messages[-1]["tool_calls"]
        arguments = json.dumps(json.loads(call["function"]["arguments"]), indent=4)
        change = {"tool_calls": [{"function": {"arguments": arguments, "name": "add"}, "type": "function"}]}
    messages[-1] |= change
    messages.append({"role": "tool", "content": "3"})
    client.chat.completions.create(model="policy", messages=messages, tools=[TOOL])
    first, second = rollout.calls
    assert second.prompt[: len(written(first))] == written(first)


@pytest.mark.parametrize("place", [0, 1])
def test_changed_history_is_encoded_anew(server: Running, recorder: RolloutRecorder, place: int) -> None:
    rollout = recorder.open("0")
    client = server.openai(rollout.key)
    messages: list[Any] = []
    converse(client, messages, "hello")
    messages[place]["content"] = "hello there"
    converse(client, messages, "hello")
    first, second = rollout.calls
    assert second.prompt[: len(written(first))] != written(first)


def test_without_a_recorder_recent_calls_are_continued() -> None:
    with running(write) as server:
        client = server.openai()
        messages: list[Any] = []
        converse(client, messages, "hello")
        converse(client, messages, "hello")
        (first, second) = server.source.requests
        tokens = server.service.recent[0].tokens
        assert second.prompt[: len(first.prompt) + len(tokens)] == (*first.prompt, *tokens)


def test_a_rollout_adjusts_its_requests(server: Running, recorder: RolloutRecorder) -> None:
    def adjust(request: TokenRequest) -> TokenRequest:
        return TokenRequest(request.prompt, 5, temperature=0.25, seed=11, stop_strings=("r",))

    rollout = recorder.open("0", adjust)
    client = server.openai(rollout.key)
    reply = client.chat.completions.create(model="policy", messages=ask("hello"), temperature=1.5, seed=3)
    request = server.source.requests[-1]
    assert (request.max_tokens, request.temperature, request.seed) == (5, 0.25, 11)
    assert reply.choices[0].message.content == "G"
    assert [call.finish_reason for call in rollout.calls] == ["length"]


def test_an_unknown_key_is_refused(server: Running) -> None:
    with pytest.raises(openai.AuthenticationError):
        server.openai("key-of-somebody").chat.completions.create(model="policy", messages=ask("hello"))
    with server.http() as client:
        assert client.get("/v1/models").status_code == 401
        assert client.get("/health").status_code == 200


def test_limits_of_a_rollout_are_refused_without_a_retry(server: Running, recorder: RolloutRecorder) -> None:
    rollout = recorder.open("0")
    client = server.openai(rollout.key).with_options(max_retries=5)
    for _ in range(6):
        client.chat.completions.create(model="policy", messages=ask("hello"), max_tokens=2)
    with pytest.raises(openai.RateLimitError) as error:
        client.chat.completions.create(model="policy", messages=ask("hello"))
    assert error.value.code == "rollout_limit_exceeded"
    assert "retry-after" not in error.value.response.headers
    assert rollout.refused
    assert len(rollout.calls) == 6


def test_a_call_after_the_end_of_its_rollout_is_refused(server: Running, recorder: RolloutRecorder) -> None:
    rollout = recorder.open("0")
    recorder.close(rollout.key)
    with pytest.raises(openai.ConflictError) as error:
        server.openai(rollout.key).with_options(max_retries=5).chat.completions.create(
            model="policy", messages=ask("hello")
        )
    assert error.value.code == "rollout_ended"


def post_and_read(client: httpx.Client, body: dict[str, Any]) -> None:
    """Ask, and leave when nothing comes for half a second."""
    with client.stream("POST", "/v1/chat/completions", json=body, timeout=0.5) as answer:
        list(answer.iter_lines())


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_cancels_its_request(server: Running, recorder: RolloutRecorder, stream: bool) -> None:
    rollout = recorder.open("0")
    server.source.cancelled.clear()
    server.source.hold.clear()
    try:
        with server.http(rollout.key) as client, pytest.raises(httpx.TimeoutException):
            post_and_read(client, {"messages": ask("hello"), "stream": stream})
        deadline = time.monotonic() + 20
        while not rollout.calls and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        server.source.hold.set()
    assert server.source.cancelled.wait(20)
    assert [call.finish_reason for call in rollout.calls] == ["cancelled"]


def test_the_end_of_a_rollout_cancels_its_requests(server: Running, recorder: RolloutRecorder) -> None:
    rollout = recorder.open("0")
    server.source.cancelled.clear()
    server.source.hold.clear()
    client = server.openai(rollout.key)
    try:
        with client.chat.completions.create(model="policy", messages=ask("hello"), stream=True) as events:
            next(iter(events))
            assert recorder.close(rollout.key) == ()
            with pytest.raises(openai.APIError) as error:
                list(events)
    finally:
        server.source.hold.set()
    assert error.value.code == "rollout_ended"
    assert server.source.cancelled.wait(20)


def test_requests_at_the_same_time_are_encoded_correctly() -> None:
    """A tokenizer that is new learns the special tokens of a prompt while others are encoded."""
    with running(write) as server, ThreadPoolExecutor(16) as threads:
        client = server.openai()
        texts = [f"hello {number} " * 50 for number in range(48)]

        def reply(text: str) -> Any:
            tools = [TOOL] if len(text) % 2 else openai.omit
            return client.chat.completions.create(model="policy", messages=ask(text), tools=tools)

        assert {choice.choices[0].finish_reason for choice in threads.map(reply, texts)} == {"stop"}
        prompts = {server.source.tokenizer.decode(request.prompt) for request in server.source.requests}
    assert len(prompts) == 48
