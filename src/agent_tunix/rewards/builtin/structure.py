"""Rewards for the layout of the text: steps, lines, sections."""

import re

from agent_tunix.rewards.answers import Extraction, find_answer
from agent_tunix.rewards.answers.extraction import Source
from agent_tunix.rewards.sample import Score

_STEP = re.compile(
    r"""^[ \t]{0,8} (?:\*\*)?
    (?: step[ ](?P<named>\d{1,3})\b | (?P<listed>\d{1,3})[.)][ ] | (?P<bullet>[-*•])[ ] ) (?P<rest>[^\n]*)""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE | re.ASCII,
)
_ORDINAL = re.compile(
    r"^[ \t]{0,8}(?:\*\*)?(?:first|second|third|then|next|finally)(?:ly)?\b[^\n]*", re.IGNORECASE | re.MULTILINE
)


def step_format_reward(response: str, enough: int = 3) -> Score:
    r"""Score whether the response proceeds step by step. Range [0, 1].

    - 1.0: at least `enough` steps, each on its own line and with different words
    - between: the number of steps divided by `enough`
    - 0.0: no step

    A step is a line that begins with `Step 2`, `2.`, `2)` or `-`, or with first, then, next or finally. The numbers of
    steps must rise. A repeated line counts once, and a mark without text after it does not count.

    >>> score = get_reward_function("step_format")
    >>> score("Step 1: 2 + 2 = 4\nStep 2: 4 * 3 = 12\nStep 3: done"), round(score("1. add\n1. add\n1. add"), 2)
    (1.0, 0.33)
    """
    if enough < 1:
        raise ValueError(f"enough must be at least 1 step, not {enough}")
    steps: set[str] = set()
    last = 0
    for step in _STEP.finditer(response):
        number = int(step["named"] or step["listed"] or last + 1)
        text = " ".join(step["rest"].strip(" :.*").split()).casefold()
        if text and number > last and text not in steps:
            steps.add(text)
            last = number if not step["bullet"] else last
    steps |= {
        " ".join(match[0].split()).casefold() for match in _ORDINAL.finditer(response) if len(match[0].split()) > 1
    }
    return Score(min(1.0, len(steps) / enough), detail=f"{len(steps)} steps of the required {enough}")


def multi_line_reward(response: str, enough: int = 3) -> Score:
    r"""Score whether the response uses several lines. Range [0, 1].

    - 1.0: at least `enough` different lines with text
    - between: rising linearly from 0 for one line
    - 0.0: at most one line

    >>> score = get_reward_function("multi_line")
    >>> score("2 + 2\n= 4\nSo 4."), score("2 + 2 = 4\nSo 4."), score("4"), score("4\n\n4")
    (1.0, 0.5, 0.0, 0.0)
    """
    if enough < 2:
        raise ValueError(f"enough must be at least 2 lines, not {enough}")
    lines = len({line.strip() for line in response.splitlines()} - {""})
    return Score(min(1.0, max(0.0, (lines - 1) / (enough - 1))), detail=f"{lines} different lines, of {enough}")


_MARKS = {
    Source.BOXED: re.compile(r"\\(?:boxed|fbox)"),
    Source.HASHES: re.compile("####"),
    Source.STATED: re.compile("answer", re.IGNORECASE),
}
# Last marks to look at, and characters between a mark and its answer: the same mark may stand elsewhere too.
_MARKS_TRIED = 50
_TO_ANSWER = 200


def _place_of(extraction: Extraction, response: str) -> tuple[int, int]:
    """Return the positions at which the mark of an answer begins and the answer ends."""
    if extraction.source is Source.TAGGED:
        end = response.rindex("</answer>")
        return response.rindex("<answer>", 0, end), end
    starts = [mark.start() for mark in _MARKS[extraction.source].finditer(response)][-_MARKS_TRIED:]
    for start in reversed(starts):
        place = response.find(extraction.text, start, start + _TO_ANSWER + len(extraction.text))
        if place >= 0:
            return start, place + len(extraction.text)
    return starts[-1], starts[-1]  # several boxes, which the extraction has joined


def response_structure_reward(response: str) -> Score:
    """Score whether the response shows working, then a marked answer, and ends there. Range [0, 1].

    - 0.4: the answer is marked, by tags, a box, `####` or "the answer is"
    - 0.3: at least five different words or symbols of working precede it
    - 0.3: at most twenty words follow it
    - 0.0: no answer is marked

    >>> score = get_reward_function("response_structure")
    >>> score("Two and two are four, so #### 4"), score("#### 4"), score("4")
    (1.0, 0.7, 0.0)
    """
    extraction = find_answer(response)
    if extraction is None or extraction.source is Source.LAST or not extraction.text:
        return Score(0.0, detail="no answer is marked")
    start, end = _place_of(extraction, response)
    working = len(set(response[:start].split())) >= 5
    trailing = len(response[end:].split())
    value = 0.4 + 0.3 * working + 0.3 * (trailing <= 20)
    return Score(value, detail=f"{extraction.source}, working: {working}, {trailing} words after it")
