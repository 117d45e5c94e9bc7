"""Base class of all conventions. It calls the user's code on samples and turns every fault into an outcome."""

import abc
import asyncio
import inspect
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from agent_tunix.errors import BadReferenceError, RewardError, RewardSignatureError, UndecidedAnswerError
from agent_tunix.rewards.conventions import capture, running
from agent_tunix.rewards.conventions.target import Call, Target, refuse_unknown
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.loading import shown_name
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Outcome, Sample, Score, take_time
from agent_tunix.rewards.shims import served_imports
from agent_tunix.rewards.unavailable import CallWatch

SURROUNDINGS = ("prompt", "format", "step", "max_steps", "num_tokens")
# Names that other libraries give to the reference answer.
_REFERENCE = re.compile("reference|answer|label|truth|target|gold|solution")
FAULTS = (Exception, SystemExit, GeneratorExit)


@dataclass(frozen=True, slots=True)
class CallSettings:
    """Settings that decide how rewards are called."""

    convention: str = (
        "auto"  # convention to use if a signature has a sign of it, of several or of none; see `detection`
    )
    # Form of completions for batch functions: strings (`text`) or lists of chat messages (`messages`); `auto`: the form
    # that the function can take.
    completions: str = "auto"
    reward_key: str | None = None  # entry of a returned dict that is the reward


