"""Small functions for writing rewards of conversations.

A *completion* is a text, or the chat messages of a conversation. Of the messages, only the assistant's count. No
function here raises an error because of a model's output.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from difflib import Match, SequenceMatcher
from itertools import accumulate, compress
from typing import Any

Completion = str | Sequence[Mapping[str, Any]]

_ANSWER_BEGINS = re.compile("<answer>", re.IGNORECASE)
_ANSWER_ENDS = re.compile("</answer>", re.IGNORECASE)
_CITATION = re.compile(r"\[source:([^\[\]]+)\]", re.IGNORECASE)
_TOOL_CALL = "<tool_call>"

# Limits on comparing two texts by characters. A step takes about 50 ns.
_MOST_CHARACTERS = 20_000
_MOST_STEPS = 150_000
_STEPS_A_CHARACTER = 10
_RUN = 3


def extract_completion_text(messages: Completion) -> str:
    """Return the texts of the assistant's messages, one per line.

    >>> extract_completion_text([{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}])
    '4'
    """
    return "\n".join(_assistant_texts(messages))


def extract_answer_block(text: str) -> str:
    """Return the stripped text between the first `<answer>` and `</answer>`, or the whole text if there is none.

    >>> extract_answer_block("It is <answer> 4 </answer>.")
    '4'
    """
    text = text or ""
    begins = _ANSWER_BEGINS.search(text)
    ends = _ANSWER_ENDS.search(text, begins.end()) if begins else None
    return (text[begins.end() : ends.start()] if begins and ends else text).strip()


def clip01(value: Any) -> float:
    """Return a number limited to [0, 1]; 0 for NaN and for other values.

    >>> clip01(1.5), clip01(-1), clip01(float("nan")), clip01(None)
    (1.0, 0.0, 0.0, 0.0)
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return 0.0 if math.isnan(number) else min(max(number, 0.0), 1.0)


def percent_of_text_a_in_text_b(text_a: str, text_b: str) -> float:
    """Return the share of text a's characters that text b has in the same order, 0 to 1.

    Texts that would take more than a few hundredths of a second to compare by characters are compared by words. The
    result is then the share of a's characters in runs of three words that b has too.

    >>> percent_of_text_a_in_text_b("in Paris", "It stands in Paris."), percent_of_text_a_in_text_b("abcd", "a-b")
    (1.0, 0.5)
    """
    if not text_a:
        return 0.0
    if text_a in text_b:
        return 1.0
    if len(text_a) + len(text_b) <= _MOST_CHARACTERS:
        try:
            blocks = _BoundedMatcher(text_a, text_b).get_matching_blocks()
            return sum(block.size for block in blocks) / len(text_a)
        except _TooLaborious:
            pass
    return _share_of_runs(text_a.split(), text_b.split())


class _TooLaborious(Exception):
    pass


class _BoundedMatcher(SequenceMatcher[str]):
    """A matcher that gives up after a number of steps, because matching can take cubic time."""

    def __init__(self, text_a: str, text_b: str) -> None:
        super().__init__(None, text_a, text_b, autojunk=False)
        counts = Counter(text_b)
        steps = (_STEPS_A_CHARACTER + counts[character] for character in text_a)
        self._steps_before = list(accumulate(steps, initial=0))
        self._steps_left = _MOST_STEPS

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        ahi = len(self._steps_before) - 1 if ahi is None else ahi
        self._steps_left -= self._steps_before[ahi] - self._steps_before[alo]
        if self._steps_left < 0:
            raise _TooLaborious
        return super().find_longest_match(alo, ahi, blo, bhi)


def _share_of_runs(words_a: Sequence[str], words_b: Sequence[str]) -> float:
    """Return the share of a's characters, without spaces, in runs of words that b has too."""
    if not words_a:
        return 0.0
    length = min(_RUN, len(words_a))
    runs = set(zip(*(words_b[start:] for start in range(length)), strict=False))
    begins = bytes(map(runs.__contains__, zip(*(words_a[start:] for start in range(length)), strict=False)))
    # A word is in a run if a run begins at it, or at one of the words before it.
    padded = bytes(length - 1) + begins + bytes(length - 1)
    is_found = map(max, *(padded[start:] for start in range(length))) if length > 1 else padded
    return sum(map(len, compress(words_a, is_found))) / sum(map(len, words_a))


