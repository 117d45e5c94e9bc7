"""Protocol of a reward, its input `Sample` and its output `Score`.

A *sample* is one completion with everything known about it; a *score* is one reward's result for it. If the policy
acted over several turns, the sample is the whole episode, and its response is the text of the last turn. A score has a
number only if its outcome is `SCORED`. Every other outcome carries a reason, so that no failure looks like a 0.
"""

import enum
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, runtime_checkable

from agent_tunix.rewards.agent_calls import describe_calls
from agent_tunix.visible_text import one_line

# Up to this size, values, their moments in 64 bits and the squares of gradients in 32 bits stay far from overflowing.
LARGEST_VALUE = 1e12


class Outcome(enum.StrEnum):
    """Outcome of an attempt to score a completion."""

    SCORED = "scored"
    NOT_APPLICABLE = "not_applicable"
    BAD_REFERENCE = "bad_reference"
    ERROR = "error"
    TIMEOUT = "timeout"


# Looked up once, because access to an enumeration's member goes through its metaclass.
_SCORED = Outcome.SCORED


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion and its context.

    Attributes:
        response: Text of the completion, or of the last turn of an episode, without the end-of-sequence token.
        prompt: The user's text, without the chat template around it.
        messages: The conversation as chat messages (`{"role", "content"}`), the response last. An episode has all its
            turns, with `tool_calls` and messages of the role `tool`, and may end with one of these.
        columns: All columns of the dataset's row, among them `answer`, the stripped reference.
        format: Template that a response should follow (`prompt.format`).
        step: Training step, from 1; 0 outside training.
        max_steps: Number of steps of the run; 0 outside training.
        group_id: Number of the prompt within its step.
        rollout_id: Unique within a run: `"<step>_<prompt>_<generation>"`.
        num_tokens: Number of tokens that the model wrote, end-of-sequence included.
        ended: True if the model ended by itself; False if a limit cut the completion or the episode.
        tokens: The `num_tokens` ids that the model wrote; empty if they are unknown.
        index: Number within the step, from 0, with the completions of a prompt side by side; None outside training.
        episode: Summary of the episode; None for a completion of one turn.
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
    episode: "EpisodeSummary | None" = None

    @property
    def prompt_messages(self) -> tuple[Mapping[str, Any], ...]:
        """The messages before the model's first turn."""
        return self.messages[: -1 if self.episode is None else self.episode.num_prompt_messages]

    @property
    def completion_messages(self) -> tuple[Mapping[str, Any], ...]:
        """The messages from the model's first turn on, results of tools included."""
        return self.messages[len(self.prompt_messages) :]

    @property
    def shown(self) -> str:
        """The completion as text for a person: the response, or all turns of an episode and how it ended."""
        if self.episode is None:
            return self.response
        lines: list[str] = []
        unread, turn = {call["turn"]: call["form"] for call in self.episode.unread_calls}, -1
        for message in self.completion_messages:
            lines += message_lines(message)
            turn += message["role"] == "assistant"
            if message["role"] == "assistant" and turn in unread:
                lines.append(one_line(f"unread     looks like a tool call in the form {unread[turn]}"))
        if self.episode.agent is not None:
            lines += describe_calls(self.episode.agent)
        return "\n".join([*lines, one_line(f"end        {self.episode.stop_reason} {self.fault}".rstrip())])

    @property
    def fault(self) -> str:
        """Description of the environment's fault, which leaves the sample without a score; "" without a fault."""
        return "" if self.episode is None else self.episode.error

    @property
    def whole_text(self) -> str:
        """The response, or all turns of an episode with the answers to them."""
        return self.response if self.episode is None else self.episode.text

    @property
    def answer(self) -> Any:
        """The stripped reference; "" if the row has none."""
        return self.columns.get("answer", "")


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """Facts about an episode.

    Attributes:
        stop_reason: Reason why it ended: `finished`, `environment_done`, `max_turns`, `max_turn_tokens`,
            `max_episode_tokens` or `error`.
        num_turns: Number of the model's turns.
        num_prompt_messages: Number of messages before the first of them.
        calls: Tool calls in order: `turn`, `name`, `outcome` and `seconds` of each.
        score: Score of the environment; None if it does not score.
        error: Description of the environment's fault; "" without one.
        text: The model's turns as it wrote them and the answers to them, each on a line of its own.
        tokens: Token ids after the prompt, those of the answers included.
        loss_mask: For each of `tokens`, 1 if the model wrote it, otherwise 0.
        state: Public attributes of the environment at the end, if it is a class whose methods are tools.
        unread_calls: Turns without a call that seem to contain one in another form: `turn` and `form` of each.
        agent: Of an agent, its `outcome`, the number of its `main_row`, and the `calls` of the policy, each with the
            fields of `agent_tunix.environments.PolicyCall`; None for others.
    """

    stop_reason: str
    num_turns: int
    num_prompt_messages: int
    calls: tuple[Mapping[str, Any], ...] = ()
    score: "Score | None" = None
    error: str = ""
    text: str = ""
    tokens: tuple[int, ...] = ()
    loss_mask: tuple[int, ...] = ()
    state: Mapping[str, Any] = field(default_factory=dict)
    unread_calls: tuple[Mapping[str, Any], ...] = ()
    agent: Mapping[str, Any] | None = None


