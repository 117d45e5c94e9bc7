"""G-Eval's calls go through our endpoint: with a stand-in that calls as DeepEval does, and with DeepEval itself."""

import enum
import json
import os
import re
import sys
import types
from typing import Any

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards import Outcome, Sample
from agent_tunix.rewards.judges import base, load_judge
from tests.raising import raises
from tests.rewards.judges.conftest import Bench
from tests.rewards.judges.endpoint_server import Answer, Request, chat

# Warnings of DeepEval and of its dependencies are not ours.
pytestmark = pytest.mark.filterwarnings("default")


class _Schema:
    fields: tuple[str, ...] = ()

    def __init__(self, values: dict[str, Any]) -> None:
        vars(self).update(values)

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {"type": "object", "properties": {name: {} for name in cls.fields}, "required": list(cls.fields)}

    @classmethod
    def model_validate(cls, found: dict[str, Any]) -> "_Schema":
        if set(cls.fields) - set(found):
            raise ValueError("a field is missing")
        return cls(found)


class _Steps(_Schema):
    fields = ("steps",)


class _ReasonScore(_Schema):
    fields = ("score", "reason")


class _Model:
    def __init__(self, model: str) -> None:
        self.name = model
        self.model = self.load_model()

    def load_model(self) -> Any:
        raise NotImplementedError


class _Params(enum.Enum):
    INPUT = "input"
    ACTUAL_OUTPUT = "actual_output"
    EXPECTED_OUTPUT = "expected_output"


class _TestCase:
    def __init__(self, **columns: str) -> None:
        self.columns = columns


class _GEval:
    def __init__(
        self, name: str, criteria: str | None, evaluation_steps: list[str] | None, evaluation_params: Any, model: Any
    ) -> None:
        assert criteria or evaluation_steps
        self.criteria, self.evaluation_steps, self.model = criteria, evaluation_steps, model
        self.params = [param.value for param in evaluation_params]

    async def a_measure(self, case: _TestCase, _show_indicator: bool = True) -> float:
        assert not _show_indicator
        if not self.evaluation_steps:
            made: Any = await self.model.a_generate(f"STEPS for {self.criteria}", schema=_Steps)
            self.evaluation_steps = made.steps
        shown = "\n".join(f"{name}: {case.columns[name]}" for name in self.params)
        result: Any = await self.model.a_generate(f"SCORE by {self.evaluation_steps}\n{shown}", schema=_ReasonScore)
        self.score, self.reason = result.score / 10, result.reason
        return float(self.score)


STAND_IN: dict[str, dict[str, Any]] = {
    "deepeval": {},
    "deepeval.metrics": {"GEval": _GEval},
    "deepeval.models": {"DeepEvalBaseLLM": _Model},
    "deepeval.test_case": {"LLMTestCase": _TestCase, "SingleTurnParams": _Params},
}
STEPS = re.compile(r"STEPS for|generate \d(-\d)? concise evaluation steps")


@pytest.fixture(autouse=True, params=["stand-in", pytest.param("installed", marks=pytest.mark.slow)])
def deepeval(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPEVAL_TELEMETRY_OPT_OUT", raising=False)
    if request.param == "installed":
        pytest.importorskip("deepeval", reason="the extra `deepeval` is not installed", exc_type=ImportError)
        return
    for name, content in STAND_IN.items():
        module = types.ModuleType(name)
        module.__spec__ = types.SimpleNamespace(name=name)  # type: ignore[assignment]
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)


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
    with raises(RewardError, "missing_dependency") as caught:
        load_judge("geval_judge").bind("coherent", {"model": "m", "rubric": "Good?"})
    assert "requires deepeval, which is not installed; run `pip install agent_tunix[deepeval]`" in str(caught.value)
