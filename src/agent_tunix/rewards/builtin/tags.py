"""Rewards for tags around the reasoning and the answer, independent of the run's template."""

import re

from agent_tunix.rewards.sample import Score

_ANY_TAG = re.compile(r"<(/?)([A-Za-z][\w-]{0,40})>")


def think_format_reward(response: str) -> Score:
    """Check that the reasoning is in one `<think>` block and that text follows it. Range [0, 1].

    - 1.0: the response begins with `<think>`, closes it once, and has text inside and after it
    - 0.0: otherwise

    A chat template may already have opened the block, so a response may also begin inside the block.

    >>> score = get_reward_function("think_format")
    >>> score("<think>2 + 2</think>4"), score("2 + 2</think>4"), score("<think></think>4"), score("4")
    (1.0, 1.0, 0.0, 0.0)
    """
    text = response.strip()
    thought, closing, rest = text.removeprefix("<think>").partition("</think>")
    problems = [
        problem
        for problem, applies in (
            ("<think> is not closed", not closing),
            ("a tag is repeated", "<think>" in thought or "<think>" in rest or "</think>" in rest),
            ("the reasoning is empty", not thought.strip()),
            ("nothing follows", not rest.strip()),
        )
        if applies
    ]
    return Score(0.0 if problems else 1.0, detail=", ".join(problems) or "one block, then the answer")


def tag_count_reward(response: str, thinking: str = "think", answering: str = "answer") -> Score:
    """Give a quarter for each of the four tags that occurs exactly once, in its place. Range [0, 1].

    - 0.25 for `<think>`, unless it is repeated or text precedes it
    - 0.25 for `</think>`, unless it is repeated or precedes `<think>`
    - 0.25 for `<answer>`, unless it is repeated or precedes `</think>`
    - 0.25 for `</answer>`, unless it is repeated or text follows it

    Tags around nothing count too. Arguments choose other names: `thinking=reasoning`.

    >>> score = get_reward_function("tag_count")
    >>> score("<think>2 + 2</think><answer>4</answer>"), score("<answer>4</answer>"), score("<think>" * 9)
    (1.0, 0.5, 0.0)
    """
    text = response.strip()
    tags = (f"<{thinking}>", f"</{thinking}>", f"<{answering}>", f"</{answering}>")
    places = [text.find(tag) if text.count(tag) == 1 else None for tag in tags]
    first, second, third, fourth = places
    shares = (
        first == 0,
        second is not None and second > (-1 if first is None else first),
        third is not None and third > (-1 if second is None else second),
        fourth is not None and fourth + len(tags[3]) == len(text),
    )
    return Score(sum(shares) / 4, detail=f"{sum(shares)} of 4 tags once and in place")


def reasoning_tags_reward(response: str, tags: str = "reasoning,answer") -> Score:
    """Check that tags are opened, closed and nested correctly. Range [0, 1].

    - 1.0: each of `tags` is exactly one filled pair at the top level, in the given order, and no tag at all is crossed,
      left open or closed without being open
    - below: the share of `tags` that are one such pair, halved if out of order or if any tag is crossed or left open
    - 0.0: none of them is

    Pairs are matched as in XML: `<reasoning><answer>4</reasoning></answer>` is crossed, and an `<answer>` inside
    `<reasoning>` is not at the top level. Other tags may occur inside them.

    >>> score = get_reward_function("reasoning_tags")
    >>> score("<reasoning>2 + 2</reasoning><answer>4</answer>"), score("<reasoning>2<answer>4</answer></reasoning>")
    (1.0, 0.5)
    >>> score("<reasoning>2<answer>4</reasoning></answer>"), score("4")
    (0.0, 0.0)
    """
    required_tags = [tag.strip() for tag in tags.split(",") if tag.strip()]
    if not 1 <= len(required_tags) <= 100:
        raise ValueError(
            f"tags must name 1 to 100 tags, not {len(required_tags):,}; write, for example, tags=reasoning,answer"
        )
    top, crossed = _top_level_pairs(response)
    names = [name for name, _ in top if name in required_tags]
    right = sum(names.count(tag) == 1 and any(name == tag and filled for name, filled in top) for tag in required_tags)
    ordered = [tag for tag in names if names.count(tag) == 1] == [tag for tag in required_tags if names.count(tag) == 1]
    value = right / len(required_tags) * (0.5 if crossed or not ordered else 1.0)
    trouble = ", a tag is crossed or left open" if crossed else "" if ordered else ", not in order"
    return Score(value, detail=f"{right} of {len(required_tags)} tags are one filled pair{trouble}")


def _top_level_pairs(text: str) -> tuple[list[tuple[str, bool]], bool]:
    """Return each top-level pair as (name, True if filled), and True if any tag has no partner."""
    top: list[tuple[str, bool]] = []
    open_tags: list[tuple[str, int]] = []
    crossed = False
    for tag in _ANY_TAG.finditer(text):
        if not tag[1]:
            open_tags.append((tag[2], tag.end()))
        elif open_tags and open_tags[-1][0] == tag[2]:
            name, start = open_tags.pop()
            if not open_tags:
                top.append((name, bool(_ANY_TAG.sub("", text[start : tag.start()]).strip())))
        else:
            crossed = True
    return top, crossed or bool(open_tags)
