from typing import Any

import pytest

from agent_tunix.rewards import Outcome, get_reward_function
from agent_tunix.rewards.answers import extract_choice
from tests.rewards.builtin.cases import score


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("<answer>B</answer>", "B"),
        ("<answer>(b) Paris</answer>", "B"),
        ("<answer>B. Paris</answer> not A", "B"),
        (r"\boxed{\text{C}}", "C"),
        ("#### D", "D"),
        ("The answer is (B).", "B"),
        ("Answer: **C**", "C"),
        ("I choose option D because", "D"),
        ("A or B? The correct answer is B", "B"),
        ("It must be (C)", "C"),
        ("so C", "C"),
        ("A cat sat", None),
        ("A cat sat. So A.", "A"),
        ("<answer>Paris</answer>", None),
        ("<answer></answer> B", None),
        ("the answer is Berlin", None),
        ("Z", None),
        ("", None),
    ],
)
def test_the_letter_of_a_response(response: str, letter: str | None) -> None:
    assert extract_choice(response) == letter


def test_multiple_choice_knows_more_letters_when_told() -> None:
    assert score("multiple_choice", "Answer: H", "H", letters="ABCDEFGH").value == 1.0


@pytest.mark.parametrize("answer", ["Paris", "", "F", None, 4])
def test_a_reference_that_is_no_letter_is_bad(answer: Any) -> None:
    assert score("multiple_choice", "B", answer).outcome is Outcome.BAD_REFERENCE


@pytest.mark.parametrize(
    ("name", "response", "answer", "value"),
    [
        ("exact_match", "The Eiffel Tower.", "eiffel tower", 1.0),
        ("exact_match", "<answer>Eiffel Tower</answer> I think", "Eiffel Tower", 1.0),
        ("exact_match", "Tower Eiffel", "Eiffel Tower", 0.0),
        ("exact_match", "", "Eiffel Tower", 0.0),
        ("exact_match", "4", 4, 1.0),
        ("f1", "Eiffel Tower", "Eiffel Tower", 1.0),
        ("f1", "tower tower tower", "Eiffel Tower", 0.4),
        ("f1", "", "Eiffel Tower", 0.0),
        ("answer_correctness", "so #### 0.50", "1/2", 1.0),
        ("answer_correctness", r"\boxed{\text{Evelyn}}", r"\text{Evelyn}", 1.0),
        ("answer_correctness", r"<answer>2\sqrt{2}</answer>", r"\sqrt{8}", 1.0),
        ("answer_correctness", "<answer>4.2</answer>", "4", 0.0),
        ("answer_correctness", "Evelyn and Bob", "Evelyn", 0.0),
        ("overlap", "it opened", "opened in May", 1 / 3),
        ("overlap", "", "opened in May", 0.0),
    ],
)
def test_words(name: str, response: str, answer: Any, value: float) -> None:
    assert score(name, response, answer).value == pytest.approx(value)


@pytest.mark.parametrize("name", ["exact_match", "f1", "answer_correctness", "overlap"])
@pytest.mark.parametrize("answer", ["", " ", "?!", None, ["x"], True])
def test_a_reference_without_words_is_bad(name: str, answer: Any) -> None:
    assert score(name, "x", answer).outcome is Outcome.BAD_REFERENCE


@pytest.mark.parametrize(
    ("response", "sources", "value"),
    [
        ("[Source: a] and [b]", ["a", "b"], 1.0),
        ("[a, b]", [{"id": "a"}, {"id": "b"}], 1.0),
        ("[a][c]", ["a", "b"], 0.5),
        ("none", ["a"], 0.0),
        ("".join(f"[{n}]" for n in range(100)), ["1"], 2 / 101),
    ],
)
def test_citations(response: str, sources: Any, value: float) -> None:
    assert score("citations", response, sources=sources).value == pytest.approx(value)


@pytest.mark.parametrize("sources", [[], None, 4, [None]])
def test_no_source_is_a_bad_reference(sources: Any) -> None:
    assert score("citations", "[a]", sources=sources).outcome is Outcome.BAD_REFERENCE


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        (r"\boxed{\textbf{B}}", "B"),
        (r"\boxed{\mathrm{(B)}}", "B"),
        ("<answer>Option B</answer>", "B"),
        ("<answer>The answer is B</answer>", "B"),
        ("<answer>Paris (B)</answer>", "B"),
        ("<answer>{B}</answer>", "B"),
        ("The answer is $B$", "B"),
        ('The answer is "B".', "B"),
        ("<think>The answer is A</think> B", "B"),
        ("<answer>A, B</answer>", None),
        ("<answer>A or B</answer>", None),
        ("<answer>a cat</answer>", None),
        ("The answer is a cat", None),
    ],
)
def test_one_letter_is_chosen_however_it_is_marked(response: str, letter: str | None) -> None:
    assert extract_choice(response) == letter


@pytest.mark.parametrize(
    ("answer", "reference"),
    [("1.2", "1/2"), ("1,5", "1.5"), ("12:30", "12.30"), ("C", "C++"), ("C#", "C"), ("C++", "C#")],
)
def test_signs_that_make_another_word_of_it_are_no_punctuation(answer: str, reference: str) -> None:
    exact_match = get_reward_function("exact_match")
    assert exact_match(f"<answer>{answer}</answer>", answer=reference) == 0.0
    assert exact_match(f"<answer>{reference}!</answer>", answer=reference) == 1.0
