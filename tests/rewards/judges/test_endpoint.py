"""An endpoint misbehaves in every way it can, and no failure becomes a score."""

import email.utils
import gzip
import logging
import socket
import time

import pytest

from agent_tunix.rewards import Outcome, Sample
from agent_tunix.rewards.judges.answers import estimate_usage
from tests.rewards.judges.conftest import FakeTime, MakeJudge
from tests.rewards.judges.endpoint_server import Answer, EndpointServer, chat, grade

GOOD = [Sample("yes")]


def error(message: str, **more: str) -> dict[str, object]:
    return {"error": {"message": message, **more}}


# --- tried again -----------------------------------------------------------------------------------------------------


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
        Answer(200, error("upstream is gone")),
        Answer(cut_after=-1),
        Answer(body=chat("{}"), cut_after=20),
        Answer(200, b"not gzip", {"Content-Encoding": "gzip"}),
    ],
    ids=lambda answer: f"{answer.status}-{answer.cut_after}-{str(answer.body)[:20]}",
)
def test_a_fault_that_may_pass_is_tried_again(answer: Answer, server: EndpointServer, make_judge: MakeJudge) -> None:
    server.answers.extend([answer] * 5)
    (score,) = make_judge().score(GOOD)
    assert score.value == 1.0
    assert len(server.requests) == 6
    assert score.extras["requests"] == 6


def test_after_six_tries_a_completion_is_an_error_and_no_score(
    server: EndpointServer, make_judge: MakeJudge, fake_time: FakeTime
) -> None:
    server.always = lambda request: Answer(500, error("oops"))
    (score,) = make_judge().score(GOOD)
    assert (score.value, score.outcome) == (None, Outcome.ERROR)
    assert "answered 500: oops after 6 tries" in score.detail
    assert len(server.requests) == 6
    assert len(fake_time.waits) == 5
    assert all(1 <= wait <= 30 for wait in fake_time.waits)


def test_the_number_of_tries_can_be_set(server: EndpointServer, make_judge: MakeJudge) -> None:
    server.always = lambda request: Answer(500, error("oops"))
    assert make_judge(tries=1).score(GOOD)[0].outcome is Outcome.ERROR
    assert len(server.requests) == 1


def test_a_back_off_is_random_and_grows(server: EndpointServer, make_judge: MakeJudge, fake_time: FakeTime) -> None:
    server.always = lambda request: Answer(500, error("oops"))
    make_judge().score([Sample(f"{number}") for number in range(40)])
    assert len(set(fake_time.waits)) == 200
    assert sum(wait > 2 for wait in fake_time.waits) > 80
    assert max(fake_time.waits) <= 30


def test_retry_after_in_seconds_is_honoured(server: EndpointServer, make_judge: MakeJudge, fake_time: FakeTime) -> None:
    server.answers.append(Answer(429, error("slow down"), {"Retry-After": "45"}))
    assert make_judge().score(GOOD)[0].value == 1.0
    assert fake_time.waits == [45.0]


def test_retry_after_as_a_date_is_honoured(server: EndpointServer, make_judge: MakeJudge, fake_time: FakeTime) -> None:
    date = email.utils.formatdate(time.time() + 60, usegmt=True)
    server.answers.append(Answer(503, error("busy"), {"Retry-After": date}))
    assert make_judge().score(GOOD)[0].value == 1.0
    assert 50 < fake_time.waits[0] <= 60


@pytest.mark.parametrize("value", ["soon", "", "nan", "-5", "Thu, 01 Jan 1970 00:00:00 GMT"])
def test_a_retry_after_that_says_nothing_leaves_the_back_off(
    value: str, server: EndpointServer, make_judge: MakeJudge, fake_time: FakeTime
) -> None:
    server.answers.append(Answer(429, error("slow down"), {"Retry-After": value}))
    assert make_judge().score(GOOD)[0].value == 1.0
    assert 1 <= fake_time.waits[0] <= 2


def test_an_hour_is_not_waited(server: EndpointServer, make_judge: MakeJudge) -> None:
    server.always = lambda request: Answer(429, error("come back later"), {"Retry-After": "3600"})
    (score,) = make_judge().score(GOOD)
    assert score.outcome is Outcome.ERROR
    assert "Retry-After: 3600 s" in score.detail
    assert len(server.requests) == 1


def test_an_endpoint_that_is_not_there_is_an_error(make_judge: MakeJudge, fake_time: FakeTime) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        (score,) = make_judge(base_url=f"http://127.0.0.1:{free.getsockname()[1]}/v1").score(GOOD)
    assert score.outcome is Outcome.ERROR
    assert "the connection to http://127.0.0.1" in score.detail
    assert len(fake_time.waits) == 5