def overlap_reward(
    completion: Completion,
    ground_truth: Any = None,
    *,
    reference_chunks: Sequence[Any] = (),
    max_calls: int = 3,
    least: float = 0.25,
    **_: Any,
) -> float:
    """Return the share of the reference that was found. Range [0, 1].

    Args:
        completion: A text or a conversation. Of a conversation, all messages except the assistant's count.
        ground_truth: Reference text.
        reference_chunks: Pieces of the reference, used instead of `ground_truth`: texts, or mappings with `content`.
        max_calls: The reward is 0 if one message makes more tool calls.
        least: A smaller share earns 0.
    """
    chunks = [chunk.get("content", "") if isinstance(chunk, Mapping) else chunk for chunk in reference_chunks]
    reference = " ".join(map(str, chunks)) if chunks else str(ground_truth or "")
    if isinstance(completion, str):
        completion_text = completion
    else:
        if any(text.count(_TOOL_CALL) > max_calls for text in _assistant_texts(completion)):
            return 0.0
        completion_text = " ".join(_texts(completion, lambda role: role != "assistant"))
    share = percent_of_text_a_in_text_b(reference, completion_text)
    return share if share >= least else 0.0


def citation_score(
    completion: Completion,
    reference_chunks: Sequence[Mapping[str, Any]],
    *,
    source_field: str | Sequence[str] = "source_id",
    canonicalize: Callable[[str], str] | None = None,
) -> dict[str, float]:
    """Return how well the `[Source: id]` citations agree with the sources of the reference.

    Args:
        completion: A text or conversation.
        reference_chunks: Mappings whose `metadata` names their source.
        source_field: Field of the metadata that holds the source's id. Of several fields, the first filled one counts.
        canonicalize: Function applied to the ids of both sides before comparison; by default, it strips white space.

    Returns:
        `precision`, the share of cited sources that are in the reference, and `recall`, the share of the reference's
        sources that are cited. Both are 0 if either side names none.
    """
    fields = [source_field] if isinstance(source_field, str) else list(source_field)
    canonical = canonicalize or str.strip
    cited = {canonical(citation.strip()) for citation in _CITATION.findall(extract_completion_text(completion))} - {""}
    expected = {canonical(_source(chunk, fields)) for chunk in reference_chunks} - {""}
    if not cited or not expected:
        return {"precision": 0.0, "recall": 0.0}
    right = len(cited & expected)
    return {"precision": right / len(cited), "recall": right / len(expected)}


def count_search_calls(completion: Completion) -> int:
    """Return the assistant's number of tool calls: `<tool_call>` marks in its messages, plus their `tool_calls`."""
    marks = sum(text.count(_TOOL_CALL) for text in _assistant_texts(completion))
    if isinstance(completion, str):
        return marks
    calls = [message.get("tool_calls") for message in _messages(completion) if message.get("role") == "assistant"]
    return marks + sum(
        len(calls_made) for calls_made in calls if isinstance(calls_made, Sequence) and not isinstance(calls_made, str)
    )


def search_within_budget(calls: int, max_calls: int) -> bool:
    """Return True if this number of calls is allowed."""
    return calls <= max_calls


def tool_call_efficiency(
    completion: Completion,
    *,
    correctness_raw: float = 1.0,
    reference_chunk_count: int = 0,
    max_calls: int = 10,
    decay_rate: float = 0.2,
    ranges: Sequence[tuple[int, int | None, float]] | None = None,
) -> float:
    """Return a reward that falls with the number of tool calls. Range [0, 1], or that of `ranges`.

        correctness_raw · exp(-decay_rate · calls beyond reference_chunk_count + 2)

    Args:
        completion: A text or conversation.
        correctness_raw: Reward of a correct answer with few calls; at 0 or below the reward is 0.
        reference_chunk_count: Number of pieces to find.
        max_calls: With more calls the reward is 0.
        decay_rate: Rate of the exponential.
        ranges: List of `(fewest, most, score)` to use instead of the formula. The first range that contains the number
            of calls gives the score; outside all ranges it is 0. If `most` is None, the range has no end.
    """
    calls = count_search_calls(completion)
    if ranges is not None:
        inside = (score for low, high, score in ranges if calls >= low and (high is None or calls <= high))
        return next(inside, 0.0)
    if not correctness_raw > 0 or not search_within_budget(calls, max_calls):
        return 0.0
    return correctness_raw * math.exp(-decay_rate * max(0, calls - reference_chunk_count - 2))


def _assistant_texts(completion: Completion) -> list[str]:
    return [completion] if isinstance(completion, str) else _texts(completion, lambda role: role == "assistant")


def _texts(completion: Completion, accepts: Callable[[Any], bool]) -> list[str]:
    contents = [message.get("content") for message in _messages(completion) if accepts(message.get("role"))]
    return [content for content in contents if isinstance(content, str) and content.strip()]


def _messages(completion: Completion) -> list[Mapping[str, Any]]:
    if not isinstance(completion, Sequence):
        return []
    return [message for message in completion if isinstance(message, Mapping)]


def _source(chunk: Mapping[str, Any], fields: Sequence[str]) -> str:
    metadata = chunk.get("metadata") if isinstance(chunk, Mapping) else None
    if not isinstance(metadata, Mapping):
        return ""
    return next((str(metadata[field]) for field in fields if metadata.get(field) not in (None, "")), "")
