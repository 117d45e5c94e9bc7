import math

import pytest

from agent_tunix.rewards import Sample, get_reward_function, resolve_reward
from agent_tunix.workbench.checks import (
    CheckProblem,
    LabelledCompletion,
    calibrate,
    find_misjudged,
    generate_completions,
    wilson_interval,
)
from agent_tunix.workbench.checks.calibration import Calibration, LabelVerdict
from tests.workbench.checks.support import sums


def exact(response: str, answer: str) -> float:
    """Range [0, 1]."""
    return 1.0 if response.strip() == answer else 0.0


def compare(completions: list[LabelledCompletion]) -> Calibration:
    return calibrate(resolve_reward("math"), resolve_reward(exact), completions)


def completion(response: str, answer: str = "4", label: bool | None = None) -> LabelledCompletion:
    return LabelledCompletion(CheckProblem("", {"answer": answer}), response, label)


@pytest.mark.parametrize(("hits", "of"), [(0, 10), (1, 10), (5, 10), (10, 10), (81, 263)])
def test_the_wilson_interval_solves_its_equation(hits: int, of: int) -> None:
    """At both ends the share lies 1.96 standard errors away, as the interval is defined."""
    low, high = wilson_interval(hits, of)
    p = hits / of
    for end in (low, high):
        if 0 < end < 1:
            assert abs(p - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / of), rel=1e-5)
    assert 0 <= low <= p <= high <= 1
    assert wilson_interval(0, 0) == (0.0, 1.0)  # of nothing nothing is known


def test_verdicts_are_counted_in_a_table() -> None:
    report = compare([completion("4"), completion("x = 4"), completion("5"), completion("Hm"), completion("4", "many")])
    assert report.confusion == {
        (LabelVerdict.RIGHT, LabelVerdict.RIGHT): 1,
        (LabelVerdict.RIGHT, LabelVerdict.WRONG): 1,
        (LabelVerdict.WRONG, LabelVerdict.WRONG): 1,
        (LabelVerdict.UNREAD, LabelVerdict.WRONG): 1,
        (LabelVerdict.UNSCORED, LabelVerdict.WRONG): 1,
    }
    assert [entry.completion.response for entry in report.disagreements] == ["x = 4"]
    assert "x = 4" in report.text()


def test_without_labels_each_is_measured_against_the_other() -> None:
    report = compare([completion("4"), completion("x = 4"), completion("5")])
    assert report.truth == "the other verifier"
    of_math, of_exact = report.misses
    assert (of_math.wrong.hits, of_math.wrong.of) == (0, 1)
    assert (of_exact.wrong.hits, of_exact.wrong.of) == (1, 2)


def test_with_labels_parse_failures_are_told_apart_from_wrong_verdicts() -> None:
    report = compare([completion("four", label=True), completion("5", label=True), completion("4", label=False)])
    assert report.truth == "labels"
    of_math = report.misses[0]
    rates = (of_math.unread, of_math.wrong, of_math.accepted_wrongly)
    assert [(rate.hits, rate.of) for rate in rates] == [(1, 2), (1, 2), (1, 1)]


def test_generated_completions_have_labels_that_math_agrees_with() -> None:
    completions = list(generate_completions(sums(6)))
    report = calibrate(resolve_reward("math"), resolve_reward("check_answer"), completions)
    assert {entry.label for entry in completions} == {True, False}
    of_math = report.misses[0]
    rates = (of_math.wrong, of_math.unread, of_math.unscored, of_math.accepted_wrongly)
    assert [rate.hits for rate in rates] == [0] * 4


def test_work_that_reaches_the_answer_in_its_first_line_is_no_wrong_completion() -> None:
    columns = {"answer": "25", "solution": "100 x 1/4 = 25 are indoors.\n75 - 50 = 25 flower."}
    wrong = [c for c in generate_completions([CheckProblem("", columns)]) if not c.label]
    assert "Hm." in [c.response for c in wrong]
    scores = resolve_reward("check_numbers").score([Sample(c.response, columns=columns) for c in wrong])
    assert {score.value for score in scores} == {0.0}


def test_labels_that_some_lack_are_told_to_be_unused() -> None:
    report = compare([completion("4", label=True), completion("5")])
    assert (report.truth, report.unused_labels) == ("the other verifier", 1)
    assert "only if every completion has one; 1 of 2 have" in report.text()


def test_a_threshold_decides_what_is_accepted() -> None:
    near = [completion("39", "40")]
    first = resolve_reward("math")
    assert calibrate(first, first, near).confusion == {(LabelVerdict.WRONG, LabelVerdict.WRONG): 1}
    assert calibrate(first, first, near, thresholds=(0.5, 0.5)).confusion == {
        (LabelVerdict.RIGHT, LabelVerdict.RIGHT): 1
    }


def test_one_verifier_twice_is_told_apart_by_number() -> None:
    report = calibrate(resolve_reward("math"), resolve_reward("math"), [completion("4")])
    assert report.names == ("math (1)", "math (2)")


def is_judged_right(response: str, answer: str) -> bool:
    return get_reward_function("math")(response, answer=answer) == 1.0


REFERENCES = [
    *("0", "1", "-1", "7", "10", "18", "100", "999", "1000", "5,600"),
    *("1,234,567", "-42", "3.5", "0.05", "-2.25"),
]


@pytest.mark.parametrize("reference", REFERENCES)
def test_math_judges_a_reference_right_in_every_form_and_no_near_miss(reference: str) -> None:
    assert list(find_misjudged([reference], is_judged_right)) == []


def test_a_judge_that_takes_the_last_digits_is_found_out() -> None:
    def naive(response: str, answer: str) -> bool:
        digits = "".join(character if character.isdigit() else " " for character in response).split()
        return bool(digits) and digits[-1] == answer

    misjudged = list(find_misjudged(["5600"], naive))
    assert any(completion.label and completion.origin.startswith("thousands separated") for completion in misjudged)
    assert any(not completion.label and completion.origin.startswith("sign flipped") for completion in misjudged)


def test_a_reference_in_words_is_an_error() -> None:
    with pytest.raises(ValueError, match="plain digits"):
        list(find_misjudged(["n/a"], is_judged_right))