def message_lines(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield a chat message as lines for a person, each tool call on a line of its own."""
    content = str(message.get("content") or "")
    if content:
        first, *rest = content.splitlines() or [""]
        yield f"{one_line(str(message['role'])):<9}  {first}".rstrip()
        yield from (f"           {line}".rstrip() for line in rest)
    elif message["role"] == "tool":
        yield "tool       (nothing)"
    for call in message.get("tool_calls", ()):
        # The model writes the name. With a line feed in it, the next line could look like the result of a tool.
        yield one_line(f"call       {call['function']['name']} {call['function']['arguments']}")


@dataclass(frozen=True, slots=True)
class Term:
    """Contribution of one component to the total of one completion.

    Attributes:
        weight: Effective weight of the component at that step.
        value: Value that is weighed: the component's value after transforms; the group's mean if the component does
            not apply; 0 if its gate is shut; None if it failed.
        outcome: Outcome of the component; `NOT_APPLICABLE` if its gate is shut.
        detail: Reason why the component has no value of its own.
    """

    weight: float
    value: float | None
    outcome: Outcome = Outcome.SCORED
    gate_shut: bool = False
    detail: str = ""

    @property
    def contribution(self) -> float:
        """`weight · value`; 0 if there is no value."""
        return 0.0 if self.value is None or self.weight == 0 else self.weight * self.value


@dataclass(frozen=True, slots=True, init=False)
class Score:
    """Result of a reward for one sample.

    Attributes:
        value: The reward, within ±`LARGEST_VALUE`; None unless `outcome` is `SCORED`.
        components: Raw value of each component by name, if the reward has several; None if a component has no score.
        outcome: Outcome of the attempt.
        detail: Reason for the outcome, for a person.
        extras: Data of the reward to show with the completion.
        seconds: Wall time of the call.
        metrics: Numbers that the reward logged, of the whole call if the reward takes a batch.
        parts: Full score of each component (outcome, detail, extras), without those that were not computed.
        terms: Contribution of each component, weight included. The stored terms add up to the total.
        turns: The part of `value` that each turn of an episode earned, for `grpo.credit`; None for a turn without a
            score. What they leave of `value` belongs to the last turn. Empty if the value is not divided.
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
    turns: tuple[float | None, ...]

    # Written by hand, because each completion has several scores and a frozen dataclass's own takes twice as long.
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
        turns: Sequence[float | None] = (),
    ) -> None:
        if (value is None) is (outcome is _SCORED):
            raise ValueError(f"a {outcome} score cannot have the value {value!r}")
        if type(value) is not float and value is not None:
            value = _as_float(value)
        if value is not None and not -LARGEST_VALUE <= value <= LARGEST_VALUE:
            raise ValueError(f"a score must be finite and its absolute value at most {LARGEST_VALUE:g}, not {value!r}")
        _set_value(self, value)
        _set_components(self, {} if components is None else components)
        _set_outcome(self, outcome)
        _set_detail(self, detail)
        _set_extras(self, {} if extras is None else extras)
        _set_seconds(self, seconds)
        _set_parts(self, {} if parts is None else parts)
        _set_terms(self, {} if terms is None else terms)
        _set_metrics(self, {} if metrics is None else metrics)
        _set_turns(self, _read_turns(turns) if turns else ())

    @classmethod
    def failed(cls, outcome: Outcome, detail: str, seconds: float = 0.0) -> "Score":
        """Return a score without a value."""
        return cls(value=None, outcome=outcome, detail=detail, seconds=seconds)

    @classmethod
    def of_turns(cls, turns: Sequence[float | None], detail: str = "") -> "Score":
        """Return the score of an episode whose turns were scored one by one: its value is their sum.

        A turn that is None has no score. If no turn has one, the reward does not apply.
        """
        scored = [turn for turn in turns if turn is not None]
        if not scored:
            return cls.failed(Outcome.NOT_APPLICABLE, detail or "no turn has a score")
        return cls(math.fsum(scored), detail=detail, turns=turns)


def _read_turns(turns: Sequence[float | None]) -> tuple[float | None, ...]:
    values = tuple(None if turn is None else _as_float(turn) for turn in turns)
    if not all(value is None or -LARGEST_VALUE <= value <= LARGEST_VALUE for value in values):
        raise ValueError(f"the score of a turn must be finite and its size at most {LARGEST_VALUE:g}: {values}")
    return values


def _as_float(value: object) -> float:
    """Return the value as a float. NumPy's and `decimal`'s numbers need not compare or multiply like floats."""
    if isinstance(value, str | bytes | bytearray) or not hasattr(type(value), "__float__"):
        raise TypeError(f"the value of a score must be a number or None, not {value!r}")
    try:
        return float(value)  # type: ignore[arg-type]  # it has `__float__`
    except OverflowError:  # an integer too large
        return math.inf
    except ValueError as error:
        raise ValueError(f"the value of a score must be a number or None, not {value!r}") from error


# Setters that bypass `__setattr__`, which a frozen class refuses.
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
    _set_turns,
) = (vars(Score)[field_of.name].__set__ for field_of in fields(Score))


def take_time(score: Score, seconds: float) -> None:
    """Set the wall time of a score that no other code holds yet."""
    _set_seconds(score, seconds)


# Takes samples, returns a score for each.
ScoringFunction = Callable[[Sequence[Sample]], list[Score]]


@runtime_checkable
class Reward(Protocol):
    """Interface of a reward of any convention."""

    @property
    def name(self) -> str:
        """Name in logs."""

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Score each sample, in order. A fault in a user's code is an outcome, not an exception."""

    def check_parameters(self, columns: Collection[str]) -> None:
        """Raise RewardSignatureError if nothing provides a required parameter."""

    def describe(self) -> str:
        """Return a description of the reward and of its place in code, for printing and storing."""
