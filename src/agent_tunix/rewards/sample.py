"""What a reward is given, and what it gives back.

A *sample* is one completion with everything known about it; a *score* is what one reward said of it. A score is a
number only when its outcome is `SCORED`: every other outcome carries a reason instead, so that no failure can pass
for a 0.
"""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

# The moments of values up to here, even the third, stay far from overflowing.
LARGEST_VALUE = 1e60


class Outcome(enum.StrEnum):
    """What became of an attempt to score a completion."""

    SCORED = "scored"
    NOT_APPLICABLE = "not_applicable"
    BAD_REFERENCE = "bad_reference"
    ERROR = "error"
    TIMEOUT = "timeout"


# Looked up once: a member of an enumeration is found through its class's metaclass.
_SCORED = Outcome.SCORED


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion and its surroundings.

    Attributes:
        response: The completion's text, without the end-of-sequence token.
        prompt: The problem put to the model (the user's text, not the chat template around it).
        messages: The conversation as chat messages (`{"role", "content"}`), the response last.
        columns: Every column of the dataset's row, `answer` (the stripped reference) among them.
        format: The template that a response should follow (`prompt.format`).
        step: Training step, from 1; 0 outside training.
        max_steps: Steps the run will take; 0 outside training.
        group_id: Number of the prompt within its step.
        rollout_id: Unique within a run: `"<step>_<prompt>_<generation>"`.
        num_tokens: Length of the completion in tokens, end-of-sequence included.
        ended: Whether the model ended by itself rather than being cut at the length limit.
        tokens: The completion's token ids, `num_tokens` of them; empty where they are not known.
        index: Its number within its step, from 0, the completions of a prompt side by side; None outside training.
    """

    response: str
    prompt: str = ""
    messages: tuple[Mapping[str, Any], ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    format: str = ""
    step: int = 0
    max_steps: int = 0
    group_id: int = 0
    rollout_id: str = ""
    num_tokens: int = 0
    ended: bool = True
    tokens: tuple[int, ...] = ()
    index: int | None = None

    @property
    def answer(self) -> Any:
        """The stripped reference answer; "" where the row has none."""
        return self.columns.get("answer", "")


@dataclass(frozen=True, slots=True)
class Term:
    """What one component of a mixture put into the total of one completion.

    Attributes:
        weight: The component's effective weight at that step.
        value: What was weighed: the value after the component's transforms; the group's mean where it does not apply; 0
            where its gate is shut; None where it failed.
        outcome: What became of the component on this completion; `NOT_APPLICABLE` where its gate is shut.
        gate_shut: Whether its gate was shut.
        detail: Why there is no value of its own.
    """

    weight: float
    value: float | None
    outcome: Outcome = Outcome.SCORED
    gate_shut: bool = False
    detail: str = ""

    @property
    def contribution(self) -> float:
        """`weight · value`; 0 where there is no value."""
        return 0.0 if self.value is None or self.weight == 0 else self.weight * self.value


@dataclass(frozen=True, slots=True, init=False)
class Score:
    """What a reward said of one sample.

    Attributes:
        value: The reward; None unless `outcome` is `SCORED`, and then within ±`LARGEST_VALUE`.
        components: Raw value of each component by name, where the reward has several; None where one has no score.
        outcome: What became of the attempt.
        detail: Why, for a person.
        extras: What the reward wants shown beside the completion.
        seconds: Wall time of the call.
        metrics: Numbers that the reward logged; of the whole call where the reward takes a batch.
        parts: What each component said in full: its outcome, detail and extras beside the value in `components`;
            without those that were not computed.
        terms: What each component put into the total, weight included; what is stored of them gives the total again.
    """

    value: float | None
    components: Mapping[str, float | None]
    outcome: Outcome
    detail: str
    extras: Mapping[str, Any]
    seconds: float
    parts: Mapping[str, "Score"]
    terms: Mapping[str, Term]
    metrics: Mapping[str, float]

    # Several of these are made for every completion: what a frozen dataclass generates takes twice as long.
    def __init__(
        self,
        value: float | None,
        components: Mapping[str, float | None] | None = None,
        outcome: Outcome = _SCORED,
        detail: str = "",
        extras: Mapping[str, Any] | None = None,
        seconds: float = 0.0,
        parts: Mapping[str, "Score"] | None = None,
        terms: Mapping[str, Term] | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        if (value is None) is (outcome is _SCORED):
            raise ValueError(f"a {outcome} score cannot have the value {value!r}")
        if type(value) is not float and value is not None:
            value = _as_float(value)
        if value is not None and not -LARGEST_VALUE <= value <= LARGEST_VALUE:
            raise ValueError(f"a score must be finite and at most {LARGEST_VALUE:g} in size, not {value!r}")
        _set_value(self, value)
        _set_components(self, {} if components is None else components)
        _set_outcome(self, outcome)
        _set_detail(self, detail)
        _set_extras(self, {} if extras is None else extras)
        _set_seconds(self, seconds)
        _set_parts(self, {} if parts is None else parts)
        _set_terms(self, {} if terms is None else terms)
        _set_metrics(self, {} if metrics is None else metrics)

    @classmethod
    def failed(cls, outcome: Outcome, detail: str, seconds: float = 0.0) -> "Score":
        """A score without a value."""
        return cls(value=None, outcome=outcome, detail=detail, seconds=seconds)


def _as_float(value: object) -> float:
    """The value as a float: what is a float's like in NumPy or `decimal` need not compare or multiply like one."""
    if isinstance(value, str | bytes | bytearray) or not hasattr(type(value), "__float__"):
        raise TypeError(f"the value of a score is a number or None, not {value!r}")
    try:
        return float(value)  # type: ignore[arg-type]  # it has `__float__`
    except OverflowError:  # an integer too large
        return math.inf
    except ValueError as error:
        raise ValueError(f"the value of a score is a number or None, not {value!r}") from error


# Past `__setattr__`, which refuses.
(
    _set_value,
    _set_components,
    _set_outcome,
    _set_detail,
    _set_extras,
    _set_seconds,
    _set_parts,
    _set_terms,
    _set_metrics,
) = (vars(Score)[field_of.name].__set__ for field_of in fields(Score))


def take_time(score: Score, seconds: float) -> None:
    """Give a score that nobody else holds yet the wall time of its call."""
    _set_seconds(score, seconds)