class Convention(abc.ABC):
    """A user's function, object or class, called by the rules of its convention.

    Calling it scores one response. Training uses `score`.

    Args:
        definition: The function, object or class.
        recipe: Instructions for building the same reward in another process; None if that is impossible.

    Attributes:
        needs_group: True if one call takes several completions, so that a group must not be split.
        needs_batch: True if one call must take the whole batch.
        is_async: True if calls may run concurrently, through `score_async`.

    Raises:
        RewardSignatureError: `definition` cannot be called in this convention.
        RewardError: `args` names an unknown parameter.
    """

    convention: ClassVar[str]
    provided: ClassVar[tuple[str, ...]]
    reserved: ClassVar[tuple[str, ...]] = ()
    library: ClassVar[str] = ""  # library whose convention it is; "" for none
    reference: ClassVar[str] = ""  # parameter that gets the reference answer; "" if there is none

    needs_group = False
    needs_batch = False
    # True if output printed or logged during a call belongs to the completions of the call.
    owns_output: ClassVar[bool] = True

    def __init__(
        self,
        definition: Any,
        name: str,
        args: Mapping[str, Any] | None = None,
        settings: CallSettings | None = None,
        recipe: RewardRecipe | None = None,
    ) -> None:
        self.definition = definition
        self.name = name
        self.args = dict(args or {})
        self.settings = settings or CallSettings()
        self.recipe = recipe
        self.target = Target(definition, self.args, name)
        self.calls = self._make_calls()
        self.is_async = any(call.is_async for call in self.calls)
        self._file = source_of(definition)[0]
        self._check_args()

    @abc.abstractmethod
    def _make_calls(self) -> Sequence[Call]:
        """Return the functions or methods to call."""

    @abc.abstractmethod
    def _units(self, samples: Sequence[Sample]) -> Iterable[Sequence[int]]:
        """Return the positions of the samples in each unit. The samples of a unit are scored together."""

    @abc.abstractmethod
    def _evaluate(self, samples: Sequence[Sample], first: int) -> list[Score]:
        """Score one unit, whose first sample has position `first` in the batch. Errors of the user's code propagate."""

    async def _evaluate_async(self, samples: Sequence[Sample], first: int, slots: asyncio.Semaphore) -> list[Score]:
        """Score one unit concurrently with others. Each call of the user's code takes a slot."""
        raise NotImplementedError

    @property
    def function(self) -> Callable[..., Any]:
        """The function that the user wrote, or the class itself."""
        function: Callable[..., Any] = self.definition
        return function

    @cached_property
    def is_builtin(self) -> bool:
        """True if the reward comes with this package."""
        return (getattr(self.definition, "__module__", None) or "").startswith("agent_tunix.rewards.builtin.")

    def __call__(self, response: str, **columns: Any) -> float | None:
        """Score one response: `reward("<answer>4</answer>", answer="4")`.

        `columns` are columns of the row, and any of `prompt`, `format`, `step`, `max_steps`, `num_tokens` and
        `metadata`.

        Returns:
            The value, or None if the reward does not apply.

        Raises:
            BadReferenceError: The reference cannot be used.
            RewardError: The function returned something that is not a score. Its own errors propagate.
        """
        sample = sample_of(response, columns)
        with served_imports(), CallWatch(self._file) as watch:
            if self.is_async:
                (score,) = running.run(self._evaluate_alone([sample]))
            else:
                (score,) = self._evaluate([sample], 0)
        return self._value_of(self._checked(score, watch))

    def _value_of(self, score: Score) -> float | None:
        """Return the value of a score; raise BadReferenceError or RewardError if the attempt failed."""
        if score.outcome is Outcome.BAD_REFERENCE:
            raise BadReferenceError(score.detail)
        if score.outcome in (Outcome.ERROR, Outcome.TIMEOUT):
            raise RewardError(f"reward {self.name!r}: {score.detail}", code="invalid_score")
        return score.value

    def explain(self, response: str, **columns: Any) -> Score:
        """Score one response and give the reason in `Score.detail`. It takes the arguments of `__call__`."""
        return self.score([sample_of(response, columns)])[0]

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Score each sample, in order. Every fault of the user's code becomes an outcome with its reason."""
        if self.is_async:
            return running.run(self.score_async(samples, running.DEFAULT_LIMIT))
        with served_imports(), capture.listening():
            units = [(unit, self._score_unit([samples[i] for i in unit], unit[0])) for unit in self._units(samples)]
        return _in_order(units, len(samples))

    async def score_async(self, samples: Sequence[Sample], limit: int) -> list[Score]:
        """Score each sample, in order, with at most `limit` calls at the same time."""
        slots = asyncio.Semaphore(limit)
        units = list(self._units(samples))
        with served_imports(), capture.listening():
            scores = await asyncio.gather(
                *(self._score_unit_async([samples[i] for i in unit], unit[0], slots) for unit in units)
            )
        return _in_order(zip(units, scores, strict=True), len(samples))

    def bind(self, name: str, args: Mapping[str, Any]) -> Self:
        """Return the same reward under another name, with further arguments."""
        merged = {**self.args, **args}
        recipe = replace(self.recipe, name=name, args=merged) if self.recipe else None
        return type(self)(self.definition, name, merged, self.settings, recipe)

    def configured(self, settings: CallSettings, recipe: RewardRecipe | None) -> Self:
        """Return the same reward with other call settings."""
        return type(self)(self.definition, self.name, self.args, settings, recipe)

    def check_parameters(self, columns: Collection[str]) -> None:
        """Raise RewardSignatureError if neither the dataset nor anything else provides a required parameter."""
        self.target.check_constructor()
        available = {*self.provided, *self.reserved, *columns, *self.args}
        for call in self.calls:
            for parameter in call.required:
                if parameter not in available:
                    raise RewardSignatureError(
                        f"reward {self.name!r} requires the parameter `{parameter}`, which is not provided; "
                        f"available: {', '.join(sorted(available))}. {self._advice_for(parameter)} ({self.describe()})"
                    )

    def _advice_for(self, parameter: str) -> str:
        """Return a sentence about how to provide a parameter."""
        if self.reference and _REFERENCE.search(parameter):
            library = f"{self.library} passes the reference answer" if self.library else "The reference answer arrives"
            return f"{library} as `{self.reference}`: rename the parameter, or give the rows a column `{parameter}`."
        return f"Give it a default, or set rewards.args.{self.name}.{parameter}."

    @property
    def origin(self) -> tuple[str, int, str] | None:
        """File, line and qualified name, equal if a function is imported twice. None for closures and non-functions."""
        function = inspect.unwrap(self.definition) if callable(self.definition) else self.definition
        if not inspect.isfunction(function) or function.__closure__ is not None:
            return None
        return (function.__code__.co_filename, function.__code__.co_firstlineno, function.__qualname__)

    def describe(self) -> str:
        """Return `module.function (path/to/file.py:12)`, with the convention if it is not `plain`."""
        definition = inspect.unwrap(self.definition) if callable(self.definition) else self.definition
        module = getattr(definition, "__module__", None) or type(definition).__module__
        qualified = getattr(definition, "__qualname__", type(definition).__qualname__)
        text = f"{shown_name(module)}.{qualified}"
        file, line = source_of(self.definition)
        place = "" if file is None else f"{shorten(file)}:{line}"
        manner = self._manner()
        return f"{text} ({', '.join(filter(None, (place, manner)))})" if place or manner else text

    def _manner(self) -> str:
        """Return the convention as `describe` shows it; "" to leave it out."""
        return self.convention

    def _check_args(self) -> None:
        settable = [*self.target.settable]
        for call in self.calls:
            settable += [name for name in call.names if name not in self.reserved and name not in settable]
        takes_any = any(call.takes_any for call in self.calls)
        for name in self.args:
            if name in self.reserved:
                refuse_unknown(self.name, {name: None}, settable, False, self.describe())
        refuse_unknown(self.name, self.target.call_args, settable, takes_any, self.describe())

    def _score_unit(self, samples: Sequence[Sample], first: int) -> list[Score]:
        started = time.perf_counter()
        with capture.attributed() as lines, CallWatch(self._file) as watch:
            try:
                scores = self._evaluate(samples, first)
            except FAULTS as error:  # a user's fault becomes an outcome here
                scores = [self._failed(error)] * len(samples)
        return self._finish([self._checked(score, watch) for score in scores], started, lines)

    async def _score_unit_async(self, samples: Sequence[Sample], first: int, slots: asyncio.Semaphore) -> list[Score]:
        started = time.perf_counter()
        with capture.attributed() as lines, CallWatch(self._file) as watch:
            try:
                scores = await self._evaluate_async(samples, first, slots)
            except FAULTS as error:  # a user's fault becomes an outcome here
                scores = [self._failed(error)] * len(samples)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise  # this task itself is cancelled, not a call inside the user's code
                scores = [self._failed(error)] * len(samples)
        return self._finish([self._checked(score, watch) for score in scores], started, lines)

    async def _evaluate_alone(self, samples: Sequence[Sample]) -> list[Score]:
        return await self._evaluate_async(samples, 0, asyncio.Semaphore(1))

    def _failed(self, error: BaseException) -> Score:
        """Return the outcome for an error of the user's code."""
        if isinstance(error, BadReferenceError):
            return Score.failed(Outcome.BAD_REFERENCE, str(error))
        if isinstance(error, UndecidedAnswerError):
            return Score.failed(Outcome.TIMEOUT if error.timed_out else Outcome.ERROR, str(error))
        return Score.failed(Outcome.ERROR, describe_fault(error, self._file))

    def _checked(self, score: Score, watch: CallWatch) -> Score:
        """Return the score, or an error if the call or the constructor missed something and caught the error."""
        missed = [*self.target.missed, *watch.missed]
        if not missed or score.outcome not in (Outcome.SCORED, Outcome.NOT_APPLICABLE):
            return score
        return Score.failed(Outcome.ERROR, "; ".join(dict.fromkeys(missed)))

    def _finish(self, scores: list[Score], started: float, lines: list[str]) -> list[Score]:
        """Return the scores with their share of the call's time and its log lines."""
        seconds = (time.perf_counter() - started) / len(scores)
        if lines and self.owns_output:
            logged = capture.as_extras(lines)
            scores = [replace(score, extras={**score.extras, **logged}) for score in scores]
        for score in scores:  # no other code holds them
            take_time(score, seconds)
        return scores


