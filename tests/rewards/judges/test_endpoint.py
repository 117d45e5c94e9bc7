"""An endpoint misbehaves in every way it can, and no failure becomes a score."""

import contextlib
import email.utils
import logging
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards import Outcome, Sample
from agent_tunix.rewards.judges.endpoint import estimate_usage
from agent_tunix.rewards.judges.prompts import JudgeQuestion
from tests.raising import raises
from tests.rewards.judges.conftest import Bench
from tests.rewards.judges.endpoint_server import Answer, Request, chat, grade


def error(message: str, **more: str) -> dict[str, object]:
    return {"error": {"message": message, **more}}


@pytest.mark.parametrize(
    "answer",
    [
        Answer(429, error("slow down")),
        Answer(500, error("oops")),
        Answer(502, b"<html>bad gateway</html>"),
        Answer(503, b""),
        Answer(529, error("overloaded")),
        Answer(408, error("too slow")),
        Answer(200, b"<html>welcome to the proxy</html>"),
        Answer(200, b"[" * 100_000),
        Answer(200, error("upstream is gone")),
        Answer(cut_after=-1),
        Answer(body=chat("{}"), cut_after=20),
    ],
    ids=lambda answer: f"{answer.status}-{answer.cut_after}-{str(answer.body)[:20]}",
)
def test_a_fault_that_may_pass_is_tried_again(answer: Answer, bench: Bench) -> None:
    bench.server.answers.extend([answer] * 5)
    score = bench.ask()
    assert score.value == 1.0
    assert len(bench.server.requests) == 6
    assert score.extras["requests"] == 6


@pytest.mark.parametrize(("args", "tries"), [({}, 6), ({"tries": 1}, 1)])
def test_after_the_last_try_a_completion_is_an_error_and_no_score(
    args: dict[str, Any], tries: int, bench: Bench
) -> None:
    bench.server.always = lambda request: Answer(500, error("oops"))
    score = bench.ask(**args)
    assert (score.value, score.outcome) == (None, Outcome.ERROR)
    assert "answered 500: oops" in score.detail
    assert ("after 6 tries" in score.detail) is (tries == 6)
    assert len(bench.server.requests) == tries
    assert len(bench.time.waits) == tries - 1
    assert all(1 <= wait <= 30 for wait in bench.time.waits)


def test_a_back_off_is_random_and_grows(bench: Bench) -> None:
    bench.server.always = lambda request: Answer(500, error("oops"))
    bench.judge().score([Sample(f"{number}") for number in range(16)])
    assert len(set(bench.time.waits)) == 80
    assert sum(wait > 2 for wait in bench.time.waits) > 32
    assert max(bench.time.waits) <= 30


def test_retry_after_is_honoured_in_seconds_and_as_a_date(bench: Bench) -> None:
    date = email.utils.formatdate(time.time() + 60, usegmt=True)
    for number, value in enumerate(("45", date)):
        bench.server.answers.append(Answer(429 if value == "45" else 503, error("slow down"), {"Retry-After": value}))
        assert bench.judge().score([Sample(f"yes {number}")])[0].value == 1.0
    assert bench.time.waits[0] == 45.0
    assert 0 < bench.time.waits[1] <= 60
    assert len(bench.time.waits) == 2


@pytest.mark.parametrize("value", ["soon", "", "nan", "-5", "Thu, 01 Jan 1970 00:00:00 GMT"])
def test_a_retry_after_that_says_nothing_leaves_the_back_off(value: str, bench: Bench) -> None:
    bench.server.answers.append(Answer(429, error("slow down"), {"Retry-After": value}))
    assert bench.ask().value == 1.0
    assert 1 <= bench.time.waits[0] <= 2


def test_an_hour_is_not_waited(bench: Bench) -> None:
    bench.server.always = lambda request: Answer(429, error("come back later"), {"Retry-After": "3600"})
    score = bench.ask()
    assert score.outcome is Outcome.ERROR
    assert "Retry-After: 3600 s" in score.detail
    assert len(bench.server.requests) == 1


