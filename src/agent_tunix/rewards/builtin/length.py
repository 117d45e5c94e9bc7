"""Rewards for short responses, or for responses of a suitable length."""

import math
import re
from typing import Any

from agent_tunix.rewards.builtin.correctness import grade_answer
from agent_tunix.rewards.sample import Score

_WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")


def conciseness_reward(response: str, answer: Any, limit: int = 100) -> Score:
    """Reward correct answers in few words: `math` × (0.7 + 0.3 × brevity). Range [0, 1].

    - above 0.7, towards 1.0: correct; brevity falls linearly from 1 at no words to 0 at `limit` words
    - 0.7: correct, with `limit` words or more
    - half of these: within 10 % of the reference
    - 0.0: wrong

    >>> score = get_reward_function("conciseness")
    >>> score("It must be 4", answer="4", limit=8), score("It is 5", answer="4")
    (0.85, 0.0)
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1 word, not {limit}")
    correctness, detail = grade_answer(response, answer)
    words = len(response.split())
    value = correctness * (0.7 + 0.3 * brevity(words, limit))
    return Score(value, detail=f"correctness {correctness} ({detail}), {words} of {limit} words")


def brevity(words: int, limit: int, free: int = 0) -> float:
    """Return 1 up to `free` words, then a value that falls linearly to 0 at `limit`."""
    return min(1.0, max(0.0, (limit - words) / (limit - free)))


def response_length_reward(response: str, fewest: int = 20, most: int = 300) -> Score:
    """Score the number of words against a wanted range. Range [0, 1].

    - 1.0: from `fewest` to `most` words
    - between: proportional to the number of words below `fewest`; falling linearly from `most` to twice `most`
    - 0.0: no words, or at least twice `most`

    >>> score = get_reward_function("response_length")
    >>> score("so it is four", fewest=2, most=5), score("four", fewest=2, most=5), score("one " * 10, fewest=2, most=5)
    (1.0, 0.5, 0.0)
    """
    if not 1 <= fewest <= most:
        raise ValueError(f"fewest must be from 1 to most, not fewest={fewest} and most={most}")
    words = len(response.split())
    value = words / fewest if words < fewest else brevity(words, limit=2 * most, free=most)
    return Score(value, detail=f"{words} words, {fewest} to {most} required")


def soft_overlong_reward(response: str, num_tokens: int = 0, max_tokens: int = 1024, buffer_tokens: int = 256) -> Score:
    """Penalise overlong responses by their tokens, as DAPO does. Range [-1, 0].

    - 0.0: up to `max_tokens` - `buffer_tokens`
    - between: falling linearly
    - -1.0: at `max_tokens` and beyond

    If the number of tokens is unknown, as outside training, each word and each other sign counts as one token.

    Source: Yu et al., DAPO, 2025, equation 13.

    >>> score = get_reward_function("soft_overlong")
    >>> [score("a " * n, max_tokens=8, buffer_tokens=4) for n in (4, 6, 8, 9)]
    [0.0, -0.5, -1.0, -1.0]
    """
    if not 1 <= buffer_tokens <= max_tokens:
        raise ValueError(f"buffer_tokens must be from 1 to max_tokens={max_tokens}, not {buffer_tokens}")
    tokens, detail = count_tokens(response, num_tokens)
    excess = tokens - (max_tokens - buffer_tokens)
    return Score(-min(1.0, max(0.0, excess / buffer_tokens)) + 0.0, detail=f"{detail} of {max_tokens}")


def cosine_length_reward(
    response: str,
    answer: Any,
    num_tokens: int = 0,
    max_tokens: int = 1024,
    right_short: float = 1.0,
    right_long: float = 0.5,
    wrong_short: float = -1.0,
    wrong_long: float = -0.5,
) -> Score:
    """Score correctness and length along a cosine: shorter is better if correct, worse if wrong. Range [-1, 1].

    - correct: from `right_short` at no tokens to `right_long` at `max_tokens` and beyond
    - otherwise: from `wrong_short` at no tokens to `wrong_long` at `max_tokens` and beyond

    The four values must not let a wrong answer earn more than a correct one of any length. Beyond `max_tokens` the
    value stays constant instead of following the cosine back. Tokens are counted as in `soft_overlong`.

    Source: Yeo et al., Demystifying Long Chain-of-Thought Reasoning in LLMs, 2025.

    >>> score = get_reward_function("cosine_length")
    >>> [score(text, answer="4", max_tokens=4) for text in ("or maybe 4", "so it must be 4", "so it must be 5")]
    [0.573223, 0.5, -0.5]
    """
    if min(right_short, right_long) < max(wrong_short, wrong_long):
        raise ValueError("right_* must be at least wrong_*, or a right answer would earn less than a wrong one")
    if max_tokens < 1 or max(abs(value) for value in (right_short, right_long, wrong_short, wrong_long)) > 1:
        raise ValueError("max_tokens must be at least 1, and the four values within -1 and 1")
    correctness, answer_detail = grade_answer(response, answer)
    short, long = (right_short, right_long) if correctness == 1.0 else (wrong_short, wrong_long)
    tokens, detail = count_tokens(response, num_tokens)
    progress = min(1.0, tokens / max_tokens)
    value = long + 0.5 * (short - long) * (1.0 + math.cos(math.pi * progress))
    return Score(round(value, 6), detail=f"{answer_detail}; {detail} of {max_tokens}")


def count_tokens(response: str, num_tokens: int) -> tuple[int, str]:
    """Return the number of tokens and its description. If `num_tokens` is 0 (unknown), count words and other signs."""
    if num_tokens > 0:
        return num_tokens, f"{num_tokens} tokens"
    estimate = sum(1 for _ in _WORD_OR_SIGN.finditer(response))
    return estimate, f"{estimate} words and signs (the tokens are unknown)"