# --- not tried again -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer(401, error("bad key")), "answered 401: bad key (no key was sent"),
        (Answer(403, error("no")), "answered 403: no"),
        (Answer(404, error("no such model")), "answered 404: no such model"),
        (Answer(400, error("context too long")), "answered 400: context too long"),
        (Answer(400, {"detail": "what?"}), "answered 400: what?"),
        (Answer(400, {"error": "what?"}), "answered 400: what?"),
        (Answer(400, b"[" * 100_000), "answered 400: [[["),
        (Answer(429, error("no money left", code="insufficient_quota")), "no money left"),
        (Answer(302, b"", {"Location": "/v2/chat/completions"}), "answered 302"),
        (Answer(body=chat(None, message={"content": None, "refusal": "I will not."})), "refused: I will not."),
        (Answer(body=chat('{"id"', finish_reason="length")), "cut off; raise `max_tokens`"),
        (Answer(body=chat("", finish_reason="content_filter")), "content filter"),
        (Answer(body=b" " * 3_000_000), "longer than 1000000 bytes"),
        (
            Answer(body=gzip.compress(b" " * 300_000_000, 1), headers={"Content-Encoding": "gzip"}),
            "longer than 1000000 bytes",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value.status,
)
def test_a_fault_that_stays_is_an_error_at_once(
    answer: Answer, told: str, server: EndpointServer, make_judge: MakeJudge
) -> None:
    server.answers.append(answer)
    (score,) = make_judge().score(GOOD)
    assert (score.value, score.outcome) == (None, Outcome.ERROR)
    assert told in score.detail
    assert len(score.detail) < 600
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": []},
        {"choices": None},
        {"choices": [None]},
        {"choices": [{}]},
        {"choices": [{"message": "hello"}]},
        [],
        "hello",
        chat(""),
        chat(None),
        chat("I think that it is good."),
        chat('{"id": '),
        chat("[" * 50_000),
        chat('{"a":' * 50_000),
        chat("{" * 60_000),
        chat("x" * 100_000),
        chat('{"quality": {"verdict": "yes", "reason": ""}}'),
        chat('{"id": "000000000000", "quality": {"verdict": "yes", "reason": ""}}'),
    ],
    ids=lambda body: str(body)[:60],
)
def test_a_reply_that_is_no_verdict_is_asked_for_once_more_and_then_an_error(
    body: object, server: EndpointServer, make_judge: MakeJudge
) -> None:
    server.always = lambda request: Answer(body=body)
    (score,) = make_judge().score(GOOD)
    assert (score.value, score.outcome) == (None, Outcome.ERROR)
    assert [request.body["seed"] for request in server.requests] == [0, 1]


def test_the_second_reply_may_be_a_verdict(server: EndpointServer, make_judge: MakeJudge) -> None:
    server.answers.append(Answer(body=chat("I cannot decide.")))
    (score,) = make_judge().score(GOOD)
    assert score.value == 1.0
    assert score.extras["prompt_tokens"] == 200


@pytest.mark.parametrize(
    "verdict",
    ['"excellent"', "2", "null", "[]", '{"verdict": "maybe", "reason": ""}', '{"reason": "good"}', '{"verdict": {}}'],
)
def test_a_verdict_outside_the_score_map_is_an_error(
    verdict: str, server: EndpointServer, make_judge: MakeJudge
) -> None:
    server.judge = lambda request: f'{{"id": "{request.code}", "quality": {verdict}}}'
    (score,) = make_judge().score(GOOD)
    assert score.outcome is Outcome.ERROR
    assert "'quality' must be one of yes, partly, no" in score.detail


# --- time-outs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [Answer(body=chat("{}"), delay_s=30), Answer(body=chat("{}"), drip_s=0.05)])
def test_a_slow_answer_is_a_timeout(answer: Answer, server: EndpointServer, make_judge: MakeJudge) -> None:
    server.answers.append(answer)
    started = time.perf_counter()
    (score,) = make_judge(timeout_s=0.3).score(GOOD)
    assert time.perf_counter() - started < 3
    assert (score.value, score.outcome) == (None, Outcome.TIMEOUT)
    assert "longer than 0.3 s" in score.detail
    assert len(server.requests) == 1


def test_a_slow_answer_takes_no_other_with_it(server: EndpointServer, make_judge: MakeJudge) -> None:
    server.always = lambda request: Answer(delay_s=30) if "slow" in request.text else None
    scores = make_judge(timeout_s=5).score([Sample("yes"), Sample("slow"), Sample("no")])
    assert [score.value for score in scores] == [1.0, None, 0.0]


# --- what an endpoint does not know ----------------------------------------------------------------------------------