def test_an_endpoint_that_is_not_there_is_an_error(bench: Bench) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        score = bench.ask(base_url=f"http://127.0.0.1:{free.getsockname()[1]}/v1")
    assert score.outcome is Outcome.ERROR
    assert "the connection to http://127.0.0.1" in score.detail
    assert len(bench.time.waits) == 5


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer(401, error("bad key")), "answered 401: bad key (no key was sent"),
        (Answer(403, error("no")), "answered 403: no"),
        (Answer(404, error("no such model")), "answered 404: no such model"),
        (Answer(400, error("context too long")), "answered 400: context too long"),
        (Answer(400, {"detail": "what?"}), "what?"),
        (Answer(400, {"error": "what?"}), "what?"),
        (Answer(400, b"[" * 1_000), "answered 400: [[["),
        (Answer(429, error("no money left", code="insufficient_quota")), "no money left"),
        (Answer(302, b"", {"Location": "/v2/chat/completions"}), "answered 302"),
        (Answer(body=chat(None, message={"content": None, "refusal": "I will not."})), "refused: I will not."),
        (Answer(body=chat('{"id"', finish_reason="length")), "cut off; raise `max_tokens`"),
        (Answer(body=chat("", finish_reason="content_filter")), "content filter"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.status,
)
def test_a_fault_that_stays_is_an_error_at_once(answer: Answer, told: str, bench: Bench) -> None:
    bench.server.answers.append(answer)
    score = bench.ask()
    assert (score.value, score.outcome) == (None, Outcome.ERROR)
    assert told in score.detail
    assert len(score.detail) < 600
    assert len(bench.server.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": []},
        {"choices": None},
        {"choices": [{"message": "hello"}]},
        [],
        chat(""),
        chat(None),
        chat("I think that it is good."),
        chat('{"id": '),
        chat("[" * 3_000),
        chat('{"a":' * 3_000),
        chat('{"quality": {"verdict": "yes", "reason": ""}}'),
        chat('{"id": "000000000000", "quality": {"verdict": "yes", "reason": ""}}'),
    ],
    ids=lambda body: str(body)[:60],
)
def test_a_reply_that_is_no_verdict_is_asked_for_once_more_and_then_an_error(body: object, bench: Bench) -> None:
    bench.server.always = lambda request: Answer(body=body)
    score = bench.ask()
    assert (score.value, score.outcome) == (None, Outcome.ERROR)
    assert [request.body["seed"] for request in bench.server.requests] == [0, 1]


def test_the_second_reply_may_be_a_verdict(bench: Bench) -> None:
    bench.server.answers.append(Answer(body=chat("I cannot decide.")))
    score = bench.ask()
    assert (score.value, score.extras["prompt_tokens"]) == (1.0, 200)


@pytest.mark.parametrize(
    "verdict",
    ['"excellent"', "2", "null", "[]", '{"verdict": "maybe", "reason": ""}', '{"reason": "good"}', '{"verdict": {}}'],
)
def test_a_verdict_outside_the_score_map_is_an_error(verdict: str, bench: Bench) -> None:
    bench.server.judge = lambda request: f'{{"id": "{request.code}", "quality": {verdict}}}'
    score = bench.ask()
    assert score.outcome is Outcome.ERROR
    assert "'quality' must be one of yes, partly, no" in score.detail


@pytest.mark.parametrize("answer", [Answer(body=chat("{}"), delay_s=600), Answer(body=chat("x" * 9_999), drip_s=0.05)])
def test_a_slow_answer_is_a_timeout(answer: Answer, bench: Bench) -> None:
    bench.server.answers.append(answer)
    score = bench.ask(timeout_s=0.3)
    assert (score.value, score.outcome) == (None, Outcome.TIMEOUT)
    assert "longer than 0.3 s" in score.detail
    assert len(bench.server.requests) <= 1  # none where even the connection took too long


