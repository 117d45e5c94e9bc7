"""Runner: places each reward of a run in this process or in workers, and closes what it started."""

import contextlib
import logging
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

from agent_tunix.closing import Closing
from agent_tunix.errors import RewardError
from agent_tunix.rewards import loading
from agent_tunix.rewards.answers.verifiers import VERIFIERS
from agent_tunix.rewards.execution.calls import Executor, Job, divide_into_calls
from agent_tunix.rewards.execution.concurrent import AsyncReward, check_length, failed_scores
from agent_tunix.rewards.execution.inline import EventLoopThread
from agent_tunix.rewards.execution.local import LocalExecutor, make_sandboxed_executor
from agent_tunix.rewards.execution.recipes import is_uploaded, needs_sandbox, recipe_of, stays_here
from agent_tunix.rewards.execution.settings import ExecutionSettings
from agent_tunix.rewards.mixture import Mixture
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Reward, Sample, Score
from agent_tunix.rewards.uploaded import UploadedSource

logger = logging.getLogger("agent_tunix.rewards")

AnyReward = TypeVar("AnyReward", bound=Reward)


@runtime_checkable
class RunningReward(Protocol):
    """Interface of a reward that holds a resource from the start of a run to its end."""

    def open(self) -> None:
        """Acquire the resource."""

    def close(self) -> None:
        """Release the resource."""


class Runner(Closing, Generic[AnyReward]):
    """Execution of a reward, or of each component of a mixture, until it is closed.

    Attributes:
        reward: The same mixture or reward, executed as the settings say.
    """

    def __init__(self, reward: AnyReward, settings: ExecutionSettings) -> None:
        self._settings = settings
        self._loop = EventLoopThread()
        self._executor: Executor | None = None
        self._sandboxed: dict[UploadedSource | str, Executor] = {}
        self._models = contextlib.ExitStack()
        try:
            self.reward = cast(AnyReward, self._place(reward))
        except BaseException:
            self._end()
            raise
        VERIFIERS.hold()
        self._is_open = True

    def close(self) -> None:
        """End every process and thread, and release every descriptor."""
        self._end()
        if self._is_open:
            self._is_open = False
            VERIFIERS.release()

    def _end(self) -> None:
        self._models.close()
        for executor in (self._executor, *self._sandboxed.values()):
            if executor is not None:
                executor.close()
        self._loop.close()

    def _place(self, reward: Reward) -> Reward:
        if isinstance(reward, Mixture):
            components = [replace(c, reward=self._place(c.reward)) for c in reward.components]
            return Mixture(components, on_failure=reward.on_failure, name=reward.name)
        if getattr(reward, "limits_itself", False):
            if self._settings.execution in ("process", "ray"):
                logger.info(
                    "reward %r runs in this process with its own limits, regardless of rewards.execution=%s: %s",
                    reward.name,
                    self._settings.execution,
                    reward.describe(),
                )
            if isinstance(reward, RunningReward):  # a reward model: load it now, so that it fails before training
                reward.open()
                self._models.callback(reward.close)
            return reward  # a judge or reward model, which has limits of its own
        recipe = recipe_of(reward)
        if recipe is not None and (
            is_uploaded(recipe) or (needs_sandbox(reward, recipe) and self._settings.execution != "inline")
        ):
            return IsolatedReward(reward, recipe, self._sandboxed_executor(recipe))
        stays = self._settings.execution == "auto" or recipe is None
        if self._settings.execution == "inline" or (stays and stays_here(reward)):
            return self._inline(reward)
        if recipe is None:
            text = _cannot_be_sent(reward)
            if self._settings.execution != "auto":
                raise RewardError(f"{text}; make what it needs inside the function, or set rewards.execution=inline")
            logger.warning("%s; it runs in this process, without limits", text)
            return self._inline(reward)
        if self._executor is None:
            self._executor = _make_executor(self._settings)
        self._executor.prepare(recipe)
        return IsolatedReward(reward, recipe, self._executor)

    def _inline(self, reward: Reward) -> Reward:
        """Return the reward for this process: itself, unless its calls must be divided or run in the event loop."""
        is_divided = any(getattr(reward, name, False) for name in ("is_async", "needs_group", "needs_batch"))
        return InlineReward(reward, self._settings, self._loop) if is_divided else reward

    def _sandboxed_executor(self, recipe: RewardRecipe) -> Executor:
        """Return the executor of an upload or a built-in that needs one. No two of them share a process."""
        key = recipe.uploaded or recipe.spec
        executor = self._sandboxed.get(key)
        if executor is None:
            what = "uploaded code" if recipe.uploaded else f"the reward {recipe.spec}"
            executor = self._sandboxed[key] = make_sandboxed_executor(self._settings, what)
        executor.prepare(recipe)
        return executor


