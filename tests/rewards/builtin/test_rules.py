import itertools
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.rewards import Outcome, Sample, get_reward_function
from agent_tunix.rewards.builtin.quality import repeated_share
from tests.rewards.builtin.cases import FULL, score

TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")


def test_no_arrangement_of_tags_alone_passes_for_the_format() -> None:
    for first, second, repeats in itertools.product(TAGS, TAGS, (1, 2, 3)):
        assert (score("format", ("".join(TAGS) + first + second) * repeats).value or 0.0) < 0.8


@pytest.mark.parametrize(
    ("template", "response", "value"),
    [
        ("<think>{reasoning}</think>{answer}", "<think>2 + 2</think>4", 1.0),
        ("<think>{reasoning}</think>{answer}", "<think>2 + 2</think>", 0.7),
        ("<think>{reasoning}</think>{answer}", "4", 0.0),
        ("{reasoning}\nAnswer: {answer}", "2 + 2\nAnswer: 4", 1.0),
        ("", FULL, 1.0),
    ],
)
def test_format_follows_the_template_of_the_run(template: str, response: str, value: float) -> None:
    (result,) = get_reward_function("format").score([Sample(response, format=template)])
    assert result.value == value


@pytest.mark.parametrize("template", ["{answer}", "<a>{x}<a>", "Answer: {x} Final Answer: {answer}"])
def test_a_template_without_tags_of_its_own_is_an_error(template: str) -> None:
    (result,) = get_reward_function("format").score([Sample("4", format=template)])
    assert result.outcome is Outcome.ERROR
    assert "prompt.format" in result.detail


@given(right=st.integers(1, 5000), wrong=st.integers(1, 5000))
def test_a_correct_long_answer_never_scores_below_a_wrong_short_one(right: int, wrong: int) -> None:
    good = score("cosine_length", "so 4", num_tokens=right).value
    bad = score("cosine_length", "so 5", num_tokens=wrong).value
    assert good is not None
    assert bad is not None
    assert good > bad


def test_cosine_length_does_not_turn_back_beyond_its_end() -> None:
    values = [score("cosine_length", "4", num_tokens=tokens).value for tokens in (1, 512, 1024, 1500, 2048, 9999)]
    assert values == sorted(values, key=lambda value: -(value or 0))
    assert values[-1] == 0.5


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("", 0.0),
        ("the cat and the dog and the bird", 0.0),
        ("one two three four", 0.0),
        ("a a a a a", 0.5),
        ("one two three four one two three four", 0.2),
    ],
)
def test_repetition_means_repeated_ngrams_not_repeated_words(text: str, share: float) -> None:
    assert repeated_share(text.split()) == pytest.approx(share)


def test_the_detail_names_the_answer_and_the_reference() -> None:
    assert score("math", "so 5", "4").detail == "the answer '5' is different from '4' (exact)"
    assert score("math", "so", "4").detail == "no answer was found"


def test_debug_scores_as_math_and_logs_the_completion(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "agent_tunix.rewards"):
        assert score("debug", "so 39", "40", step=3).value == 0.5
    assert "step 3: 0.5 for 'so 39'" in caplog.text
    assert "the answer '39' is different from '40'" in caplog.text


@pytest.mark.parametrize(
    ("answer", "reference"),
    [("1.2", "1/2"), ("1,5", "1.5"), ("12:30", "12.30"), ("C", "C++"), ("C#", "C"), ("C++", "C#")],
)
def test_signs_that_make_another_word_of_it_are_no_punctuation(answer: str, reference: str) -> None:
    exact_match = get_reward_function("exact_match")
    assert exact_match(f"<answer>{answer}</answer>", answer=reference) == 0.0
    assert exact_match(f"<answer>{reference}!</answer>", answer=reference) == 1.0
