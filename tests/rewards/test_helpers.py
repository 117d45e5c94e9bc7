import doctest
import math
import random
from difflib import SequenceMatcher
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.rewards import helpers

CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Where is the tower?"},
    {"role": "assistant", "content": "<tool_call>search</tool_call>", "tool_calls": None},
    {"role": "tool", "content": "The Eiffel tower stands in Paris."},
    {"role": "assistant", "content": "In <answer> Paris </answer> [Source: d1] [source:d9]"},
]


def test_the_examples_hold() -> None:
    assert doctest.testmod(helpers).failed == 0


def test_the_assistants_texts_are_joined() -> None:
    text = helpers.extract_completion_text(CONVERSATION)
    assert text.splitlines() == [CONVERSATION[2]["content"], CONVERSATION[4]["content"]]
    assert helpers.extract_completion_text("as it is") == "as it is"


@pytest.mark.parametrize(
    "messages", [[], None, 5, [None], [{}], [{"role": "assistant"}], [{"role": "assistant", "content": 3}]]
)
def test_what_is_no_conversation_has_no_text(messages: Any) -> None:
    assert helpers.extract_completion_text(messages) == ""
    assert helpers.count_search_calls(messages) == 0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>4</answer>", "4"),
        ("<ANSWER>\n4\n</Answer>", "4"),
        ("<answer>4</answer><answer>5</answer>", "4"),
        ("no tags ", "no tags"),
        ("<answer>open", "<answer>open"),
        ("", ""),
        (None, ""),
    ],
)
def test_the_answer_stands_between_its_tags(text: Any, answer: str) -> None:
    assert helpers.extract_answer_block(text) == answer


@pytest.mark.parametrize(
    ("value", "clipped"),
    [
        (0.5, 0.5),
        (-1, 0.0),
        (2, 1.0),
        (math.inf, 1.0),
        (-math.inf, 0.0),
        (math.nan, 0.0),
        ("0.5", 0.5),
        ("x", 0.0),
        (None, 0.0),
        (10**400, 0.0),
    ],
)
def test_clip01(value: Any, clipped: float) -> None:
    assert helpers.clip01(value) == clipped


def test_overlap_counts_what_was_found_and_not_what_was_said() -> None:
    assert helpers.overlap_reward(CONVERSATION, "The Eiffel tower stands in Paris.") == 1.0
    assert helpers.overlap_reward("The Eiffel", "The Eiffel tower stands in Paris.") == pytest.approx(10 / 33)
    assert helpers.overlap_reward("zzz", "The Eiffel tower stands in Paris.") == 0.0
    assert helpers.overlap_reward("anything", None) == 0.0
    chunks = [{"content": "stands in"}, "Paris"]
    assert helpers.overlap_reward(CONVERSATION, "ignored", reference_chunks=chunks) == 1.0


WORDS = ["the", "tower", "of", "iron", "stands", "in", "Paris", "built", "for", "a", "fair", "by", "an", "engineer"]
_random = random.Random(0)
TEXTS = {
    "one letter": "a" * 100_000,
    "two letters by chance": "".join(_random.choices("ab", k=100_000)),
    "words": " ".join(_random.choices(WORDS, k=20_000))[:100_000],
    "all characters": "".join(map(chr, range(1, 50_000))),
    "two thousand letters": "".join(_random.choices("ab", k=2_000)),
    "nested repeats": "".join("ab" * n + "c" for n in range(60)),
}


@pytest.mark.parametrize("reference", TEXTS)
@pytest.mark.parametrize("found", TEXTS)
def test_overlap_of_long_texts_is_found_at_all(reference: str, found: str) -> None:
    """Comparing every character of any of these would take minutes."""
    share = helpers.overlap_reward("x" + TEXTS[found] + "y", "y" + TEXTS[reference] + "z")
    assert 0.0 <= share <= 1.0


def test_a_long_text_that_has_half_of_the_reference_earns_half() -> None:
    lines = [" ".join(f"{word}{number}" for word in WORDS) for number in range(2_000)]
    share = helpers.percent_of_text_a_in_text_b("\n".join(lines), " ".join(lines[::2]))
    assert share == pytest.approx(0.5, abs=0.001)
    assert helpers.percent_of_text_a_in_text_b("\n".join(lines), "\n".join(lines[::-1])) == 1.0
    assert helpers.percent_of_text_a_in_text_b("\n".join(lines), "no " * 30_000) == 0.0


