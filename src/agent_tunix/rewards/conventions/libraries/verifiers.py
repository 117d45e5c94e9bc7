"""Convention `verifiers`: a rubric function of one rollout, or of a group under plural names.

    async def correct(completion, answer, parser, info, state): ...
    def spread(completions, answers, states): ...

| parameter | argument |
| --- | --- |
| `completion` | a list of chat messages; a text if the function can only take that (`rewards.completions`) |
| `prompt` | the chat messages before the completion |
| `answer` | the reference |
| `info` | the row's column of that name, a dict; JSON text is decoded; {} without one |
| `task` | the row's column of that name; "default" without one |
| `state` | a dict with all of these, `input` (the row), `trajectory` (the turns), `is_completed`, `is_truncated` |
| `parser` | the argument `parser`, or else that of the rubric (`rubrics`), or the module's `parser`, or a `Parser` |
| `prompts`, `completions`, `answers`, `infos`, `tasks`, `states` | the same for a group, as lists |
| any other name | an argument from configuration, or the dataset's column |
"""

import inspect
import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from agent_tunix.errors import RewardError
from agent_tunix.rewards.conventions.formed import prompt_of
from agent_tunix.rewards.conventions.libraries.named import NamedConvention, Values
from agent_tunix.rewards.conventions.libraries.parsers import Parser
from agent_tunix.rewards.conventions.libraries.rubrics import parser_of_rubric
from agent_tunix.rewards.conventions.tool_call_shapes import with_call_objects
from agent_tunix.rewards.conventions.values import own_copy, reference_of, to_score
from agent_tunix.rewards.sample import Sample, Score
from agent_tunix.rewards.unavailable import Placeholder

_PLURALS = {
    "prompt": "prompts",
    "completion": "completions",
    "answer": "answers",
    "info": "infos",
    "task": "tasks",
    "state": "states",
}


class VerifiersReward(NamedConvention):
    """A rubric function of verifiers."""

    convention = "verifiers"
    library = "verifiers"
    reference = "answer"
    form_parameters = ("prompt", "completion", "state", "prompts", "completions", "states")
    form_by_keywords = True
    plurals = _PLURALS
    passes_columns = True
    provided = (*_PLURALS, *_PLURALS.values(), "parser")
    reserved = (*_PLURALS, *_PLURALS.values())
    expected = "a rubric function returns one number, in the group form a list of them"

    @property
    def native_form(self) -> str:
        """`messages`, if the function names a parameter that only its library passes."""
        return "messages" if {*self.calls[0].names} & {"parser", "info", "state", "infos", "states"} else ""

    def _values(self, sample: Sample) -> Values:
        columns = sample.columns
        values: Values = {
            "prompt": lambda: self._prompt_of(sample),
            "completion": lambda: self._completion_of(sample),
            "answer": lambda: reference_of(columns, "answer"),
            "info": lambda: _info(columns.get("info")),
            "task": lambda: own_copy(columns.get("task", "default")),
        }
        return {**values, "state": lambda: _state(sample, values)}

    def _named_values(self, samples: Sequence[Sample]) -> Values:
        values = super()._named_values(samples)
        if "parser" not in self.target.call_args:
            values["parser"] = lambda: self._parser
        if self.needs_group:  # a row's own column of a plural name comes first
            own = {name for sample in samples for name in sample.columns}
            values = {name: make for name, make in values.items() if name not in own}
        return values

    def _shaped(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return with_call_objects(messages)

    @cached_property
    def _parser(self) -> Any:
        try:
            return _parser_of(self.definition)
        except RewardError as error:
            return Placeholder(str(error), "invalid_judge")  # a function with `**kwargs` may not use it

    def _read_one(self, returned: Any) -> Score:
        return to_score(returned, self.expected)


def _info(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return {} if value is None else own_copy(value)


def _state(sample: Sample, values: Values) -> dict[str, Any]:
    row = own_copy(dict(sample.columns))
    return {
        **row,
        **{name: make() for name, make in values.items()},
        "input": row,
        **_course_of(sample),
        "is_completed": True,
        "is_truncated": not sample.ended,
    }


def _course_of(sample: Sample) -> dict[str, Any]:
    """Return the turns (a completion has one), and how an episode ended."""
    if sample.episode is None:
        reply = {"role": "assistant", "content": sample.response}
        return {"trajectory": [{"prompt": own_copy(prompt_of(sample, as_messages=True)), "completion": [reply]}]}
    messages = with_call_objects(own_copy([dict(message) for message in sample.messages]))
    first = sample.episode.num_prompt_messages
    turns = [place for place, one in enumerate(messages) if place >= first and one["role"] == "assistant"]
    return {
        "turn": sample.episode.num_turns,
        "trajectory": [{"prompt": messages[:place], "completion": [messages[place]]} for place in turns],
        "stop_condition": sample.episode.stop_reason,
    }


def _parser_of(definition: Any) -> Any:
    if not callable(definition):
        return Parser()
    if (rubric_parser := parser_of_rubric(definition)) is not None:
        return rubric_parser
    parser = getattr(inspect.unwrap(definition), "__globals__", {}).get("parser")
    return parser if callable(getattr(parser, "parse_answer", None)) else Parser()
