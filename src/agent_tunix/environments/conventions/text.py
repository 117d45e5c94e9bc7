"""Convention `text`: `reset` gives an observation, and `step(action)` replies to each turn.

`step` receives the text of the turn, converted if its parameter has a type: a number, an enumeration, a dataclass or a
pydantic model (from JSON, or from the text if it has one required field). It returns one of

- `(observation, reward, terminated, truncated, info)`, as in Gymnasium;
- `(observation, reward, done, info)`, as in Gym and in Tunix's environments;
- an object or dict with `observation`, `reward` and `done`, as Tunix's `EnvStepResult` or the result of an OpenEnv
  client. An object without `observation` is the observation itself, as on OpenEnv's server.

The policy does not see `reward`, `done` and `metadata` of an observation that has the first two. They count if the
result around the observation has none.

`reset` may name `seed`, `options` (the whole row) and columns of the row. It returns the observation, a pair
`(observation, info)`, or an object with `observation`. The class is instantiated for each episode, with its arguments
and the columns that its constructor names. A parameter `task`, `task_example` or `single_example` receives the whole
row, and so does the first parameter of a class that derives from an environment of Tunix. The score is the sum of the
rewards, which are also its values by turn; without any in an episode that the environment ended, there is no score.
`close` is optional, and each method may be async.
"""

import contextlib
import dataclasses
import enum
import inspect
import json
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.environments.conventions.base import (
    EnvironmentAdapter,
    arguments_of_row,
    call_method,
    call_repeatable,
    make_instance,
    parameters_of,
    without_self,
)
from agent_tunix.environments.environment import EnvironmentTraits, EpisodeEnvironment, faults_of
from agent_tunix.environments.outcomes import OUTCOME_FIELDS, Message, Reply, to_text
from agent_tunix.environments.tools import Tool
from agent_tunix.errors import EnvironmentFailedError
from agent_tunix.rewards.conventions.values import own_copy, to_number
from agent_tunix.rewards.sample import Outcome, Score

# Parameters of a constructor that receive the whole row, unless it has a column of that name.
WHOLE_ROW = ("task", "task_example", "single_example")
_STEP_FORMS = (
    "expected (observation, reward, terminated, truncated, info), (observation, reward, done, info), or an object with "
    "`observation`, `reward` and `done`"
)


class TextAdapter(EnvironmentAdapter):
    """A class with `reset` and `step`."""

    convention = "text"

    @property
    def traits(self) -> EnvironmentTraits:
        """Traits that hold for every episode."""
        return EnvironmentTraits(self.convention, replies=True)

    def open(self) -> EpisodeEnvironment:
        """Return the environment of a new episode, whose instance `reset` makes."""
        return self.seeded(lambda: TextEnvironment(self.definition, self.name, self.args, self.traits, self.file))

    @property
    def reset_parameters(self) -> dict[str, bool]:
        """Columns of the row that the constructor and `reset` name."""
        whole = whole_row_parameters(self.definition)
        constructor_parameters, _ = parameters_of(self.definition)
        parameters, _ = (
            parameters_of(without_self(self.definition, "reset")) if hasattr(self.definition, "reset") else ({}, False)
        )
        constructor = {
            name: is_ for name, is_ in constructor_parameters.items() if name not in self.args and name not in whole
        }
        reset = {name: is_ for name, is_ in parameters.items() if name not in ("seed", "options")}
        return {name: constructor.get(name, False) or reset.get(name, False) for name in {**reset, **constructor}}


