import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.rewards.builtin.quality import repeated_share
from tests.rewards.builtin.cases import score


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