def test_the_schema_and_further_parameters_are_sent(bench: Bench) -> None:
    bench.ask(seed=7, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    body = bench.server.requests[0].body
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    schema = body["response_format"]["json_schema"]
    assert schema["strict"] is True
    assert schema["schema"]["properties"]["quality"]["properties"]["verdict"]["enum"] == ["yes", "partly", "no"]
    assert (body["model"], body["temperature"], body["seed"], body["max_tokens"]) == ("practice", 0.0, 7, 1024)
    assert bench.server.requests[0].path == "/v1/chat/completions"


def test_an_endpoint_without_schemas_is_asked_for_an_object_and_then_for_text(bench: Bench) -> None:
    unknown = Answer(400, error("Invalid parameter: 'response_format' is not supported"))
    bench.server.always = lambda request: unknown if "response_format" in request.body else None
    bench.server.judge = lambda request: f"Let me see.\n```json\n{grade(request)}\n```\nThat is my verdict."
    judge = bench.judge()
    assert judge.score([Sample("yes")])[0].value == 1.0
    formats = [request.body.get("response_format", {}).get("type") for request in bench.server.requests]
    assert formats == ["json_schema", "json_object", None]
    assert judge.score([Sample("no")])[0].value == 0.0
    assert len(bench.server.requests) == 4  # it is remembered


def test_what_many_requests_find_out_at_once_is_left_out_once(bench: Bench) -> None:
    def structure(request: Request) -> object:
        return request.body.get("response_format", {}).get("type")

    bench.server.always = lambda request: (
        Answer(400, error("json_schema is not supported")) if structure(request) == "json_schema" else None
    )
    scores = bench.judge().score([Sample(f"yes {number}") for number in range(16)])
    assert [score.value for score in scores] == [1.0] * 16
    assert {structure(request) for request in bench.server.requests} == {"json_schema", "json_object"}


@pytest.mark.parametrize(
    ("args", "message", "requests"),
    [
        ({"structured": "json_schema"}, "no response_format", 1),  # a structure that was asked for is not given up
        ({}, "response_format seed temperature max_completion_tokens", 7),  # refuses whatever is sent
    ],
)
def test_an_endpoint_that_refuses_what_cannot_be_left_out_is_given_up(
    args: dict[str, Any], message: str, requests: int, bench: Bench
) -> None:
    bench.server.always = lambda request: Answer(400, error(message))
    assert bench.ask(**args).outcome is Outcome.ERROR
    assert 1 <= len(bench.server.requests) <= requests


@pytest.mark.parametrize("parameter", ["seed", "temperature"])
def test_a_parameter_that_is_refused_is_left_out_with_a_warning(
    parameter: str, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = Answer(400, error(f"Unsupported value: '{parameter}' does not support 0", param=parameter))
    bench.server.always = lambda request: refusal if parameter in request.body else None
    judge = bench.judge()
    with caplog.at_level(logging.WARNING, "agent_tunix"):
        assert judge.score([Sample("yes")])[0].value == 1.0
        assert judge.score([Sample("no")])[0].value == 0.0
    assert len(bench.server.requests) == 3
    assert [record.getMessage() for record in caplog.records] == [
        f"practice at {bench.server.url} does not support `{parameter}`, so its verdicts may vary"
    ]


def test_the_newer_name_of_max_tokens_is_found(bench: Bench) -> None:
    message = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    bench.server.always = lambda request: Answer(400, error(message)) if "max_tokens" in request.body else None
    assert bench.ask(max_tokens=77).value == 1.0
    assert bench.server.requests[1].body["max_completion_tokens"] == 77


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": "many"}, {"prompt_tokens": -1, "completion_tokens": 2}])
def test_usage_that_the_endpoint_does_not_tell_is_estimated(usage: object, bench: Bench) -> None:
    bench.server.always = lambda request: Answer(body={**chat(grade(request)), "usage": usage})
    score = bench.ask()
    assert score.extras["prompt_tokens"] > 100
    question = JudgeQuestion([{"role": "user", "content": "word " * 300}], None, str)
    assert estimate_usage(question, 10).prompt_tokens >= 300
    assert 10 < score.extras["completion_tokens"] < 100


def test_a_judge_that_is_tried_again_says_so_now_and_then(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.server.always = lambda request: Answer(500, error("oops"))
    bench.ask()
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "try 1 of 6 failed" in told[0]
    assert "answered 500: oops" in told[0]
    assert 1 <= len(told) <= 5
    caplog.clear()
    bench.judge().score([Sample(f"{number}") for number in range(16)])
    assert len(caplog.records) <= 1 + sum(bench.time.waits) // 10


def test_a_judge_on_this_machine_uses_no_proxy(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert bench.ask().value == 1.0
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    assert bench.ask().value == 1.0


def test_a_proxy_that_fails_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    score = bench.ask(base_url="http://judge.example/v1", tries=1)
    assert "http://judge.example/v1 through HTTP_PROXY=http://127.0.0.1:1" in score.detail


def test_a_socks_proxy_is_refused_before_training(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks4://127.0.0.1:1")
    with raises(RewardError, "unreachable_server"):
        bench.judge(base_url="http://judge.example/v1").check_parameters([])


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[str]:
    """An address whose certificate nobody has signed."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    names = ("-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "certificate.pem"), "-subj", "/CN=localhost")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *names],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                context.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"https://localhost:{listener.getsockname()[1]}/v1"
        thread.join(10)


def test_a_certificate_that_is_not_trusted_is_not_tried_again(bench: Bench, tls_server: str) -> None:
    score = bench.ask(base_url=tls_server)
    assert score.outcome is Outcome.ERROR
    assert "SSL_CERT_FILE" in score.detail
    assert bench.time.waits == []
