"""G-Eval with DeepEval itself, against a real endpoint on the loopback; skipped without the extra `deepeval`."""

import json
import re
from typing import Any

import pytest

from agent_tunix.rewards import Outcome, Sample
from tests.rewards.judges.conftest import Bench
from tests.rewards.judges.endpoint_server import Answer, Request

pytest.importorskip("deepeval", reason="the extra `deepeval` is not installed", exc_type=ImportError)

# What DeepEval and its dependencies warn of is not ours to mend.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


def answer_as_evaluator(request: Request) -> str:
    """Steps when steps are asked for, and else a score: 9 of 10 for what says "because 2 + 2", 2 for what does not."""
    if re.search(r"generate \d(-\d)? concise evaluation steps", request.text):
        return json.dumps({"steps": ["Read it.", "Look for gaps."]})
    return json.dumps({"reason": "as it reads", "score": 9 if "because 2 + 2" in request.text else 2})


@pytest.fixture
def judge(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("DEEPEVAL_TELEMETRY_OPT_OUT", raising=False)
    bench.server.judge = answer_as_evaluator
    return bench.judge("geval_judge", rubric="Is the solution coherent?")


def test_deepeval_asks_our_endpoint_and_its_score_is_the_value(bench: Bench, judge: Any) -> None:
    good, bad = judge.score([Sample("4, as 2 + 2 = 4", prompt="2 + 2?"), Sample("5", prompt="2 + 2?")])
    assert (good.outcome, bad.outcome) == (Outcome.SCORED, Outcome.SCORED), good.detail
    assert good.extras["steps"] == ["Read it.", "Look for gaps."]
    assert all(request.body["model"] == "practice" for request in bench.server.requests)
    (better,) = judge.score([Sample("4, because 2 + 2 = 4", prompt="2 + 2?")])
    assert (better.value, bad.value) == (0.9, 0.2)
    assert better.extras["requests"] == 1


def test_given_steps_are_used_and_none_are_made(bench: Bench, judge: Any) -> None:
    stepped = bench.judge("geval_judge", steps=["Count the commas."], expected="answer", rubric=None)
    (score,) = stepped.score([Sample("4", prompt="2 + 2?", columns={"answer": "four"})])
    assert score.outcome is Outcome.SCORED, score.detail
    assert len(bench.server.requests) == 1
    assert "Count the commas." in bench.server.requests[0].text
    assert "four" in bench.server.requests[0].text


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(400, {}), Outcome.ERROR),
        (Answer(delay_s=600), Outcome.TIMEOUT),
        (Answer(body=b"no json"), Outcome.ERROR),
        (Answer(body={"choices": [{"message": {"content": '{"score": 40, "reason": "so"}'}}]}), Outcome.ERROR),
        (Answer(body={"choices": [{"message": {"content": '{"grade": 4}'}}]}), Outcome.ERROR),
    ],
)
def test_failures_behind_deepeval_are_outcomes(answer: Answer, outcome: Outcome, bench: Bench) -> None:
    bench.server.always = lambda request: answer
    (score,) = bench.judge("geval_judge", steps=["Read it."], timeout_s=0.5, tries=2).score([Sample("4", prompt="x")])
    assert (score.value, score.outcome) == (None, outcome), score.detail
