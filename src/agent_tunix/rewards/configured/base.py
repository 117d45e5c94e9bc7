"""Base class of the rewards that a model gives: judges and reward models."""

import abc
import inspect
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from agent_tunix.errors import BadReferenceError, RewardError
from agent_tunix.rewards.conventions import CallSettings
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Outcome, Sample, Score

if TYPE_CHECKING:
    from agent_tunix.rewards.configured.arguments import RewardArguments

A = TypeVar("A", bound="RewardArguments")


class ConfiguredReward(abc.ABC, Generic[A]):
    """A reward that is made from the arguments of a component.

    Args:
        args: Arguments from the configuration; None for a reward that gets them later, from `bind`.

    Attributes:
        limits_itself: Always True: whatever `rewards.execution` says, the reward stays in the trainer's process, or in
            a process of its own. Its limits and its model cannot be divided among workers.
        arguments: The checked arguments; None without arguments.
        settings: Call settings of rewards, which it ignores.
        recipe: Instructions by which another process builds the same reward; None if it cannot.

    Raises:
        RewardError: An argument is missing, unknown or malformed, or an extra is not installed.
    """

    is_builtin = True
    limits_itself = True
    needs_group = False
    kind = "quality"
    # Signature in `agent-tunix rewards show`: that of a call, not of the constructor.
    __signature__ = inspect.Signature(
        [
            inspect.Parameter("response", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=str),
            inspect.Parameter("columns", inspect.Parameter.VAR_KEYWORD, annotation=Any),
        ],
        return_annotation=float,
    )
    # Objects whose documentation `show` prints after the class's own.
    documented_with: ClassVar[tuple[Any, ...]] = ()
    needed: ClassVar[str]  # names of the arguments without default, for errors

    def __init__(self, name: str, args: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.args = dict(args or {})
        self.settings = CallSettings()
        self.recipe: RewardRecipe | None = None
        self.arguments: A | None = None if args is None else self._read(self.args)

    @abc.abstractmethod
    def _read(self, args: Mapping[str, Any]) -> A:
        """Return the checked arguments; raise RewardError for invalid ones."""

    @abc.abstractmethod
    def begin(self, samples: Sequence[Sample]) -> "Future[list[Score]]":
        """Start to score in the background, while other rewards are computed."""

    @abc.abstractmethod
    def check_parameters(self, columns: Collection[str]) -> None:
        """Raise RewardError if the reward lacks arguments, a column or anything else that it requires."""

    @property
    def definition(self) -> type[Self]:
        """The class of the reward, which holds its code."""
        return type(self)

    function = definition

    def __call__(self, response: str, **columns: Any) -> float | None:
        """Score one response: `reward("It is 4.", prompt="What is 2 + 2?")`.

        `columns` are the prompt and columns of the row.

        Returns:
            The value, or None if the reward does not apply.

        Raises:
            BadReferenceError: A column that the reward requires is empty.
            RewardError: There is no score.
        """
        score = self.explain(response, **columns)
        if score.outcome is Outcome.BAD_REFERENCE:
            raise BadReferenceError(score.detail)
        if score.outcome in (Outcome.ERROR, Outcome.TIMEOUT):
            raise RewardError(f"reward {self.name!r}: {score.detail}")
        return score.value

    def explain(self, response: str, **columns: Any) -> Score:
        """Score one response and give the reason in `Score.detail`. The arguments are those of a call."""
        context = {name: columns.pop(name) for name in ("prompt", "step") if name in columns}
        return self.score([Sample(response, columns=columns, **context)])[0]

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Score each sample, in order."""
        future = self.begin(samples)
        try:
            return future.result()
        except BaseException:  # an interrupt: the scores are no longer wanted
            future.cancel()
            raise

    def bind(self, name: str, args: Mapping[str, Any]) -> Self:
        """Return the same reward under another name, with further arguments."""
        bound = type(self)(name, {**self.args, **args} or None)
        bound.settings = self.settings
        bound.recipe = replace(self.recipe, name=name, args=bound.args) if self.recipe else None
        return bound

    def configured(self, settings: CallSettings, recipe: RewardRecipe | None) -> Self:
        """Return the same reward with call settings and a recipe."""
        same = type(self)(self.name, None if self.arguments is None else self.args)
        same.settings, same.recipe = settings, recipe
        return same

    def describe(self) -> str:
        """Return the class and what its arguments say, in one line."""
        about = " (requires args)" if self.arguments is None else f": {self._describe(self.arguments)}"
        return f"{type(self).__name__}{about}"

    @abc.abstractmethod
    def _describe(self, arguments: A) -> str:
        """Return what the arguments say, for `describe`."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments only. Keys, connections, processes and counts stay behind."""
        return type(self), (self.name, None if self.arguments is None else self.args)

    def _required_arguments(self) -> A:
        if self.arguments is None:
            raise RewardError(f"reward {self.name!r} requires args, at least {self.needed}", code="invalid_reward_args")
        return self.arguments
