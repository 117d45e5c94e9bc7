"""Conversion of scores to values of built-in types and back, to send them to other processes.

The rules are those between a run and its workers: numbers arrive unchanged. In what a reward asks to be shown, values
that have no built-in type become text.
"""

from collections.abc import Sequence
from typing import Any

from agent_tunix.rewards import Outcome, Score
from agent_tunix.rewards.execution.wire import from_plain, to_plain
from agent_tunix.rewards.sample import Term

Plain = tuple[Any, ...]


def pack_scores(scores: Sequence[Score]) -> list[Plain]:
    """Return scores, with their parts and terms, as values of built-in types."""
    return [_pack(score) for score in scores]


def unpack_scores(packed: Sequence[Plain]) -> list[Score]:
    """Return the scores that `pack_scores` packed."""
    return [_unpack(plain) for plain in packed]


def _pack(score: Score) -> Plain:
    terms = {
        name: (term.weight, term.value, str(term.outcome), term.gate_shut, term.detail)
        for name, term in score.terms.items()
    }
    return to_plain(score), {name: _pack(part) for name, part in score.parts.items()}, terms


def _unpack(plain: Plain) -> Score:
    of_itself, parts, terms = plain
    said = from_plain(of_itself)
    return Score(
        said.value,
        said.components,
        said.outcome,
        said.detail,
        said.extras,
        said.seconds,
        {name: _unpack(part) for name, part in parts.items()},
        {
            name: Term(weight, value, Outcome(outcome), gate_shut, detail)
            for name, (weight, value, outcome, gate_shut, detail) in terms.items()
        },
        said.metrics,
    )
