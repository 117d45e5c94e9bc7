"""Rewards for answers in words: a letter, a phrase, a sentence."""

from collections import Counter
from typing import Any

from agent_tunix.errors import BadReferenceError
from agent_tunix.rewards.answers import extract_choice
from agent_tunix.rewards.answers.comparison import excerpt
from agent_tunix.rewards.builtin.correctness import compare_texts, marked_answer, normal_text, reference_text
from agent_tunix.rewards.sample import Score


def multiple_choice_reward(response: str, answer: Any, letters: str = "ABCDE") -> Score:
    """Check that the response chooses the correct letter. Range [0, 1].

    - 1.0: the letter of the reference
    - 0.0: another letter, none, or several: "A or B"

    The letter is the one in `<answer>` tags, in a box or after `####`. Without these, it is the last letter after "the
    answer is", "option" and the like, or else the last capital of `letters` that stands alone.

    >>> score = get_reward_function("multiple_choice")
    >>> score("The answer is (B).", answer="B"), score("<answer>c) Paris</answer>", answer="C"), score("A", answer="B")
    (1.0, 1.0, 0.0)
    """
    reference = extract_choice(f"<answer>{reference_text(answer)}</answer>", letters)
    if reference is None:
        raise BadReferenceError(f"the reference {excerpt(answer)} must be one of the letters {letters}")
    choice = extract_choice(response, letters)
    return Score(1.0 if choice == reference else 0.0, detail=f"chosen: {choice}, right: {reference}")


def exact_match_reward(response: str, answer: Any) -> Score:
    r"""Check that the answer has the same words as the reference. Range [0, 1].

    - 1.0: the same words in the same order
    - 0.0: otherwise

    Case, articles, punctuation outside numbers and LaTeX's `\text` do not count. The answer is the text in `<answer>`
    tags, in a box or after `####`, or else the whole response.

    >>> score = get_reward_function("exact_match")
    >>> score("<answer>the Eiffel Tower!</answer>", answer="Eiffel tower"), score("Tower", answer="Eiffel tower")
    (1.0, 0.0)
    """
    return compare_texts(response, answer)


def f1_reward(response: str, answer: Any) -> Score:
    """Score the words that answer and reference share: the harmonic mean of precision and recall. Range [0, 1].

    - 1.0: the same words, each equally often
    - between: 2 × shared / (words of the answer + words of the reference)
    - 0.0: no word in common

    Words are compared, and the answer is found, as in `exact_match`.

    >>> round(get_reward_function("f1")("<answer>the tall Eiffel Tower</answer>", answer="Eiffel Tower"), 2)
    0.8
    """
    reference = normal_text(reference_text(answer)).split()
    if not reference:
        raise BadReferenceError(f"the reference {excerpt(answer)} has no words")
    words = normal_text(marked_answer(response)).split()
    num_shared = (Counter(words) & Counter(reference)).total()
    value = 2 * num_shared / (len(words) + len(reference))
    return Score(
        value, detail=f"{num_shared} words shared, of {len(words)} given and {len(reference)} in the reference"
    )
