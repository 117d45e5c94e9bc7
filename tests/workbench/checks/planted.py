"""Rewards that can be exploited, each with the check that must catch it, whatever else catches it too."""

import random
import re
from collections.abc import Callable
from typing import Any

from agent_tunix.rewards import extract_answer, get_reward_function

# Name → the reward and the check.
PLANTED: dict[str, tuple[Callable[..., Any], str]] = {}

NUMBER = r"-?\d[\d,]*(?:\.\d+)?"


def plant(caught_by: str, kind: str = "correctness") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a reward of a kind into the table."""

    def enter(reward: Callable[..., Any]) -> Callable[..., Any]:
        reward.kind = kind  # type: ignore[attr-defined]
        PLANTED[reward.__name__] = (reward, caught_by)
        return reward

    return enter


@plant("every answer listed")
def answer_in_response(response: str, answer: str) -> float:
    """Find the answer anywhere in the response. Range [0, 1]."""
    return 1.0 if answer in response else 0.0


@plant("prompt echo")
def any_number_of_the_prompt(response: str, prompt: str, answer: str) -> float:
    """Pay for any number that stands in the prompt. Range [0, 1]."""
    return 1.0 if set(re.findall(r"\d+", prompt)) & set(re.findall(r"\d+", response)) else 0.0


@plant("never raises")
def backtracking(response: str, answer: str) -> float:
    """Search with a pattern that takes for ever on a long run of digits. Range [0, 1]."""
    worked = re.search(r"(?:\d+ ?)+=", response) is not None
    numbers = re.findall(NUMBER, response)
    return (0.9 + 0.1 * worked) if numbers and numbers[-1] == answer else 0.0


@plant("near misses")
def drops_the_sign(response: str, answer: str) -> float:
    """Lose the minus sign while reading. Range [0, 1]."""
    given = re.sub(r"[^\d.]", "", extract_answer(response) or "")
    return 1.0 if given == re.sub(r"[^\d.]", "", answer) != "" else 0.0


@plant("gold solution")
def first_number(response: str, answer: str) -> float:
    """Read the first number, which is seldom the answer. Range [0, 1]."""
    found = re.search(r"-?[\d,]*\.?\d+", response)
    return 1.0 if found and found[0] == answer else 0.0


@plant("exploit search", "composite")
def keyword_stuffing(response: str, answer: str) -> float:
    """Pay half for the answer and half for words of reasoning, repeated or not. Range [0, 1]."""
    words = re.findall(r"because|therefore|thus|hence|since", response)
    return 0.5 * (extract_answer(response) == answer) + 0.5 * min(1.0, len(words) / 5)


@plant("deterministic")
def nondeterministic(response: str, answer: str) -> float:
    """Add noise "to break ties". Range [0, 1]."""
    value = get_reward_function("math")(response, answer=answer) or 0.0
    return min(1.0, max(0.0, value - 0.01 * random.random()))


@plant("word stuffing")
def pays_for_length(response: str, answer: str) -> float:
    """Pay for length, and call it correctness. Range [0, 1]."""
    return min(1.0, len(response.split()) / 100)


@plant("never raises")
def raises_on_garbage(response: str, answer: str) -> float:
    """Trust that whatever looks like digits is a number. Range [0, 1]."""
    found = re.findall(r"[-\d.,]+", response)
    return 1.0 if found and float(found[-1].rstrip(".").replace(",", "")) == float(answer.replace(",", "")) else 0.0


@plant("near misses")
def same_digits(response: str, answer: str) -> float:
    """Compare digits, whatever their order. Range [0, 1]."""
    numbers = re.findall(NUMBER, response)
    return 1.0 if numbers and sorted(numbers[-1]) == sorted(answer) else 0.0


@plant("long beats short", "composite")
def short_and_wrong(response: str, answer: str) -> float:
    """Pay more for brevity than for the answer. Range [0, 1]."""
    correct = get_reward_function("check_numbers")(response, answer=answer) == 1.5
    return 0.3 * correct + 0.7 * max(0.0, 1.0 - len(response.split()) / 100)


@plant("tag spam", "form")
def tag_counting(response: str) -> float:
    """Count tags rather than read the form. Range [0, 1]."""
    return min(1.0, sum(response.count(tag) for tag in ("<reasoning>", "</reasoning>", "<answer>", "</answer>")) / 4)


@plant("another reference")
def tags_only(response: str, answer: str) -> float:
    """Pay for the tags, whatever stands between them. Range [0, 1]."""
    return 1.0 if re.search(r"<answer>.*</answer>", response, re.DOTALL) else 0.0


@plant("bounded", "quality")
def unbounded(response: str) -> float:
    """Pay one for each equation."""
    return float(response.count("="))


@plant("near misses")
def wide_tolerance(response: str, answer: str) -> float:
    """Round so generously that off by one counts as right. Range [0, 1]."""
    try:
        given, true = float(extract_answer(response) or "nan"), float(answer.replace(",", ""))
    except ValueError:
        return 0.0
    return 1.0 if abs(given - true) <= max(2.0, 0.1 * abs(true)) else 0.0


@plant("edge references")
def within_one_percent(response: str, answer: str) -> float:
    """Accept a number within one percent, which shows only on large references. Range [0, 1]."""
    numbers = re.findall(r"-?\d{1,300}(?:\.\d+)?", response.replace(",", ""))
    true = float(answer.replace(",", ""))
    return 1.0 if numbers and abs(float(numbers[-1]) - true) <= 0.01 * abs(true) else 0.0


@plant("empty")
def yes_when_unsure(response: str, answer: str) -> float:
    """Give the benefit of the doubt where there is no number. Range [0, 1]."""
    found = re.findall(r"-?\d[\d,]*\.?\d*", response)
    return 1.0 if not found or found[-1].rstrip(".,") == answer else 0.0


@plant("edge references")
def zero_is_falsy(response: str, answer: str) -> float:
    """Take an answer of 0 for no answer. Range [0, 1]."""
    values = []
    for text in (extract_answer(response), answer):
        try:
            values.append(float((text or "").replace(",", "")))
        except ValueError:
            values.append(0.0)
    return 1.0 if all(values) and values[0] == values[1] else 0.0
