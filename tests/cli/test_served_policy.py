"""`agent-tunix generate URL` against an endpoint on the loopback."""

import gc
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.rewards.judges.endpoint_server import Answer, EndpointServer, Request, chat

from agent_tunix.cli import main

SAMPLED = ["--temperature", "1", "--num-generations", "2"]


def echo(request: Request) -> Answer:
    """Repeat the last message, or continue the text, as often as completions were asked for."""
    body = request.body
    text = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
    choice = chat(f"so: {text}", token_ids=[5, 6, 7])["choices"][0]
    if "prompt" in body:
        choice = {"index": 0, "text": f"so: {text}", "finish_reason": "length", "token_ids": [5]}
    return Answer(body={"id": "1", "object": "answer", "choices": [choice] * body["n"]})


@pytest.fixture
def server() -> Iterator[EndpointServer]:
    server = EndpointServer()
    server.always = echo
    yield server
    server.close()


def invoke(server: EndpointServer, *arguments: object, typed: str = "") -> Result:
    url = server.url.removesuffix("/v1")
    return CliRunner().invoke(main, ["generate", url, "--model", "policy", *map(str, arguments)], input=typed)


def test_a_prompt_is_sent_with_greedy_sampling_and_its_completion_printed(server: EndpointServer) -> None:
    ran = invoke(server, "--prompt", "2 + 2?", "--max-new-tokens", 8, "--seed", 3)
    assert (ran.exit_code, ran.stdout) == (0, "so: 2 + 2?\n"), ran.output
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.body == {
        "model": "policy",
        "messages": [{"role": "user", "content": "2 + 2?"}],
        "temperature": 0.0,
        "n": 1,
        "seed": 3,
        "max_tokens": 8,
        "return_token_ids": True,
    }


def test_a_file_becomes_rows_in_its_order_while_requests_run_together(server: EndpointServer, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"question": f"{number}?"} for number in range(5)]
    rows.append({"messages": [{"role": "system", "content": "Count."}, {"role": "user", "content": "5?"}]})
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    server.crowd = len(rows)
    ran = invoke(server, "--file", path, *SAMPLED, "--top-k", 9)
    assert ran.exit_code == 0, ran.output
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [row["row"] for row in found] == [number for number in range(1, 7) for _ in range(2)]
    assert found[-1] == {"row": 6, "prompt": "5?", "completion": "so: 5?", "tokens": [5, 6, 7], "ended": True}
    assert all(request.body["top_k"] == 9 and request.body["temperature"] == 1.0 for request in server.requests)
    assert max(len(request.body["messages"]) for request in server.requests) == 2


def test_a_conversation_sends_its_earlier_turns(server: EndpointServer) -> None:
    ran = invoke(server, typed="one\ntwo\n")
    assert (ran.exit_code, ran.stdout) == (0, "so: one\nso: two\n"), ran.output
    assert [message["content"] for message in server.requests[-1].body["messages"]] == ["one", "so: one", "two"]


def test_a_prompt_configuration_adds_its_system_message_once(server: EndpointServer) -> None:
    invoke(server, "--prompt-config", "answer", typed="one\ntwo\n")
    roles = [message["role"] for message in server.requests[-1].body["messages"]]
    assert roles == ["system", "user", "assistant", "user"]


def test_a_prompt_configuration_brings_its_stop_strings(server: EndpointServer) -> None:
    invoke(server, "--prompt-config", "plain", "--prompt", "2 + 2?")
    assert server.requests[-1].body["stop"] == ["\nQuestion:"]


def test_raw_continues_the_text(server: EndpointServer) -> None:
    ran = invoke(server, "--prompt", "Once", "--raw")
    assert (ran.stdout, ran.stderr) == ("so: Once\n", "(cut after 1 tokens)\n"), ran.output
    assert server.requests[0].path == "/v1/completions"


@pytest.mark.parametrize(
    ("status", "named"), [(400, "top_k is not supported"), (401, "--api-key-env")], ids=["refused", "no key"]
)
def test_a_refusal_names_the_row_and_the_reason(server: EndpointServer, status: int, named: str) -> None:
    body = {"error": {"message": "top_k is not supported", "param": "top_k"}}
    server.always = lambda request: Answer(status=status, body=body)
    ran = invoke(server, "--prompt", "2 + 2?")
    assert ran.exit_code == 2
    assert "RequestRefusedError: row 1: " in ran.output
    assert named in ran.output


def test_of_several_refusals_the_first_is_told_alone(
    server: EndpointServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse_others(request: Request) -> Answer:
        if "first" in request.text:
            return replace(echo(request), delay_s=0.5)
        return Answer(status=400, body={"error": {"message": "no"}})

    server.always = refuse_others
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(f'{{"question": "{name}"}}\n' for name in ("first", "second", "third")))
    ran = invoke(server, "--file", path)
    gc.collect()
    assert ran.exit_code == 2
    assert "RequestRefusedError: row 2: " in ran.output
    assert "never retrieved" not in caplog.text


def test_a_server_that_tells_no_tokens_is_told_no_number(server: EndpointServer) -> None:
    server.always = lambda request: Answer(body=chat("so", finish_reason="length"))
    ran = invoke(server, "--prompt", "Once")
    assert (ran.stdout, ran.stderr) == ("so\n", "(cut)\n"), ran.output


def test_a_server_that_is_not_there_is_named(server: EndpointServer) -> None:
    server.close()
    ran = invoke(server, "--prompt", "2 + 2?")
    assert ran.exit_code == 2
    assert f"ServiceError: row 1: {server.url.removesuffix('/v1')} must answer" in ran.output


def test_the_key_comes_from_a_variable_that_is_named(server: EndpointServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-of-openai")
    invoke(server, "--prompt", "2 + 2?")
    assert "secret-of-openai" not in str(server.requests[-1].headers)
    monkeypatch.setenv("POLICY_KEY", "secret")
    invoke(server, "--prompt", "2 + 2?", "--api-key-env", "POLICY_KEY")
    assert server.requests[-1].headers["authorization"] == "Bearer secret"
    ran = invoke(server, "--prompt", "2 + 2?", "--api-key-env", "MISSING")
    assert (ran.exit_code, "MISSING" in ran.output) == (2, True)


@pytest.mark.parametrize("options", [["--score"], ["--step", "0"]])
def test_options_of_directories_are_refused(server: EndpointServer, options: list[str]) -> None:
    ran = invoke(server, "--prompt", "2 + 2?", *options)
    assert ran.exit_code == 2
    assert f"{options[0]} is for policies in directories" in ran.output
