"""Rubrics that a column holds, one for each row."""

import json
from typing import Any

import numpy as np
import pytest

from agent_tunix.errors import BadReferenceError, RewardError, RewardSignatureError
from agent_tunix.rewards import Outcome, Sample, fingerprint, resolve_reward
from agent_tunix.rewards.judges import load_judge
from agent_tunix.rewards.judges.row_rubrics import describe_criteria, read_row_rubric
from agent_tunix.rewards.judges.rubric import Rubric
from agent_tunix.workbench.checks.cases import Case, run_cases
from tests.raising import raises
from tests.rewards.judges.conftest import Bench

HEALTH_BENCH = [
    {"criterion": "Advises to call for help", "points": 7, "tags": ["level:example"]},
    {"criterion": "Asks for the age", "points": 3, "tags": None},
    {"criterion": "Names a wrong dose", "points": -8, "tags": []},
]
RUBRICS_AS_REWARDS = [
    {"title": "Correct answer", "description": "Essential Criteria: states 42 mg", "weight": 5},
    {"title": "Correct answer", "description": "Optional Criteria: gives a unit", "weight": 1},
    {"title": "Übermut", "description": "Pitfall Criteria: invents a study", "weight": -2},
]


def read(value: Any, **scores: float) -> Rubric:
    return read_row_rubric(Sample("yes", columns={"rubric": value}), "rubric", scores or None)


def row(value: Any, response: str = "yes", **columns: Any) -> Sample:
    return Sample(response, columns={"rubric": value, **columns})


@pytest.mark.parametrize("met", list(np.ndindex(2, 2, 2)))
def test_the_value_of_a_list_is_the_points_earned_of_those_that_can_be_earned(met: tuple[int, ...]) -> None:
    rubric, points = read(HEALTH_BENCH), np.array([7.0, 3.0, -8.0])
    verdicts = {name: "yes" if one else "no" for name, one in zip(rubric.rubric, met, strict=True)}
    expected = max(0.0, float(points @ np.array(met)) / points[points > 0].sum())
    assert rubric.value(verdicts) == pytest.approx(expected)


def test_criteria_of_lists_keep_their_titles_and_texts() -> None:
    rubric = read(RUBRICS_AS_REWARDS)
    assert rubric.points() == {"Correct_answer": 5.0, "Correct_answer_2": 1.0, "bermut": -2.0}
    assert rubric.rubric["bermut"].question == "Pitfall Criteria: invents a study"
    assert list(read(HEALTH_BENCH).rubric) == ["criterion_1", "criterion_2", "criterion_3"]
    assert set(rubric.score_map("bermut")) == {"yes", "no"}
    assert read(["Short?", "Polite?", {"criterion": "Off topic", "points": 0}]).points() == {
        "criterion_1": 1.0,
        "criterion_2": 1.0,
    }


def test_criteria_with_one_title_do_not_replace_another_that_has_its_number() -> None:
    titles = ["abc 3", "abc", "abc"]
    rubric = read([{"title": title, "description": str(number)} for number, title in enumerate(titles)])
    assert [criterion.question for criterion in rubric.rubric.values()] == ["0", "1", "2"]


def test_a_text_and_a_mapping_are_read_as_in_a_configuration() -> None:
    text = "1. It is polite. [Hard rule]\n2. It is short. [Principle]"
    assert read(text).rubric["quality"].question == text
    assert read("[Hard rule] It is polite.").value({"quality": "partly"}) == 0.5
    # Parquet gives each row the keys of all rows.
    mapping = {"clear": "Clear?", "other": None, "rude": {"question": "Rude?", "polarity": "negative", "weight": None}}
    assert read(mapping).value({"clear": "yes", "rude": "no"}) == 1.0
    assert read({"rude": mapping["rude"]}).value({"rude": "yes"}) == 0.0


def test_json_and_chosen_scores_are_read() -> None:
    assert read(json.dumps(RUBRICS_AS_REWARDS)) == read(RUBRICS_AS_REWARDS)
    rubric = read(HEALTH_BENCH, met=1.0, partly=0.25, missed=0.0)
    assert rubric.value({"criterion_1": "partly", "criterion_2": "missed", "criterion_3": "missed"}) == 0.175


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        [],
        {},
        '[{"criterion": "Polite?", "points": 1',
        [None],
        [{"points": 3}],
        [{"criterion": " ", "points": 3}],
        [{"criterion": "Polite?", "points": "3"}],
        [{"criterion": "Polite?", "points": True}],
        [{"criterion": "Polite?", "points": float("nan")}],
        [{"criterion": "Rude?", "points": -3}],
        [{"criterion": "Polite?", "points": 0}],
        {"is it polite?": "yes?"},
        {"polite": {"question": "Polite?", "points": 3}},
    ],
)
def test_a_rubric_that_cannot_be_read_is_a_bad_reference_and_no_request(value: Any, bench: Bench) -> None:
    judge = bench.judge(rubric=None, rubric_column="rubric")
    (score,) = judge.score([row(value)])
    assert score.outcome is Outcome.BAD_REFERENCE
    assert score.value is None
    assert "'rubric'" in score.detail
    assert bench.server.requests == []
    with pytest.raises(BadReferenceError):
        judge("yes", rubric=value)


