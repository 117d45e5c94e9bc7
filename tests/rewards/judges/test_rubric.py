import pytest
import yaml

from agent_tunix.errors import RewardError
from agent_tunix.rewards.judges.rubric import DEFAULT_SCORES, read_rubric
from tests.raising import raises


def test_a_text_is_a_rubric_of_one_criterion() -> None:
    rubric = read_rubric("tone", "Is it polite?")
    (criterion,) = rubric.criteria
    assert (criterion.name, criterion.question, criterion.scores) == ("quality", "Is it polite?", DEFAULT_SCORES)
    assert [rubric.value({"quality": verdict}) for verdict in ("yes", "partly", "no")] == [1.0, 0.5, 0.0]


def test_verdicts_that_yaml_reads_as_truth_values_are_words() -> None:
    scores = yaml.safe_load("{yes: 1.0, partly: 0.5, no: 0.0}")
    assert set(scores) == {True, "partly", False}
    assert read_rubric("tone", "Is it polite?", scores).criteria[0].scores == DEFAULT_SCORES


def test_verdicts_may_be_grades() -> None:
    rubric = read_rubric("tone", "How polite is it?", {1: 0.0, 2: 0.25, 3: 0.5, 4: 0.75, 5: 1.0})
    assert rubric.value({"quality": "4"}) == 0.75


def test_the_value_is_the_weighted_mean() -> None:
    written = {"grounded": {"question": "Grounded?", "weight": 3}, "polite": "Polite?"}
    rubric = read_rubric("tone", written)
    assert rubric.value({"grounded": "no", "polite": "yes"}) == 0.25
    assert rubric.scores({"grounded": "no", "polite": "yes"}) == {"grounded": 0.0, "polite": 1.0}


def test_a_rubric_of_negative_criteria_is_negative() -> None:
    written = {"invents": {"question": "Does it invent facts?", "polarity": "negative"}}
    assert read_rubric("faults", written).polarity == "negative"
    assert read_rubric("faults", written).value({"invents": "yes"}) == 1.0
    assert read_rubric("faults", "Does it invent facts?", polarity="negative").value({"quality": "yes"}) == 1.0


def test_a_fault_lowers_a_positive_rubric() -> None:
    written = {"clear": "Is it clear?", "invents": {"question": "Does it invent?", "polarity": "negative"}}
    rubric = read_rubric("tone", written)
    assert rubric.polarity == "positive"
    assert rubric.value({"clear": "yes", "invents": "no"}) == 1.0
    assert rubric.value({"clear": "yes", "invents": "yes"}) == 0.5
    assert rubric.scores({"clear": "yes", "invents": "yes"}) == {"clear": 1.0, "invents": 1.0}


@pytest.mark.parametrize(
    ("rubric", "scores", "code"),
    [
        (None, None, "invalid_rubric"),
        ({}, None, "invalid_rubric"),
        (["Is it polite?"], None, "invalid_rubric"),
        ("", None, "missing_question"),
        ({"id": "Is it polite?"}, None, "invalid_name"),
        ({"is it polite": "yes?"}, None, "invalid_name"),
        ({1: "Is it polite?"}, None, "invalid_name"),
        ({"polite": 3}, None, "missing_question"),
        ({"polite": {"scores": {"yes": 1, "no": 0}}}, None, "missing_question"),
        ({"polite": {"question": "?", "score": {}}}, None, "unknown_key"),
        ({"polite": {"question": "?", "polarity": "bad"}}, None, "invalid_polarity"),
        ({"polite": {"question": "?", "weight": 0}}, None, "invalid_weight"),
        ({"polite": {"question": "?", "weight": -1}}, None, "invalid_weight"),
        ({"polite": {"question": "?", "weight": True}}, None, "invalid_weight"),
        ("Polite?", {"yes": 1.0}, "too_few_verdicts"),
        ("Polite?", "yes", "too_few_verdicts"),
        ("Polite?", {"yes": 2.0, "no": 0.0}, "invalid_score"),
        ("Polite?", {"yes": 1.0, "no": -1.0}, "invalid_score"),
        ("Polite?", {"yes": "1", "no": 0.0}, "invalid_score"),
        ("Polite?", {"yes": float("nan"), "no": 0.0}, "invalid_score"),
        ("Polite?", {"yes": 1.0, "no": 1.0}, "equal_scores"),
        ("Polite?", {"yes": 1.0, "Yes": 0.5, "no": 0.0}, "duplicate_verdict"),
    ],
)
def test_what_is_no_rubric_is_refused(rubric: object, scores: object, code: str) -> None:
    with raises(RewardError, code) as caught:
        read_rubric("tone", rubric, scores)
    assert str(caught.value).startswith("judge 'tone': ")