@given(st.text("abc ", max_size=60), st.text("abc ", max_size=60))
def test_short_texts_are_compared_by_their_characters(one: str, other: str) -> None:
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    expected = sum(block.size for block in blocks) / len(one) if one else 0.0
    assert helpers.percent_of_text_a_in_text_b(one, other) == expected


def test_overlap_is_nothing_with_too_many_calls() -> None:
    greedy = [*CONVERSATION, {"role": "assistant", "content": "<tool_call>" * 4}]
    assert helpers.overlap_reward(greedy, "The Eiffel tower stands in Paris.") == 0.0


@pytest.mark.parametrize("unit", ["<answer>", "</answer>", "[source:", "[", "]", " ", "<tool_call>", "[source: "])
@pytest.mark.parametrize("end", ["", "]", "[source:" + " " * 500_000])
def test_helpers_take_linear_time(unit: str, end: str) -> None:
    """In quadratic time, texts of this length would take many minutes."""
    text = unit * (1_000_000 // len(unit)) + end
    assert helpers.extract_answer_block(text) == text.strip()
    assert helpers.citation_score(text, [{"metadata": {"source_id": "a"}}])["recall"] == 0.0
    assert helpers.tool_call_efficiency(text) == (0.0 if "tool" in unit else 1.0)
    assert helpers.extract_completion_text([{"role": "assistant", "content": text}]).strip() == text.strip()


def test_citations_have_precision_and_recall() -> None:
    chunks = [{"metadata": {"source_id": source}} for source in ("d1", "d2", "d3", "d4")]
    assert helpers.citation_score(CONVERSATION, chunks) == {"precision": 0.5, "recall": 0.25}
    assert helpers.citation_score("no citation", chunks) == {"precision": 0.0, "recall": 0.0}
    assert helpers.citation_score(CONVERSATION, [{}, {"metadata": None}]) == {"precision": 0.0, "recall": 0.0}


def test_citations_take_the_first_field_that_is_filled_and_a_canonical_form() -> None:
    chunks = [{"metadata": {"url": "", "file": "D1"}}, {"metadata": {"url": "D9", "file": "x"}}]
    score = helpers.citation_score(CONVERSATION, chunks, source_field=["url", "file"], canonicalize=str.lower)
    assert score == {"precision": 1.0, "recall": 1.0}


def test_calls_are_counted_in_either_form() -> None:
    assert helpers.count_search_calls(CONVERSATION) == 1
    assert helpers.count_search_calls("<tool_call><tool_call>") == 2
    assert helpers.count_search_calls([{"role": "assistant", "tool_calls": [{}, {}]}]) == 2
    assert helpers.search_within_budget(2, 2)
    assert not helpers.search_within_budget(3, 2)


@pytest.mark.parametrize(
    ("calls", "options", "expected"),
    [
        (0, {}, 1.0),
        (2, {}, 1.0),
        (4, {}, math.exp(-0.4)),
        (4, {"reference_chunk_count": 2}, 1.0),
        (4, {"correctness_raw": 0.5}, 0.5 * math.exp(-0.4)),
        (4, {"correctness_raw": 0.0}, 0.0),
        (11, {}, 0.0),
        (5, {"ranges": [(1, 3, 1.0), (4, 6, 0.5), (7, None, 0.1)]}, 0.5),
        (9, {"ranges": [(1, 3, 1.0), (4, 6, 0.5), (7, None, 0.1)]}, 0.1),
        (0, {"ranges": [(1, 3, 1.0)]}, 0.0),
    ],
)
def test_efficiency_falls_with_the_calls(calls: int, options: dict[str, Any], expected: float) -> None:
    assert helpers.tool_call_efficiency("<tool_call>" * calls, **options) == pytest.approx(expected)


def test_spaces_alone_share_nothing() -> None:
    assert helpers.percent_of_text_a_in_text_b(" " * 30_000, "x") == 0.0
