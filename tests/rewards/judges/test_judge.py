import asyncio
import gc
import json
import logging
import pickle
import socket
import threading
from pathlib import Path
from typing import Any

import openai
import pytest

from agent_tunix.errors import BadReferenceError, RewardError, RewardSignatureError
from agent_tunix.rewards import (
    Outcome,
    Sample,
    fingerprint,
    get_reward_function,
    list_reward_functions,
    resolve_reward,
)
from agent_tunix.rewards.execution import make_runner
from agent_tunix.rewards.judges import JUDGES, base, load_judge
from agent_tunix.rewards.sample import Reward
from tests.raising import raises
from tests.rewards.judges.conftest import Bench
from tests.rewards.judges.endpoint_server import Answer, Request, chat, grade
from tests.tiers import slow_after

ARGS = {"model": "practice", "base_url": "http://127.0.0.1:9/v1", "rubric": "Is it good?", "cache": False}
MANY = [Sample(f"yes {number}") for number in range(12)]


def open_clients() -> set[openai.AsyncOpenAI]:
    return {thing for thing in gc.get_objects() if isinstance(thing, openai.AsyncOpenAI) and not thing.is_closed()}


def test_a_score_explains_itself(bench: Bench) -> None:
    rubric = {"good": "Is it good?", "rude": {"question": "Is it rude?", "polarity": "negative", "weight": 3}}
    score = bench.ask("partly", rubric=rubric, prices={"prompt": 10, "completion": 100})
    assert score.value == 0.5
    assert score.components == {"good": 0.5, "rude": 0.5}
    assert score.detail == "good partly (because of 6 characters); rude partly (because of 6 characters)"
    assert score.extras["verdicts"] == {"good": "partly", "rude": "partly"}
    assert score.extras["reasons"]["rude"] == "because of 6 characters"
    assert (score.extras["prompt_tokens"], score.extras["completion_tokens"]) == (100, 20)
    assert score.extras["cost"] == pytest.approx(0.003)
    assert score.extras["latency_s"] > 0
    assert score.seconds > 0


def test_order_is_kept_whatever_answers_first(bench: Bench) -> None:
    def answer(request: Request) -> Answer:
        return Answer(body=chat(grade(request)), delay_s=0.1 if "yes" in request.judged[0] else 0.0)

    bench.server.always = answer
    scores = bench.judge().score([Sample(text) for text in ("yes 1", "no 2", "partly 3", "yes 4", "no 5")])
    assert [score.extras["verdicts"]["quality"] for score in scores] == ["yes", "no", "partly", "yes", "no"]