class TextEnvironment(EpisodeEnvironment):
    """An episode of such a class."""

    def __init__(
        self, definition: Any, name: str, args: Mapping[str, Any], traits: EnvironmentTraits, file: str | None
    ) -> None:
        self.traits = traits
        self._definition = definition
        self._name = name
        self._args = args
        self._file = file
        self._instance: Any = None
        self._rewards: list[float] = []
        self._turns: list[float] = []
        self._is_done = False
        self._fault = ""

    @property
    def tools(self) -> Sequence[Tool]:
        """Empty, because the environment reads the turns themselves."""
        return []

    def reset(self, row: Mapping[str, Any], seed: int) -> str | None:
        """Make the instance and return its first observation."""
        arguments = {**self._args, **self._columns_for_constructor(row)}
        self._instance = make_instance(self._definition, self._name, arguments, self._file)
        with faults_of(f"{self._name}.reset", self._file):
            reset = self._instance.reset
            names, _ = parameters_of(reset)
            available = {"options": own_copy(dict(row)), **row} if "options" in names else row
            result = call_repeatable(reset, **arguments_of_row(reset, available, seed))
            if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping):
                result = result[0]
            return _observed(_field(result, "observation", result))

    def respond(self, text: str) -> Reply:
        """Return what `step` replies to the text of a turn."""
        with faults_of(f"{self._name}.step", self._file):
            try:
                action = self._action_of(text)
            except ValueError as error:
                self._turns.append(0.0)
                return Reply(f"Error: {error}")
            observation, reward, done = _read_step(call_method(self._instance, "step", action), self._name)
            observed = _observed(observation)
        self._is_done = done
        self._turns.append(0.0)
        if reward is not None:
            number = to_number(reward)
            if isinstance(number, str):
                self._fault = self._fault or f"the reward of step: {number}"
            else:
                self._rewards.append(number)
                self._turns[-1] = number
        return Reply(observed, done)

    def score(self, messages: Sequence[Message], stop_reason: str) -> Score | None:
        """Return the sum of the rewards. A step without a reward adds nothing, but one of them must have a reward."""
        if self._fault:
            return Score.failed(Outcome.ERROR, self._fault)
        if self._is_done and not self._rewards:
            return None
        return Score(sum(self._rewards), turns=self._turns)

    def close(self) -> None:
        """Call `close`, if there is an instance and it has one."""
        if callable(getattr(self._instance, "close", None)):
            with faults_of(f"{self._name}.close", self._file):
                call_method(self._instance, "close")

    def _columns_for_constructor(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the constructor's arguments that come from the row."""
        parameters, _ = parameters_of(self._definition)
        open_names = {name: required for name, required in parameters.items() if name not in self._args}
        is_tunix = is_of_tunix(self._definition)
        whole = {
            name: dict(row)
            for name in whole_row_parameters(self._definition) & open_names.keys()
            if is_tunix or name not in row
        }
        required = {name for name, is_required in open_names.items() if is_required} - whole.keys()
        if missing := sorted(required - row.keys()):
            raise EnvironmentFailedError(
                f"the constructor of {self._name} requires {', '.join(missing)}, but the row has "
                f"{', '.join(row) or 'no columns'}; add them to the row, or give them as arguments",
                code="missing_column",
            )
        return {**{name: row[name] for name in open_names if name in row}, **whole}

    def _action_of(self, text: str) -> Any:
        """Return the action that a text means; raise ValueError, for the model, if it means none."""
        kind = self._action_type()
        if kind in (Any, str, object, inspect.Parameter.empty):
            return text
        from pydantic import TypeAdapter, ValidationError
        from pydantic.errors import PydanticSchemaGenerationError

        try:
            adapter = TypeAdapter(kind)
        except PydanticSchemaGenerationError:  # a class that only the environment understands
            return text
        for candidate in _candidates(text, kind):
            try:
                return adapter.validate_python(candidate)
            except ValidationError as error:
                fault = error
        message = str(fault.errors(include_url=False)[0]["msg"])
        raise ValueError(f"the action must be {getattr(kind, '__name__', kind)}: {message}; it was {text[:80]!r}")

    def _action_type(self) -> Any:
        try:
            hints = typing.get_type_hints(self._instance.step)
        except Exception:  # a user's annotation may raise anything; then the action is the text
            return Any
        parameters = list(inspect.signature(self._instance.step).parameters)
        return hints.get(parameters[0], Any) if parameters else Any


def whole_row_parameters(definition: Any) -> set[str]:
    """Return the parameters of a constructor that receive the whole row."""
    parameters, _ = parameters_of(definition)
    return {*WHOLE_ROW, *(list(parameters)[:1] if is_of_tunix(definition) else ())} & parameters.keys()


def is_of_tunix(definition: Any) -> bool:
    """Return True for a class that derives from an environment of Tunix, which gets the row as its first argument."""
    return any(kind.__module__.startswith("tunix.") for kind in getattr(definition, "__mro__", ()))


def _read_step(result: Any, name: str) -> tuple[Any, Any, bool]:
    """Return observation, reward and whether the episode is over."""
    if isinstance(result, tuple) and len(result) == 5:
        return result[0], result[1], bool(result[2]) or bool(result[3])
    if isinstance(result, tuple) and len(result) == 4:
        return result[0], result[1], bool(result[2])
    observation = _field(result, "observation", result)
    reward, done = _field(result, "reward", None), _field(result, "done", None)
    if _has_outcome(observation):  # OpenEnv's observations carry both; not every client copies them
        reward = _field(observation, "reward", None) if reward is None else reward
        done = done or _field(observation, "done", None)
    if done is None:
        raise EnvironmentFailedError(f"{name}.step returned {type(result).__name__}; {_STEP_FORMS}")
    return observation, reward, bool(done)


def _has_outcome(observation: Any) -> bool:
    """Return True if an observation carries a reward and the end of the episode."""
    absent = object()
    return not isinstance(observation, type) and all(
        _field(observation, name, absent) is not absent for name in ("reward", "done")
    )


def _observed(observation: Any) -> str | None:
    """Return an observation as text; None for an empty one."""
    hidden = OUTCOME_FIELDS if _has_outcome(observation) else ()
    text = to_text(observation, hidden)
    is_empty = text == "{}" if hidden else isinstance(observation, Mapping | list | tuple) and not observation
    return None if is_empty else text or None


def _field(value: Any, name: str, default: Any) -> Any:
    if isinstance(value, Mapping):
        return value.get(name, default)
    return getattr(value, name, default)


def _candidates(text: str, kind: Any) -> list[Any]:
    """Return the values that a text may mean for an action of a type, the likeliest first."""
    values: list[Any] = []
    with contextlib.suppress(ValueError, RecursionError):
        values.append(json.loads(text))
    values.append(text.strip())
    if (field := _only_required_field(kind)) is None:
        return [*values, *_members(kind, text)]
    name, hint = field
    # A field for text takes the turn as it is. For another field, `3` is a number and `true` a boolean.
    fields = [text] if _is_text(hint) else [*values, *_members(hint, text)]
    return [*values, *({name: value} for value in fields)]


def _members(hint: Any, text: str) -> list[Any]:
    """Return the members of enumerations that a text names, or whose value it shows."""
    kinds = [
        kind for kind in typing.get_args(hint) or (hint,) if isinstance(kind, type) and issubclass(kind, enum.Enum)
    ]
    return [member for kind in kinds for member in kind if text.strip() in (member.name, str(member.value))]


def _is_text(hint: Any) -> bool:
    """Return True for `str` and for an optional `str`."""
    return {*(typing.get_args(hint) or (hint,))} - {type(None)} == {str}


def _only_required_field(kind: Any) -> tuple[str, Any] | None:
    """Return name and type of the one required field of a dataclass or pydantic model; None if it has not just one."""
    if dataclasses.is_dataclass(kind):
        missing = dataclasses.MISSING
        fields = [f for f in dataclasses.fields(kind) if f.default is missing and f.default_factory is missing]
        hints = typing.get_type_hints(kind)
        return (fields[0].name, hints[fields[0].name]) if len(fields) == 1 else None
    infos = getattr(kind, "model_fields", {})
    names_required = [(info.alias or name, info.annotation) for name, info in infos.items() if info.is_required()]
    return names_required[0] if len(names_required) == 1 else None