def test_the_schema_is_sent_where_the_endpoint_takes_it(server: EndpointServer, make_judge: MakeJudge) -> None:
    make_judge().score(GOOD)
    body = server.requests[0].body
    schema = body["response_format"]["json_schema"]
    assert schema["strict"] is True
    assert schema["schema"]["properties"]["quality"]["properties"]["verdict"]["enum"] == ["yes", "partly", "no"]
    assert (body["model"], body["temperature"], body["seed"], body["max_tokens"]) == ("practice", 0.0, 0, 1024)
    assert server.requests[0].path == "/v1/chat/completions"


def test_an_endpoint_without_schemas_is_asked_for_an_object_and_then_for_text(
    server: EndpointServer, make_judge: MakeJudge
) -> None:
    unknown = Answer(400, error("Invalid parameter: 'response_format' is not supported"))
    server.always = lambda request: unknown if "response_format" in request.body else None
    server.judge = lambda request: f"Let me see.\n```json\n{grade(request)}\n```\nThat is my verdict."
    judge = make_judge()
    assert judge.score(GOOD)[0].value == 1.0
    formats = [request.body.get("response_format", {}).get("type") for request in server.requests]
    assert formats == ["json_schema", "json_object", None]
    assert judge.score([Sample("no")])[0].value == 0.0
    assert len(server.requests) == 4  # it is remembered


def test_what_many_requests_find_out_at_once_is_left_out_once(server: EndpointServer, make_judge: MakeJudge) -> None:
    def refuse(request: object) -> Answer | None:
        body = server.requests[-1].body
        given = body.get("response_format", {}).get("type")
        return Answer(400, error("json_schema is not supported")) if given == "json_schema" else None

    server.always = refuse
    server.work_s = 0.02
    scores = make_judge().score([Sample(f"yes {number}") for number in range(16)])
    assert [score.value for score in scores] == [1.0] * 16
    assert {r.body.get("response_format", {}).get("type") for r in server.requests} == {"json_schema", "json_object"}


def test_a_structure_that_was_asked_for_is_not_given_up(server: EndpointServer, make_judge: MakeJudge) -> None:
    server.always = lambda request: Answer(400, error("no response_format", param="response_format"))
    (score,) = make_judge(structured="json_schema").score(GOOD)
    assert score.outcome is Outcome.ERROR
    assert len(server.requests) == 1


@pytest.mark.parametrize("parameter", ["seed", "temperature"])
def test_a_parameter_that_is_refused_is_left_out_with_a_warning(
    parameter: str, server: EndpointServer, make_judge: MakeJudge, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = Answer(400, error(f"Unsupported value: '{parameter}' does not support 0", param=parameter))
    server.always = lambda request: refusal if parameter in request.body else None
    judge = make_judge()
    with caplog.at_level(logging.WARNING, "agent_tunix"):
        assert judge.score(GOOD)[0].value == 1.0
        assert judge.score([Sample("no")])[0].value == 0.0
    assert len(server.requests) == 3
    assert [record.getMessage() for record in caplog.records] == [
        f"practice at {server.url} takes no `{parameter}`, so its verdicts may vary"
    ]


def test_the_newer_name_of_max_tokens_is_found(server: EndpointServer, make_judge: MakeJudge) -> None:
    message = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    server.always = lambda request: Answer(400, error(message)) if "max_tokens" in request.body else None
    assert make_judge(max_tokens=77).score(GOOD)[0].value == 1.0
    assert server.requests[1].body["max_completion_tokens"] == 77


def test_an_endpoint_that_refuses_whatever_is_sent_is_given_up(server: EndpointServer, make_judge: MakeJudge) -> None:
    message = "response_format seed temperature max_completion_tokens"
    server.always = lambda request: Answer(400, error(message))
    assert make_judge().score(GOOD)[0].outcome is Outcome.ERROR
    assert len(server.requests) < 8


def test_further_parameters_are_sent(server: EndpointServer, make_judge: MakeJudge) -> None:
    make_judge(extra_body={"chat_template_kwargs": {"enable_thinking": False}}, seed=7).score(GOOD)
    assert server.requests[0].body["seed"] == 7
    assert server.requests[0].body["chat_template_kwargs"] == {"enable_thinking": False}


# --- usage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": "many"}, {"prompt_tokens": -1, "completion_tokens": 2}])
def test_usage_that_the_endpoint_does_not_tell_is_estimated(
    usage: object, server: EndpointServer, make_judge: MakeJudge
) -> None:
    server.always = lambda request: Answer(body={**chat(grade(request)), "usage": usage})
    (score,) = make_judge().score(GOOD)
    assert score.extras["prompt_tokens"] > 100
    assert 10 < score.extras["completion_tokens"] < 100


def test_an_estimate_is_not_below_what_text_takes() -> None:
    messages = [{"role": "user", "content": "word " * 300}]
    assert estimate_usage(messages, None, 10).prompt_tokens >= 300
