from typing import Any

import pytest
import yaml

from agent_tunix.errors import RewardError
from agent_tunix.rewards.configured.arguments import read_arguments
from agent_tunix.rewards.judges.rubric import DEFAULT_SCORES, Rubric


def read(rubric: object, scores: object = None, polarity: str | None = None) -> Rubric:
    return read_arguments(Rubric, "tone", {"rubric": rubric, "scores": scores, "polarity": polarity})


def test_a_text_is_a_rubric_of_one_criterion() -> None:
    rubric = read("Is it polite?")
    assert {name: criterion.question for name, criterion in rubric.rubric.items()} == {"quality": "Is it polite?"}
    assert rubric.score_map("quality") == DEFAULT_SCORES
    assert [rubric.value({"quality": verdict}) for verdict in ("yes", "partly", "no")] == [1.0, 0.5, 0.0]


@pytest.mark.parametrize("question", ["", " \n"])
def test_an_empty_question_is_named(question: str) -> None:
    with pytest.raises(RewardError, match=r"`rubric\.tone\.question`: it must not be empty"):
        read({"tone": {"question": question}})


def test_verdicts_that_yaml_reads_as_truth_values_are_words() -> None:
    scores = yaml.safe_load("{yes: 1.0, partly: 0.5, no: 0.0}")
    assert set(scores) == {True, "partly", False}
    assert read("Is it polite?", scores).score_map("quality") == DEFAULT_SCORES


def test_verdicts_may_be_grades() -> None:
    rubric = read("How polite is it?", {1: 0.0, 2: 0.25, 3: 0.5, 4: 0.75, 5: 1.0})
    assert rubric.value({"quality": "4"}) == 0.75


def test_the_value_is_the_weighted_mean() -> None:
    rubric = read({"grounded": {"question": "Grounded?", "weight": 3}, "polite": "Polite?"})
    assert rubric.value({"grounded": "no", "polite": "yes"}) == 0.25
    assert rubric.raw_scores({"grounded": "no", "polite": "yes"}) == {"grounded": 0.0, "polite": 1.0}


def test_a_rubric_of_negative_criteria_is_negative() -> None:
    rubric = read({"invents": {"question": "Does it invent facts?", "polarity": "negative"}})
    assert rubric.sign == "negative"
    assert rubric.value({"invents": "yes"}) == 1.0
    assert read("Does it invent facts?", polarity="negative").value({"quality": "yes"}) == 1.0


def test_a_fault_lowers_a_positive_rubric() -> None:
    rubric = read({"clear": "Is it clear?", "invents": {"question": "Does it invent?", "polarity": "negative"}})
    assert rubric.sign == "positive"
    assert rubric.value({"clear": "yes", "invents": "no"}) == 1.0
    assert rubric.value({"clear": "yes", "invents": "yes"}) == 0.5
    assert rubric.raw_scores({"clear": "yes", "invents": "yes"}) == {"clear": 1.0, "invents": 1.0}


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"rubric": {}},
        {"rubric": ["Is it polite?"]},
        {"rubric": ""},
        {"rubric": {"id": "Is it polite?"}},
        {"rubric": {"is it polite": "yes?"}},
        {"rubric": {1: "Is it polite?"}},
        {"rubric": {"polite": 3}},
        {"rubric": {"polite": {"scores": {"yes": 1, "no": 0}}}},
        {"rubric": {"polite": {"question": "?", "score": {}}}},
        {"rubric": {"polite": {"question": "?", "polarity": "bad"}}},
        {"rubric": {"polite": {"question": "?", "weight": 0}}},
        {"rubric": {"polite": {"question": "?", "weight": True}}},
        {"rubric": "Polite?", "scores": {"yes": 1.0}},
        {"rubric": "Polite?", "scores": "yes"},
        {"rubric": "Polite?", "scores": {"yes": 2.0, "no": 0.0}},
        {"rubric": "Polite?", "scores": {"yes": "1", "no": 0.0}},
        {"rubric": "Polite?", "scores": {"yes": float("nan"), "no": 0.0}},
        {"rubric": "Polite?", "scores": {"yes": 1.0, "no": 1.0}},
        {"rubric": "Polite?", "scores": {"yes": 1.0, "Yes": 0.5, "no": 0.0}},
    ],
    ids=str,
)
def test_what_is_no_rubric_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises(RewardError, match=r"^reward 'tone' .*`?(rubric|scores)"):
        read_arguments(Rubric, "tone", args)