class PlacedReward:
    """A reward with a place where it runs. Other attributes are those of the reward itself."""

    def __init__(self, reward: Reward) -> None:
        self._reward = reward
        self._is_async = bool(getattr(reward, "is_async", False))
        self._takes_several = bool(getattr(reward, "needs_group", False) or getattr(reward, "needs_batch", False))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._reward, name)

    @property
    def name(self) -> str:
        """Name in logs."""
        return self._reward.name

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Score each sample, in order."""
        raise NotImplementedError

    def check_parameters(self, columns: Collection[str]) -> None:
        """Raise RewardSignatureError if nothing provides a required parameter."""
        self._reward.check_parameters(columns)

    def describe(self) -> str:
        """Return what the reward is and where it is written."""
        return self._reward.describe()


class InlineReward(PlacedReward):
    """A reward in this process. A sync one has no limits, because a process cannot end its own calls."""

    def __init__(self, reward: Reward, settings: ExecutionSettings, loop: EventLoopThread) -> None:
        super().__init__(reward)
        self._settings = settings
        self._loop = loop

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Score each sample, in order."""
        calls = divide_into_calls(samples, self._reward)
        if self._is_async:
            limit, timeout_s = self._settings.max_concurrency, self._settings.timeout_s
            return self._loop.score(cast(AsyncReward, self._reward), samples, calls, limit, timeout_s)
        scores: dict[int, Score] = {}
        for call in calls:
            scores.update(zip(call, self._score_call([samples[position] for position in call]), strict=True))
        return [scores[position] for position in range(len(samples))]

    def _score_call(self, samples: Sequence[Sample]) -> list[Score]:
        try:
            return check_length(self._reward.score(samples), samples)
        except Exception as error:  # an error that the reward's convention did not catch
            return failed_scores(error, samples)


class IsolatedReward(PlacedReward):
    """A reward whose calls are made in workers."""

    def __init__(self, reward: Reward, recipe: RewardRecipe, executor: Executor) -> None:
        super().__init__(reward)
        self._recipe = recipe
        self._executor = executor

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Score each sample, in order."""
        return self.begin(samples).result()

    def begin(self, samples: Sequence[Sample]) -> "Future[list[Score]]":
        """Start scoring without waiting; return a future of the scores."""
        calls = divide_into_calls(samples, self._reward)
        return self._executor.submit(Job(self._recipe, samples, calls, self._is_async))


def _cannot_be_sent(reward: Reward) -> str:
    why = loading.pack_by_value(getattr(reward, "definition", reward))
    reason = why if isinstance(why, str) else "it was not found by `resolve_reward`"
    return f"reward {reward.name!r}, {reward.describe()}, cannot be sent to another process: {reason}"


def is_isolated(reward: Reward) -> bool:
    """Return True if the reward or one of its components runs in workers, which enforce its time limit."""
    if isinstance(reward, Mixture):
        return any(is_isolated(component.reward) for component in reward.components)
    return isinstance(reward, IsolatedReward)


def make_runner(
    reward: AnyReward,
    execution: str = "auto",
    *,
    timeout_s: float = 10.0,
    memory_mb: int = 2048,
    num_workers: int | None = None,
    max_concurrency: int = 64,
    recycle_after: int = 10_000,
    start_timeout_s: float = 60.0,
    allow_unsandboxed: bool = False,
) -> Runner[AnyReward]:
    """Execute a mixture or reward; see `ExecutionSettings` for the settings.

    Workers start at once and load their rewards in the background.

    Returns:
        A context manager; call its `reward` in place of the one given.

    Raises:
        RewardError: A setting is out of range, or a reward cannot be built in another process.
        SandboxUnavailableError: An uploaded reward cannot be isolated here and may not run otherwise.
    """
    settings = ExecutionSettings(
        execution,
        timeout_s,
        memory_mb,
        num_workers,
        max_concurrency,
        recycle_after,
        start_timeout_s,
        allow_unsandboxed=allow_unsandboxed,
    )
    return Runner(reward, settings)


def _make_executor(settings: ExecutionSettings) -> Executor:
    if settings.execution == "ray":
        from agent_tunix.rewards.execution.on_ray import RayExecutor

        return RayExecutor(settings)
    return LocalExecutor(settings)
