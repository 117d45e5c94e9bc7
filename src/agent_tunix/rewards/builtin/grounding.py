"""Rewards for relying on the given sources."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.errors import BadReferenceError
from agent_tunix.rewards.answers.comparison import excerpt
from agent_tunix.rewards.builtin.correctness import normal_text, reference_text
from agent_tunix.rewards.sample import Score

_CITATION = re.compile(r"\[(?:source:)?\s{0,3}([^\[\]\n]{1,200})\]", re.IGNORECASE)


def overlap_reward(response: str, answer: Any) -> Score:
    """Return the share of the reference's words that the response contains. Range [0, 1].

    - 1.0: every word of the reference, at least as often as in the reference
    - between: the share of the words that the response contains
    - 0.0: none of them

    Words are compared without case, articles and punctuation, in any order. Extra words cost nothing, so combine this
    reward with one for brevity, or use `f1`.

    >>> get_reward_function("overlap")("It opened in 1889.", answer="opened in 1889 for the fair")
    0.6
    """
    reference = normal_text(reference_text(answer)).split()
    if not reference:
        raise BadReferenceError(f"the reference {excerpt(answer)} has no words")
    num_shared = (Counter(normal_text(response).split()) & Counter(reference)).total()
    return Score(num_shared / len(reference), detail=f"{num_shared} of {len(reference)} words of the reference")


def citations_reward(response: str, sources: Any) -> Score:
    """Score the cited sources against the expected ones by F1. Range [0, 1].

    - 1.0: every one of `sources` is cited, and nothing else
    - between: the harmonic mean of the share of correct citations and the share of sources that are cited
    - 0.0: no expected source is cited

    A citation is `[Source: id]`, `[id]` or `[id, id]`. The column `sources` of the dataset lists ids, or mappings with
    an `id`.

    >>> score = get_reward_function("citations")
    >>> round(score("In 1889 [Source: a], by Eiffel [b].", sources=["a", "c"]), 2)
    0.5
    """
    expected = _ids(sources)
    if not expected:
        raise BadReferenceError(f"the column `sources` must name sources, not {excerpt(sources)}")
    cited: set[str] = set()
    for citation in _CITATION.findall(response):
        whole = citation.strip().casefold()
        cited |= {whole} if whole in expected else {part.strip() for part in whole.split(",")} - {""}
    right = len(cited & expected)
    value = 2 * right / (len(cited) + len(expected))
    return Score(value, detail=f"{right} of {len(expected)} sources cited, among {len(cited)} citations")


def _ids(sources: Any) -> set[str]:
    if isinstance(sources, str):
        sources = [sources]
    if not isinstance(sources, Sequence):
        return set()
    entries = (
        source.get("id", source.get("source_id")) if isinstance(source, Mapping) else source for source in sources
    )
    return {str(one).strip().casefold() for one in entries if isinstance(one, str | int)} - {""}