def test_a_row_without_a_rubric_costs_the_others_nothing(bench: Bench) -> None:
    samples = [row(HEALTH_BENCH), Sample("yes"), row("Polite?", "partly"), row(["Short?", "Polite?"], "no")]
    scores = bench.judge(rubric=None, rubric_column="rubric").score(samples)
    assert [score.value for score in scores] == [pytest.approx(0.2), None, 0.5, 0.0]
    assert [score.outcome is Outcome.BAD_REFERENCE for score in scores] == [False, True, False, False]


def test_a_score_tells_each_verdict_and_the_share_that_is_met(bench: Bench) -> None:
    (score,) = bench.judge(rubric=None, rubric_column="rubric").score([row(RUBRICS_AS_REWARDS)])
    assert score.value == pytest.approx(4 / 6)
    assert score.components == {}
    assert score.metrics == {"met_share": pytest.approx(2 / 3)}
    assert "bermut yes (because of 3 characters)" in score.detail
    assert score.extras["verdicts"]["bermut"] == "yes"
    question = "Pitfall Criteria: invents a study"
    assert score.extras["criteria"]["bermut"] == {"question": question, "points": -2.0, "score": 1.0}
    assert "- bermut: Pitfall Criteria: invents a study Verdicts: yes, no." in bench.server.requests[0].text


def test_equal_rows_are_answered_from_the_cache_and_others_are_not(bench: Bench, tmp_path: Any) -> None:
    judge = bench.judge(rubric=None, rubric_column="rubric", cache=str(tmp_path / "replies.sqlite"))
    judge.score([row(HEALTH_BENCH), row(RUBRICS_AS_REWARDS)])
    judge.score([row(HEALTH_BENCH), row(RUBRICS_AS_REWARDS[:2])])
    assert len(bench.server.requests) == 3
    assert judge.metrics()["cache_hits"] == 1


def test_completions_are_compared_by_the_rubric_of_their_row(bench: Bench) -> None:
    judge = bench.judge("pairwise_judge", rubric=None, rubric_column="rubric")
    texts = [HEALTH_BENCH, "Polite?", None]
    samples = [
        Sample(response, columns={"rubric": text}, group_id=number)
        for number, text in enumerate(texts)
        for response in ("first", "second")
    ]
    scores = judge.score(samples)
    assert [score.outcome is Outcome.BAD_REFERENCE for score in scores] == [False] * 4 + [True] * 2
    systems = {request.body["messages"][0]["content"] for request in bench.server.requests}
    assert len(systems) == 2
    assert any(describe_criteria(read(HEALTH_BENCH)) in system for system in systems)
    assert "- a fault, against it, of weight 8: Names a wrong dose" in describe_criteria(read(HEALTH_BENCH))


@pytest.mark.parametrize("kind", ["judge", "pairwise_judge"])
def test_the_column_must_be_there(kind: str, bench: Bench) -> None:
    judge = bench.judge(kind, rubric=None, rubric_column="rubric")
    judge.check_parameters(["rubric"])
    with raises(RewardSignatureError, "invalid_mixture"):
        judge.check_parameters(["answer"])


def test_the_fingerprint_names_the_column(bench: Bench) -> None:
    args = bench.args(rubric=None)
    prints = [resolve_reward("judge", args={"judge": {**args, "rubric_column": name}}) for name in ("rubric", "other")]
    assert len({fingerprint(mixture).short for mixture in prints}) == 2
    assert "rubric of each row (rubric)" in prints[0].describe()


def test_cases_of_a_table_have_rubrics_of_their_own(bench: Bench) -> None:
    reward = {"tone": {"function": "judge", "args": bench.args(rubric=None, rubric_column="rubric")}}
    cases = [
        Case("met", "yes", 0.2, {"rubric": HEALTH_BENCH}),
        Case("missed", "no", 0.0, {"rubric": json.dumps(RUBRICS_AS_REWARDS)}),
        Case("none", "yes", Outcome.BAD_REFERENCE, {"rubric": None}),
    ]
    assert run_cases(cases, reward).failures == ()


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("judge", {}),
        ("judge", {"rubric": "Polite?", "rubric_column": "rubric"}),
        ("judge", {"rubric_column": "rubric", "polarity": "negative"}),
        ("judge", {"rubric_column": ""}),
        ("pairwise_judge", {}),
        ("pairwise_judge", {"rubric": "Polite?", "rubric_column": "rubric"}),
        ("geval_judge", {"rubric_column": "rubric"}),
    ],
)
def test_one_of_rubric_and_column_is_required(kind: str, args: dict[str, Any]) -> None:
    with raises(RewardError, "invalid_reward_args"):
        load_judge(kind).bind("tone", {"model": "practice", "base_url": "http://127.0.0.1:9/v1", **args})
