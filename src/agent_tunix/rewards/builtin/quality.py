"""Rewards that combine several qualities of a response."""

import re
from itertools import islice
from typing import Any

from agent_tunix.rewards.answers import tagged_answer
from agent_tunix.rewards.builtin.correctness import grade_answer
from agent_tunix.rewards.builtin.form import DEFAULT_TEMPLATE, grade_format
from agent_tunix.rewards.builtin.length import brevity
from agent_tunix.rewards.sample import Score

_REASONING_WORD = re.compile(r"\b(?:because|therefore|thus|hence|since|so|first|then|next|finally)\b", re.IGNORECASE)
_ANSWER_MARKS = ("\\boxed{", "####")
_NGRAM = 4


def multi_aspect_reward(response: str, answer: Any) -> Score:
    """Combine 0.5 correctness + 0.2 clarity + 0.15 completeness + 0.15 efficiency. Range [0, 1].

    - correctness: as `math`
    - clarity: half for a marked answer (tags, a box, `####`), half for the share of word 4-grams that are not repeats
    - completeness: half for a written calculation (`=`), half for at least five words or symbols
    - efficiency: correctness times brevity, which falls from 1 at 50 words to 0 at 200

    A wrong answer earns at most 0.35, less than any correct one; an empty response earns 0.

    >>> get_reward_function("multi_aspect")("<reasoning>2 + 2 = 4</reasoning><answer>4</answer>", answer="4")
    1.0
    """
    correctness, correctness_detail = grade_answer(response, answer)
    words = response.split()
    has_mark = tagged_answer(response) is not None or any(mark in response for mark in _ANSWER_MARKS)
    clarity = 0.5 * has_mark + 0.5 * (1.0 - repeated_share(words)) if words else 0.0
    completeness = 0.5 * ("=" in response) + 0.5 * (len(words) >= 5)
    efficiency = correctness * brevity(len(words), limit=200, free=50)
    value = 0.5 * correctness + 0.2 * clarity + 0.15 * completeness + 0.15 * efficiency
    return Score(
        value,
        detail=f"correctness {correctness} ({correctness_detail}), clarity {clarity:g}, completeness {completeness:g}, "
        f"efficiency {efficiency:g}",
    )


def shaped_reward(response: str, answer: Any, format: str = DEFAULT_TEMPLATE) -> Score:
    """Score correctness with small bonuses and penalties, clipped. Range [0, 1].

    - as `math`: 1.0, 0.5 or 0.0
    - +0.05: a word of reasoning (because, therefore, so, first, then, …)
    - -0.05: more than a fifth of the word 4-grams are repeats
    - +0.1: the filled template (a `format` score of 1)

    >>> score = get_reward_function("shaped")
    >>> score("so it is 5", answer="4"), score("5", answer="4"), score("4", answer="4")
    (0.05, 0.0, 1.0)
    """
    correctness, correctness_detail = grade_answer(response, answer)
    reasons = _REASONING_WORD.search(response) is not None
    repeats = repeated_share(response.split()) > 0.2
    templated = grade_format(response, format)[0] == 1.0
    value = correctness + 0.05 * reasons - 0.05 * repeats + 0.1 * templated
    return Score(
        min(1.0, max(0.0, value)),
        detail=f"correctness {correctness} ({correctness_detail}), reasoning words: {reasons}, "
        f"repetition: {repeats}, template: {templated}",
    )


def diverse_reward(response: str, answer: Any) -> Score:
    """Reward correct answers without repetition: `math` × (0.7 + 0.3 × share of distinct 4-grams). Range [0, 1].

    - 1.0: correct, and no four words in a row occur twice
    - towards 0.7: correct, with more repetition
    - half of these: within 10 % of the reference
    - 0.0: wrong

    >>> get_reward_function("diverse")("two and two make 4", answer="4")
    1.0
    """
    correctness, correctness_detail = grade_answer(response, answer)
    share = repeated_share(response.split())
    value = correctness * (1.0 - 0.3 * share)
    return Score(value, detail=f"correctness {correctness} ({correctness_detail}), repeated 4-grams {share:.0%}")


def ngram_repetition_reward(response: str, size: int = 3, penalty: float = 1.0) -> Score:
    """Penalise repetition: minus the share of repeated n-grams. Range [-1, 0].

    - 0.0: no `size` words in a row occur twice, or there are fewer words than that
    - otherwise: -`penalty` × the share of n-grams that occurred before

    Case does not count. `penalty` is from 0 to 1.

    >>> score = get_reward_function("ngram_repetition")
    >>> score("two and two make four"), score("so so so so so so"), score("so so so so so so", penalty=0.5)
    (0.0, -0.75, -0.375)
    """
    if not 1 <= size <= 100 or not 0.0 <= penalty <= 1.0:
        raise ValueError(f"size must be from 1 to 100 and penalty from 0 to 1, not size={size} and penalty={penalty}")
    share = repeated_share(response.casefold().split(), size)
    return Score(0.0 - penalty * share, detail=f"{share:.0%} of the {size}-grams are repeats")


def repeated_share(words: list[str], size: int = _NGRAM) -> float:
    """Return the share of word n-grams that occurred before; 0 if there are too few words for an n-gram to repeat."""
    if len(words) <= size:
        return 0.0
    ngrams = zip(*(islice(words, start, None) for start in range(size)), strict=False)
    return 1.0 - len(set(ngrams)) / (len(words) - size + 1)
