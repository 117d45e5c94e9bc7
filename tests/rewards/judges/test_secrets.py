import logging
import pickle
from pathlib import Path

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards import Outcome, Sample
from agent_tunix.rewards.judges import load_judge
from tests.raising import raises
from tests.rewards.judges.conftest import Bench
from tests.rewards.judges.endpoint_server import Answer, chat, grade

KEY = "sk-open-sesame-1234567890"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRACTICE_KEY", KEY)


def test_the_key_is_sent_as_a_bearer_token_where_its_variable_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, KEY)
    bench.ask(api_key_env="PRACTICE_KEY")
    bench.ask()
    assert [KEY in value for request in bench.server.requests for value in request.headers.values()].count(True) == 1
    assert [request.headers.get("authorization") for request in bench.server.requests] == [f"Bearer {KEY}", None]


def test_the_usual_variable_is_for_the_usual_endpoint_alone() -> None:
    args = {"model": "m", "rubric": "Good?"}
    judge = load_judge("judge")
    names = [
        judge.bind("tone", {**args, "base_url": url}).arguments.api_key_env
        for url in (None, "https://api.openai.com/v1/", "http://api.openai.com/v1", "https://api.openai.com.example/v1")
    ]
    assert names == ["OPENAI_API_KEY", "OPENAI_API_KEY", None, None]


def test_the_key_is_neither_logged_nor_stored_nor_shown(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in (None, "httpx", "httpcore"):
        caplog.set_level(logging.DEBUG, name)
    bench.server.answers.append(Answer(500, {"error": {"message": f"trouble with {KEY}"}}))
    bench.server.judge = lambda request: grade(request).replace("because", KEY)
    judge = bench.judge(api_key_env="PRACTICE_KEY", cache=str(tmp_path / "cache"))
    (score,) = judge.score([Sample("yes")])
    assert score.value == 1.0
    assert score.extras["reasons"] == {"quality": "[key] of 3 characters"}
    shown = [str(score), repr(judge), judge.describe(), str(judge.arguments), str(vars(judge)), str(judge.metrics())]
    stored = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert stored
    assert KEY not in caplog.text
    assert KEY not in "".join(shown)
    assert KEY.encode() not in b"".join([*stored, pickle.dumps(judge)])


@pytest.mark.parametrize(
    "answer",
    [
        Answer(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}),
        Answer(400, f"{KEY} is not welcome".encode()),
        Answer(403, b'{"error": {"message": "no: ' + b"".join(b"\\u%04x" % ord(one) for one in KEY) + b'"}}'),
        Answer(200, f"{KEY} is not JSON".encode()),
        Answer(200, chat(f"Your key is {KEY}")),
        Answer(200, chat(None, message={"refusal": f"Not for {KEY}"})),
    ],
    ids=lambda answer: answer.status,
)
def test_an_endpoint_that_repeats_the_key_is_not_quoted_with_it(answer: Answer, bench: Bench) -> None:
    bench.server.always = lambda request: answer
    score = bench.ask(api_key_env="PRACTICE_KEY")
    assert score.outcome is Outcome.ERROR
    assert "[key]" in score.detail
    assert KEY not in str(score)


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_key_that_is_not_set_is_an_error_before_training(
    value: str | None, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = bench.judge(api_key_env="PRACTICE_KEY")
    judge.check_parameters([])
    monkeypatch.setenv("PRACTICE_KEY", value) if value is not None else monkeypatch.delenv("PRACTICE_KEY")
    with raises(RewardError, "invalid_judge") as caught:
        judge.check_parameters([])
    assert "PRACTICE_KEY" in str(caught.value)
    (score,) = judge.score([Sample("yes")])
    assert score.outcome is Outcome.ERROR
    assert bench.server.requests == []


def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRACTICE_KEY", "sesame\nX-Other: 1")
    with raises(RewardError, "invalid_judge") as caught:
        bench.judge(api_key_env="PRACTICE_KEY").check_parameters([])
    assert "sesame" not in str(caught.value)


def test_an_unencrypted_key_is_warned_of(caplog: pytest.LogCaptureFixture, bench: Bench) -> None:
    bench.judge(api_key_env="PRACTICE_KEY")  # on the loopback
    assert caplog.records == []
    bench.judge(api_key_env="PRACTICE_KEY", base_url="http://judge.example/v1")
    assert "judge 'tone' sends its key unencrypted to judge.example" in caplog.text
