"""Rewards for following the template, `prompt.format`."""

import re
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agent_tunix.errors import RewardError
from agent_tunix.rewards.builtin.correctness import grade_answer
from agent_tunix.rewards.sample import Score

DEFAULT_TEMPLATE = "<reasoning>{reasoning}</reasoning><answer>{answer}</answer>"

_SLOT = re.compile(r"\{\w*\}")
_TAG = re.compile(r"(<[^<>]+>)")


def format_reward(response: str, format: str = DEFAULT_TEMPLATE) -> Score:
    """Score how closely the response follows the template. Range [0, 1].

    - 1.0: every tag once and in order, every slot filled, no text outside
    - 0.8: every slot filled, but text outside the template
    - 0.7: an empty slot, no text outside
    - 0.5: an empty slot and text outside
    - below: 0.5 times the share of tags that occur exactly once and in order relative to each other

    A repeated tag does not count, so scattering tags earns nothing, and tags around nothing stay below 0.8.

    >>> score = get_reward_function("format")
    >>> score("<reasoning>3 + 4 = 7</reasoning><answer>7</answer>"), score("<answer>7</answer>"), score("7")
    (1.0, 0.25, 0.0)
    """
    value, detail = grade_format(response, format)
    return Score(value, detail=detail)


def format_and_content_reward(response: str, answer: Any, format: str = DEFAULT_TEMPLATE) -> Score:
    """Score correctness and format together: `math` times `format`. Range [0, 1].

    - 1.0: correct, in the template
    - 0.8: correct, with text outside the template
    - half of these: within 10 % of the reference
    - 0.0: a format score below 0.8, or a wrong answer

    >>> score = get_reward_function("format_and_content")
    >>> score("<reasoning>2 + 2</reasoning><answer>4</answer>", answer="4"), score("<answer>4</answer>", answer="4")
    (1.0, 0.0)
    """
    content, content_detail = grade_answer(response, answer)
    form, form_detail = grade_format(response, format)
    value = content * form if form >= 0.8 else 0.0
    return Score(value, detail=f"content {content} ({content_detail}), format {form} ({form_detail})")


def match_format_exactly_reward(response: str, format: str = DEFAULT_TEMPLATE) -> Score:
    """Check that the response is exactly the filled template. Range [0, 3].

    - 3.0: a `format` score of 1
    - 0.0: otherwise

    >>> get_reward_function("match_format_exactly")("<reasoning>2 + 2</reasoning><answer>4</answer>")
    3.0
    """
    form, detail = grade_format(response, format)
    return Score(3.0 if form == 1.0 else 0.0, detail=detail)


def match_format_approximately_reward(response: str, format: str = DEFAULT_TEMPLATE) -> Score:
    """Reward each tag of the template that occurs exactly once, in any place. Range [-2, 2] for four tags.

    - 0.5 for each tag that occurs exactly once
    - -0.5 for each tag that is missing or repeated

    >>> get_reward_function("match_format_approximately")("<answer>4</answer>")
    0.0
    """
    tags = _parse(format or DEFAULT_TEMPLATE).tags
    counts = [response.count(tag) for tag in tags]
    value = sum(0.5 if count == 1 else -0.5 for count in counts)
    return Score(value, detail=", ".join(f"{tag} {count}×" for tag, count in zip(tags, counts, strict=True)))


def grade_format(response: str, format: str) -> tuple[float, str]:
    """Return the value of `format`, and the reason for it."""
    template = _parse(format or DEFAULT_TEMPLATE)
    right = _tags_in_order(response, template.tags)
    if right < len(template.tags):
        detail = f"{right} of {len(template.tags)} tags occur exactly once and in order"
        return 0.5 * right / len(template.tags), detail
    gaps = _gaps(response, template.tags)
    filled = all(gap for gap, is_slot in zip(gaps, template.slots, strict=True) if is_slot)
    clean = not any(gap for gap, is_slot in zip(gaps, template.slots, strict=True) if not is_slot)
    detail = "all tags in order" + ("" if filled else ", a slot is empty") + ("" if clean else ", text outside")
    return 1.0 if filled and clean else 0.5 + 0.3 * filled + 0.2 * clean, detail


def has_tags(format: str) -> bool:
    """Return True if a template has tags, or other fixed text, that a response can be compared with."""
    try:
        return bool(format) and bool(_parse(format))
    except RewardError:
        return False


@dataclass(frozen=True, slots=True)
class _Template:
    """The fixed text of a template and the positions of its slots."""

    tags: tuple[str, ...]  # tags, or other fixed texts, in order
    # For each gap (before the first tag, between tags, after the last): True if it is a slot.
    slots: tuple[bool, ...]


@lru_cache(maxsize=32)
def _parse(template: str) -> _Template:
    tags: list[str] = []
    slots = [False]
    for number, fixed in enumerate(_SLOT.split(template)):
        if number > 0:
            slots[-1] = True
        for tag in filter(None, map(str.strip, _TAG.split(fixed))):
            tags.append(tag)
            slots.append(False)
    if not 1 <= len(tags) <= 100 or sum(one in other for one in tags for other in tags) > len(tags):
        raise RewardError(
            "prompt.format must contain 1 to 100 tags around its slots, each exactly once and none within another, "
            f"not {template[:1000]!r}",
            code="invalid_prompt",
        )
    return _Template(tuple(tags), tuple(slots))


def _tags_in_order(response: str, tags: tuple[str, ...]) -> int:
    """Return how many of the tags that occur once are in order: the length of the longest increasing subsequence."""
    positions = [response.find(tag) for tag in tags if response.count(tag) == 1]
    tails: list[int] = []
    for position in positions:
        place = bisect_left(tails, position)
        tails[place : place + 1] = [position]
    return len(tails)


def _gaps(response: str, tags: tuple[str, ...]) -> list[str]:
    """Return the texts before, between and after the tags, which all occur once and in order."""
    gaps = []
    for tag in tags:
        gap, _, response = response.partition(tag)
        gaps.append(gap.strip())
    return [*gaps, response.strip()]
