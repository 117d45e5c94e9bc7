"""Judges whose model this process samples; a stand-in replies in place of the model, without JAX."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.errors import ModelError, RewardError
from agent_tunix.rewards import Outcome, Sample, Score
from agent_tunix.rewards.judges import is_local_model, load_judge
from agent_tunix.rewards.judges.faults import JudgeFault
from agent_tunix.rewards.judges.local import ModelKey, ModelReply, ModelRequest
from agent_tunix.runs.weights import judge_models
from tests.raising import raises
from tests.rewards.judges.conftest import Bench
from tests.rewards.judges.endpoint_server import Request, grade, prefer_longer

SAMPLES = [Sample(text, prompt="Why?", group_id=0) for text in ("yes", "no, because it is", "partly so", "no")]
ARGS: dict[str, Any] = {"rubric": "Is it good?", "cache": False}


class StandIn:
    """A model that replies as the server of the tests does."""

    def __init__(self, key: ModelKey) -> None:
        self.batches: list[Sequence[ModelRequest]] = []
        self.weights = "first"
        self.ended = True

    def check(self) -> None:
        """Find all files."""

    def digest(self, *, fetch: bool = True) -> str | None:
        return self.weights

    def answer(self, request: ModelRequest) -> str:
        shown = Request({"messages": request.messages}, {}, "")
        return prefer_longer(shown) if len(shown.judged) == 2 else grade(shown)

    def reply(self, requests: Sequence[ModelRequest]) -> Iterator[list[tuple[int, ModelReply | JudgeFault]]]:
        self.batches.append(requests)
        # In the wrong order, and one at a time.
        for place, request in reversed(list(enumerate(requests))):
            yield [(place, ModelReply(self.answer(request), 100, 20, self.ended))]


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(judge_models, "JudgeModel", StandIn)
    monkeypatch.setitem(ARGS, "model", f"./{request.node.name}")  # a model of the test's own


def judge(kind: str = "judge", **args: Any) -> Any:
    return load_judge(kind).bind("tone", {**ARGS, **args})


def model_of(judge: Any) -> StandIn:
    assert isinstance(judge.local_model.model, StandIn)
    return judge.local_model.model


def shown(scores: Sequence[Score]) -> list[Any]:
    return [(score.value, score.components, score.outcome, score.detail) for score in scores]


@pytest.mark.parametrize("kind", ["judge", "pairwise_judge"])
def test_scores_are_those_of_an_endpoint(kind: str, bench: Bench) -> None:
    if kind == "pairwise_judge":
        bench.server.judge = prefer_longer
    scores = judge(kind).score(SAMPLES)
    assert shown(scores) == shown(bench.judge(kind).score(SAMPLES))
    assert len({score.value for score in scores}) > 2


def test_all_questions_of_a_call_reach_the_model_together() -> None:
    one = judge("pairwise_judge")
    one.score(SAMPLES)
    assert [len(batch) for batch in model_of(one).batches] == [12]
    assert one.metrics()["prompt_tokens"] == 1200


def test_judges_with_equal_weights_share_a_model() -> None:
    one, other = judge(max_tokens=64), judge("pairwise_judge", rubric="Which?")
    assert one.local_model is other.local_model
    assert judge(quantization="nf4").local_model is not one.local_model


def test_a_reply_that_is_no_verdict_is_asked_for_again_with_another_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = StandIn.answer
    monkeypatch.setattr(StandIn, "answer", lambda self, request: answer(self, request) if request.seed else "It is.")
    assert judge().score(SAMPLES[:1])[0].value == 1.0
    monkeypatch.setattr(StandIn, "answer", lambda self, request: "It is.")
    assert judge().score(SAMPLES[:1])[0].outcome is Outcome.ERROR


def test_a_reply_that_was_cut_off_is_an_error() -> None:
    one = judge()
    model_of(one).ended = False
    assert "max_tokens" in one.score(SAMPLES[:1])[0].detail


def test_a_fault_of_the_model_costs_no_other_judge(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    def fail(self: StandIn, request: ModelRequest) -> str:
        raise MemoryError("no room on the device")

    monkeypatch.setattr(StandIn, "answer", fail)
    assert {score.outcome for score in judge().score(SAMPLES)} == {Outcome.ERROR}
    assert bench.ask("yes").value == 1.0


def test_replies_are_cached_until_the_weights_change(tmp_path: Path) -> None:
    one, again, changed = (judge(cache=str(tmp_path / "cache.sqlite")) for _ in range(3))
    scores = one.score(SAMPLES)
    assert shown(again.score(SAMPLES)) == shown(scores)
    assert (again.metrics()["cache_hits"], again.metrics()["requests"]) == (4, 0)
    model_of(changed).weights = "second"
    changed.score(SAMPLES)
    assert changed.metrics()["requests"] == 4


def test_a_budget_of_requests_ends_the_questions() -> None:
    scores = judge(max_requests=3).score(SAMPLES)
    assert [score.outcome for score in scores].count(Outcome.ERROR) == 1


@pytest.mark.parametrize(
    ("model", "base_url", "is_local"),
    [
        ("gemma3_12b", None, True),  # a file of conf/model
        ("hf://google/gemma-3-12b-it", None, True),
        ("./models/judge", None, True),
        ("embedded:tiny_qwen3", None, True),
        ("gpt-4o-mini", None, False),
        ("Qwen/Qwen3-32B", "http://localhost:8000/v1", False),
        ("gemma3_12b", "http://localhost:8000/v1", False),
    ],
)
def test_the_place_of_a_model_follows_from_its_name_and_url(model: str, base_url: str | None, is_local: bool) -> None:
    assert is_local_model(model, base_url) is is_local


@pytest.mark.parametrize(
    "args",
    [
        {"timeout_s": 5.0},
        {"prices": {"prompt": 1.0, "completion": 1.0}},
        {"structured": "json_schema"},
        {"extra_body": {"top_k": 1}},
        {"model": "gpt-4o-mini", "quantization": "nf4"},
        {"model": "gpt-4o-mini", "max_prompt_tokens": 100},
    ],
)
def test_an_argument_without_effect_is_refused(args: dict[str, Any]) -> None:
    with raises(RewardError, "invalid_reward_args"):
        judge(**args)


def test_missing_files_are_found_before_the_first_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(ModelError, match="not a directory"):
        judge(model="./nowhere").check_parameters(())