def test_the_judge_is_shown_the_problem_and_the_columns_that_it_may_see(bench: Bench) -> None:
    columns = {"answer": "4", "secret": "hidden", "data": {"a": [1]}}
    judge = bench.judge(columns=["answer", "data"])
    judge.score([Sample("It is 4.", prompt="What is 2 + 2?", columns=columns)])
    # Without a prompt, the conversation is the problem.
    messages = ({"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "It is 4."})
    judge.score([Sample("It is 4.", messages=messages, columns=columns)])
    first, second = (request.text for request in bench.server.requests)
    assert all(shown in first for shown in ("What is 2 + 2?", "<<<REFERENCE answer", '{"a": [1]}'))
    assert "hidden" not in first
    assert "user: What is 2 + 2?" in second


@pytest.mark.parametrize("columns", [{}, {"answer": None}, {"answer": "  "}])
def test_an_empty_column_is_a_bad_reference_and_no_request(columns: dict[str, object], bench: Bench) -> None:
    judge = bench.judge(columns="answer")
    assert judge.score([Sample("yes", columns=columns)])[0].outcome is Outcome.BAD_REFERENCE
    assert bench.server.requests == []
    with pytest.raises(BadReferenceError, match="missing or empty"):
        judge("yes", **columns)


@pytest.mark.parametrize("response", ["", " \n", "\ud800", "x" * 200_000, "\x00"])
def test_any_response_can_be_judged(response: str, bench: Bench) -> None:
    assert bench.ask(response).outcome is Outcome.SCORED


def test_a_judge_can_be_called_like_a_function_and_survives_pickling(bench: Bench) -> None:
    judge = bench.judge()
    assert judge("yes", prompt="Why?") == 1.0
    copy = pickle.loads(pickle.dumps(judge))
    assert (copy.name, copy.args, copy("yes")) == (judge.name, judge.args, 1.0)
    assert pickle.loads(pickle.dumps(load_judge("judge"))).arguments is None
    bench.server.always = lambda request: Answer(400, {})
    with pytest.raises(RewardError, match=r"reward 'tone': .* answered 400"):
        judge("no")


@pytest.mark.parametrize("kind", ["judge", "pairwise_judge"])
def test_no_samples_have_no_scores(kind: str, bench: Bench) -> None:
    assert bench.judge(kind).score([]) == []


def test_a_fault_of_one_judgement_takes_no_other_with_it(bench: Bench) -> None:
    bench.server.always = lambda request: Answer(400, {}) if "poison" in request.text else None
    scores = bench.judge().score([Sample("yes"), Sample("poison"), Sample("no")])
    assert [score.value for score in scores] == [1.0, None, 0.0]


def test_a_defect_in_one_judgement_takes_no_other_with_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = bench.judge()
    monkeypatch.setattr(type(judge), "_shared_sections", lambda self, sample: {"PROBLEM": sample.columns["x"]})
    scores = judge.score([Sample("yes"), Sample("yes", columns={"x": "Why?"})])
    assert [score.outcome for score in scores] == [Outcome.ERROR, Outcome.SCORED]
    assert "KeyError" in scores[0].detail


def test_a_judge_works_inside_a_running_event_loop(bench: Bench) -> None:
    async def run() -> list[float]:
        return [score.value for score in bench.judge().score([Sample("yes"), Sample("no")])]

    assert asyncio.run(run()) == [1.0, 0.0]


def test_a_judge_works_in_several_threads_at_once_and_leaves_no_connection_open(bench: Bench) -> None:
    judge, before = bench.judge(), open_clients()
    bench.server.crowd = 8  # all four threads have both requests under way
    values: dict[int, list[float]] = {}

    def score(number: int) -> None:
        values[number] = [s.value for s in judge.score([Sample(f"yes {number}"), Sample(f"no {number}")])]

    threads = [threading.Thread(target=score, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    score(4)
    assert values == {number: [1.0, 0.0] for number in range(5)}
    assert open_clients() <= before


def test_concurrent_calls_share_one_limit(bench: Bench) -> None:
    judge = bench.judge(max_concurrency=3)
    bench.server.crowd = 3
    futures = [judge.begin([sample]) for sample in MANY]
    assert [future.result()[0].value for future in futures] == [1.0] * 12
    assert bench.server.most_at_once == 3


def test_a_cancelled_batch_leaves_its_place_to_the_next_and_nothing_behind(bench: Bench) -> None:
    judge, before = bench.judge(max_concurrency=1), open_clients()
    bench.server.always = lambda request: Answer(delay_s=600) if "wait" in request.text else None
    cancelled = judge.begin([Sample("wait")] * 3)
    bench.server.wait_for_requests(1)
    cancelled.cancel()
    assert judge.score([Sample("yes")])[0].value == 1.0
    assert open_clients() <= before


def test_tokens_per_minute_are_kept_by_what_was_used(bench: Bench) -> None:
    judge = bench.judge(tokens_per_minute=3_000, max_concurrency=1)
    for sample in MANY[:10]:  # about 1,600 tokens each by the estimate, 120 by the endpoint's own count
        judge.score([sample])
    assert bench.time.now == 1_000


def test_a_spent_budget_of_requests_ends_in_errors_that_name_it(bench: Bench) -> None:
    judge = bench.judge(max_requests=3)
    scores = judge.score(MANY[:5])
    assert sorted(score.outcome for score in scores) == ["error", "error", "scored", "scored", "scored"]
    assert "the judge's budget is used up: max_requests=3" in next(s.detail for s in scores if s.value is None)
    assert judge.score([Sample("no")])[0].outcome is Outcome.ERROR
    assert len(bench.server.requests) == 3
    bench.server.always = lambda request: Answer(500, {})
    assert "max_requests=2" in bench.ask(max_requests=2).detail
    assert len(bench.server.requests) == 5  # repeated tries count


def test_no_more_money_is_spent_than_allowed(bench: Bench) -> None:
    judge = bench.judge(prices={"prompt": 0, "completion": 100}, max_cost=0.01, max_tokens=50)
    scores = judge.score(MANY)
    assert [score.outcome for score in scores].count(Outcome.SCORED) == len(bench.server.requests)
    assert 0.002 <= judge.metrics()["cost"] <= 0.01
    judge.score([Sample(f"no {number}") for number in range(12)])
    assert judge.metrics()["cost"] <= 0.01
    assert "max_cost=0.01" in judge.score([Sample("partly")])[0].detail


def test_a_connection_that_was_refused_costs_nothing(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
    judge = bench.judge(base_url=address, prices={"prompt": 100, "completion": 100}, max_cost=0.2, tries=1)
    scores = [judge.score([sample])[0] for sample in MANY[:3]]
    assert [score.detail for score in scores if "the connection to" not in score.detail] == []
    assert (judge.metrics()["requests"], judge.metrics()["cost"]) == (3, 0.0)


def test_what_the_cache_knows_is_free(bench: Bench, tmp_path: Path) -> None:
    bench.ask(cache=str(tmp_path / "cache"))
    assert bench.ask(cache=str(tmp_path / "cache"), max_requests=0).value == 1.0


def test_totals_count_everything(bench: Bench, tmp_path: Path) -> None:
    bench.server.answers.extend([Answer(500, {}), Answer(400, {})])
    judge = bench.judge(prices={"prompt": 1, "completion": 10}, cache=str(tmp_path / "cache"), max_concurrency=1)
    judge.score([Sample("yes"), Sample("no"), Sample("partly")])
    judge.score([Sample("partly")])
    metrics = judge.metrics()
    counts = ("verdicts", "failures", "cache_hits", "requests", "prompt_tokens", "completion_tokens", "cached_tokens")
    assert [metrics[name] for name in counts] == [3, 1, 1, 4, 200, 40, 128]
    assert metrics["cost"] == pytest.approx(200e-6 + 400e-6)
    assert 0 < metrics["latency_mean_s"] <= metrics["latency_max_s"]


def test_a_request_given_up_is_charged_at_its_estimate(bench: Bench) -> None:
    bench.server.answers.append(Answer(delay_s=600))
    judge = bench.judge(timeout_s=0.2, prices={"prompt": 1, "completion": 1}, max_tokens=500)
    assert judge.score([Sample("yes")])[0].outcome is Outcome.TIMEOUT
    assert judge.metrics()["completion_tokens"] == 500 * judge.metrics()["requests"]


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        ({"model": None}, "invalid_reward_args", "`model`"),
        ({"rubric": None}, "invalid_reward_args", "`rubric`"),
        ({"modle": "x"}, "invalid_reward_args", "'modle'; it has: rubric, scores, polarity, model,"),
        ({"model": 3}, "invalid_reward_args", "a valid string, not 3"),
        ({"base_url": "api.openai.com"}, "invalid_reward_args", "a URL such as"),
        ({"base_url": "http://host:port/"}, "invalid_reward_args", "a URL such as"),
        ({"base_url": "http://user:sesame@host/v1"}, "invalid_reward_args", "without user, query and fragment"),
        ({"base_url": "http://host/v1?key=sesame"}, "invalid_reward_args", "without user, query and fragment"),
        ({"temperature": 3}, "invalid_reward_args", "less than or equal to 2, not 3"),
        ({"temperature": True}, "invalid_reward_args", "a valid number"),
        ({"temperature": float("nan")}, "invalid_reward_args", "a finite number"),
        ({"timeout_s": 0}, "invalid_reward_args", "greater than 0"),
        ({"timeout_s": float("inf")}, "invalid_reward_args", "a finite number"),
        ({"tries": 0}, "invalid_reward_args", "greater than or equal to 1"),
        ({"tries": 1.5}, "invalid_reward_args", "a valid integer"),
        ({"max_concurrency": "many"}, "invalid_reward_args", "a valid integer"),
        ({"requests_per_minute": 0}, "invalid_reward_args", "greater than or equal to 1"),
        ({"structured": "xml"}, "invalid_reward_args", "'auto', 'json_schema'"),
        ({"extra_body": {"stream": True}}, "invalid_reward_args", "must not contain stream"),
        ({"extra_body": "stream"}, "invalid_reward_args", "a valid dictionary"),
        ({"prices": {"prompt": 1}}, "invalid_reward_args", "`prices.completion`"),
        ({"prices": {"prompt": 1, "completion": -1}}, "invalid_reward_args", "`prices.completion`"),
        ({"max_cost": 1.0}, "invalid_reward_args", "requires `prices`"),
        ({"cache": 3}, "invalid_reward_args", "true, false or the path of a file"),
        ({"columns": 3}, "invalid_reward_args", "a valid list"),
        ({"polarity": "neutral"}, "invalid_reward_args", "'positive' or 'negative'"),
        ({"scores": {"yes": 1}}, "invalid_reward_args", "at least two verdicts"),
    ],
)
def test_a_malformed_argument_is_refused_by_name(args: dict[str, Any], code: str, told: str) -> None:
    with raises(RewardError, code) as caught:
        get_reward_function("judge").bind("tone", {**ARGS, **args})
    message = str(caught.value)
    assert "'tone'" in message
    assert next(iter(args)) in message
    assert told in message
    assert "sesame" not in message


def test_a_judge_without_arguments_says_what_it_needs() -> None:
    with raises(RewardError, "invalid_reward_args") as caught:
        get_reward_function("judge")("yes")
    assert "`model` and `rubric`" in str(caught.value)
    assert "requires args" in get_reward_function("judge").describe()
    with raises(RewardError, "invalid_reward_args"):
        resolve_reward("judge").check_parameters(["answer"])


def test_a_missing_library_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base.importlib.util, "find_spec", lambda name: None)  # type: ignore[attr-defined]
    with raises(RewardError, "missing_package") as caught:
        load_judge("judge").bind("tone", ARGS)
    assert "openai and tenacity, which is not installed; run `pip install agent_tunix[judge]`" in str(caught.value)


def test_a_column_that_the_dataset_lacks_is_an_error_before_training() -> None:
    judge = get_reward_function("judge").bind("tone", {**ARGS, "columns": ["answer", "rationale"]})
    with raises(RewardSignatureError, "invalid_mixture") as caught:
        judge.check_parameters(["answer"])
    assert "`rationale`" in str(caught.value)
    judge.check_parameters(["answer", "rationale"])


@pytest.mark.parametrize("name", JUDGES)
def test_a_judge_is_a_reward_by_name(name: str) -> None:
    judge = get_reward_function(name)
    assert isinstance(judge, Reward)
    assert judge.name == name
    assert name in list_reward_functions()
    assert type(judge).__doc__


def test_judges_are_components_like_any_other(bench: Bench, tmp_path: Path) -> None:
    clear = bench.args(rubric="Is it clear?", scores={"yes": 1.0, "partly": 0.25, "no": 0})
    rude = bench.args(rubric={"rude": "Is it rude?"}, polarity="negative")
    components = {
        "right": "math",
        "clear": {"function": "judge", "weight": 0.5, "args": clear},
        "rude": {"function": "judge", "weight": -2.0, "args": rude},
    }
    (tmp_path / "careful.yaml").write_text(json.dumps({"components": components}))
    mixture = resolve_reward("careful", reward_directories=[tmp_path])
    mixture.check_parameters(["answer"])
    scores = mixture.score([Sample("yes 4", columns={"answer": "4"}), Sample("partly 4", columns={"answer": "4"})])
    assert [score.value for score in scores] == [1 + 0.5 - 2, 1 + 0.125 - 1]
    assert scores[1].components == {"right": 1.0, "clear": 0.25, "rude": 0.5}
    assert "clear: 0.5 × RubricJudge: practice at http://127.0.0.1" in mixture.describe()
    assert "negative rubric (rude)" in mixture.describe()


def test_requests_leave_no_line_each_in_a_runs_log(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench.ask()
    assert caplog.records == []


@pytest.mark.parametrize("execution", slow_after(2, ["auto", "inline", "process"]))
def test_a_run_leaves_a_judge_its_own_time(execution: str, bench: Bench) -> None:
    bench.server.always = lambda request: Answer(body=chat(grade(request)), delay_s=0.2)
    mixture = resolve_reward("judge", args={"judge": bench.args()})
    with make_runner(mixture, execution, timeout_s=0.05) as runner:
        assert [score.value for score in runner.reward.score([Sample("yes"), Sample("no")])] == [1.0, 0.0]


def test_a_judge_is_not_asked_where_its_gate_is_shut(bench: Bench) -> None:
    components = {"right": "math", "good": {"function": "judge", "args": bench.args(), "requires": {"right": 1.0}}}
    samples = [Sample("yes 4", columns={"answer": "4"}), Sample("yes 5", columns={"answer": "4"})]
    assert resolve_reward(components).score(samples)[0].value == 2.0
    assert len(bench.server.requests) == 1


def test_the_fingerprint_of_a_judge_tells_what_it_is_asked() -> None:
    prints = [
        fingerprint(resolve_reward("judge", args={"judge": {**ARGS, "rubric": rubric}}))
        for rubric in ("A?", "A?", "B?")
    ]
    assert prints[0].short == prints[1].short != prints[2].short
    assert "judges/prompts.py" in str(prints[0].to_data())


def test_arguments_come_from_rewards_args_and_a_failed_verdict_leaves_the_completion_unscored(bench: Bench) -> None:
    mixture = resolve_reward("judge", args={"judge": bench.args()})
    assert mixture.score([Sample("no")])[0].value == 0.0
    bench.server.always = lambda request: Answer(400, {})
    (score,) = mixture.score([Sample("yes")])
    assert (score.value, score.outcome) == (None, Outcome.ERROR)