def groups_of(samples: Sequence[Sample]) -> list[list[int]]:
    """Return the positions of each group's samples. Groups are in order of first appearance."""
    groups: dict[tuple[int, int], list[int]] = {}
    for place, sample in enumerate(samples):
        groups.setdefault((sample.step, sample.group_id), []).append(place)
    return list(groups.values())


def _in_order(units: Iterable[tuple[Sequence[int], Sequence[Score]]], count: int) -> list[Score]:
    ordered: dict[int, Score] = {}
    for unit, scores in units:
        ordered.update(zip(unit, scores, strict=True))
    return [ordered[place] for place in range(count)]


def sample_of(response: str, columns: Mapping[str, Any]) -> Sample:
    """Return a sample made of the arguments of a direct call."""
    surroundings = {name: columns[name] for name in SURROUNDINGS if name in columns}
    others = {name: value for name, value in columns.items() if name not in (*SURROUNDINGS, "metadata")}
    messages = ({"role": "user", "content": surroundings.get("prompt", "")}, {"role": "assistant", "content": response})
    return Sample(response, messages=messages, columns={**columns.get("metadata", {}), **others}, **surroundings)


def source_of(definition: Any) -> tuple[str | None, int]:
    """Return file and line of a function, a class or an object's class; (None, 0) if it is not written in Python."""
    definition = inspect.unwrap(definition) if callable(definition) else definition
    definition = getattr(definition, "func", definition)  # functools.partial
    if not hasattr(definition, "__code__") and not inspect.isclass(definition):
        own = getattr(type(definition), "__call__", None)  # noqa: B004
        definition = own if hasattr(own, "__code__") else type(definition)
    code = getattr(definition, "__code__", None)
    if code is not None:
        return (code.co_filename, code.co_firstlineno)
    try:
        return (inspect.getsourcefile(definition), inspect.getsourcelines(definition)[1])
    except (OSError, TypeError):
        return (None, 0)


def shorten(file: str) -> str:
    """Return a path; make it relative if it lies below the working directory."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
