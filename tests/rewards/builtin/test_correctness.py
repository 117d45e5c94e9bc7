import logging

import pytest

from agent_tunix.rewards import get_reward_function
from tests.rewards.builtin.cases import score


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
