"""G-Eval's calls go through our endpoint: with a stand-in that calls as DeepEval does, and with DeepEval itself."""

import json
import os
import re
from collections.abc import Iterator

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards import Outcome, Sample
from agent_tunix.rewards.judges import base, load_judge
from tests.raising import raises
from tests.rewards.judges.conftest import STAND_IN, Bench, forget_deepeval
from tests.rewards.judges.endpoint_server import Answer, Request, chat

# Warnings of DeepEval and of its dependencies are not ours.
pytestmark = pytest.mark.filterwarnings("default")


STEPS = re.compile(r"STEPS for|generate \d(-\d)? concise evaluation steps")


@pytest.fixture(autouse=True, params=["stand-in", pytest.param("installed", marks=pytest.mark.slow)])
def deepeval(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("DEEPEVAL_TELEMETRY_OPT_OUT", raising=False)
    if request.param == "installed":
        pytest.importorskip("deepeval", reason="the extra `deepeval` is not installed", exc_type=ImportError)
        yield
        return
    forget_deepeval()
    monkeypatch.syspath_prepend(STAND_IN)
    yield
    forget_deepeval()


@pytest.fixture(autouse=True)
def evaluator(bench: Bench) -> None:
    def answer(request: Request) -> str:
        if STEPS.search(request.text):
            return json.dumps({"steps": ["Read it.", "Judge it."]})
        return json.dumps({"reason": "as it reads", "score": 8 if "because 2 + 2" in request.text else 3})

    bench.server.judge = answer


GOOD = "4, because 2 + 2 = 4"


def test_the_score_is_g_evals(bench: Bench) -> None:
    judge = bench.judge("geval_judge", rubric=None, steps=["Count it."], prices={"prompt": 10, "completion": 100})
    scores = judge.score([Sample(GOOD, prompt="Why so?"), Sample("5", prompt="Why so?")])
    assert [score.value for score in scores] == [0.8, 0.3]
    assert scores[0].detail == "as it reads"
    assert scores[0].extras["cost"] == pytest.approx(0.003)
    assert len(bench.server.requests) == 2
    assert bench.server.requests[0].body["temperature"] == 0.0
    assert all(shown in bench.server.requests[0].text for shown in ("Why so?", "Count it."))
    assert os.environ.pop("DEEPEVAL_TELEMETRY_OPT_OUT") == "YES"


def test_steps_are_made_once(bench: Bench) -> None:
    judge = bench.judge("geval_judge")
    judge.score([Sample(f"{number}") for number in range(4)])
    (score,) = judge.score([Sample(GOOD)])
    assert sum(bool(STEPS.search(request.text)) for request in bench.server.requests) == 1
    assert score.extras["steps"] == ["Read it.", "Judge it."]


def test_the_expected_output_is_a_column(bench: Bench) -> None:
    judge = bench.judge("geval_judge", steps=["Read it."], expected="answer")
    judge.check_parameters(["answer"])
    assert judge.score([Sample(GOOD, columns={"answer": "forty-two"})])[0].value == 0.8
    assert "forty-two" in bench.server.requests[0].text
    assert judge.score([Sample(GOOD)])[0].outcome is Outcome.BAD_REFERENCE


def replied(content: str) -> Answer:
    return Answer(body=chat(content))


@pytest.mark.parametrize(
    ("answer", "outcome", "told"),
    [
        (Answer(500, {}), Outcome.ERROR, "after 6 tries"),
        (Answer(delay_s=600), Outcome.TIMEOUT, ""),
        (replied("I like it."), Outcome.ERROR, "does not follow G-Eval's schema"),
        (replied('{"grade": 4}'), Outcome.ERROR, ""),
        (replied('{"reason": "", "score": 11}'), Outcome.ERROR, ""),
        (replied('{"reason": "", "score": -1}'), Outcome.ERROR, ""),
        (replied('{"reason": "", "score": NaN}'), Outcome.ERROR, ""),
    ],
)
def test_failures_are_outcomes(answer: Answer, outcome: Outcome, told: str, bench: Bench) -> None:
    bench.server.always = lambda request: answer
    score = bench.ask(GOOD, "geval_judge", steps=["Read it."], timeout_s=0.5 if answer.delay_s else 60.0)
    assert (score.value, score.outcome) == (None, outcome), score.detail
    assert told in score.detail


def test_without_deepeval_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base.importlib.util, "find_spec", lambda name: None if name == "deepeval" else True)  # type: ignore[attr-defined]
    with raises(RewardError, "missing_package") as caught:
        load_judge("geval_judge").bind("coherent", {"model": "m", "rubric": "Good?"})
    assert "requires deepeval, which is not installed; run `pip install agent_tunix[deepeval]`" in str(caught.value)
