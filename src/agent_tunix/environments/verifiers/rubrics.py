"""Environments that `load_environment` makes: `SingleTurnEnv`, `ToolEnv`, `MultiTurnEnv` and others, with a rubric."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import openai
import verifiers

from agent_tunix.environments.verifiers.loading import InstalledEnvironment
from agent_tunix.errors import EnvironmentFailedError, InvalidEnvironmentError
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.sample import Score

# Faults of the rubric's functions in the current rollout. verifiers logs them and scores 0.
_FAULTS: ContextVar[list[str]] = ContextVar("faults")


class RubricEnvironment(InstalledEnvironment):
    """An environment with a dataset and a rubric.

    Args:
        name: Name of its package.
        args: Arguments of its `load_environment`.

    Raises:
        InvalidEnvironmentError: Its rubric scores several rollouts together.
    """

    def __init__(self, name: str, args: Mapping[str, Any]) -> None:
        self._environment: Any = verifiers.load_environment(name, **args)
        self._name = name
        if getattr(self._environment, "requires_group_rollouts", False):
            groups = ", ".join(f.__name__ for rubric in _rubrics(self._environment.rubric) for f in _of_groups(rubric))
            raise InvalidEnvironmentError(
                f"verifiers:{name} scores the rollouts of a prompt together, in {groups or 'its rubric'}, which is not "
                "supported; use an environment whose functions score one rollout each",
                code="unsupported_library",
            )
        for rubric in _all_rubrics(self._environment):
            rubric.funcs[:] = [_told(function) for function in rubric.funcs]

    def rows(self, limit: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the rows of the dataset and of the evaluation dataset."""
        environment = self._environment
        train, held_out = environment.build_dataset(), environment.build_eval_dataset()
        return ([] if train is None else train.to_list()), ([] if held_out is None else held_out.to_list())

    async def open(self) -> None:
        """Start nothing: `load_environment` has."""

    async def rollout(self, row: Mapping[str, Any], base_url: str, key: str) -> Score:
        """Run and score one rollout."""
        faults: list[str] = []
        _FAULTS.set(faults)
        async with openai.AsyncOpenAI(base_url=base_url, api_key=key) as client:
            # Settings of sampling are the run's, whatever the environment asks.
            output = await self._environment.run_rollout(
                dict(row), verifiers.OpenAIChatCompletionsClient(client), "policy", {}
            )
        if (error := output.get("error")) is not None:
            text = error.get("error_chain_repr", error) if isinstance(error, Mapping) else error
            raise EnvironmentFailedError(f"verifiers:{self._name}: {text}")
        if faults:
            raise EnvironmentFailedError(f"verifiers:{self._name}: {'; '.join(faults)}", code="rubric_failed")
        scores = output.get("metrics") or {}
        return Score(float(output["reward"]), {name: float(score) for name, score in scores.items()})


def _told(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a rubric that notes its faults."""

    @functools.wraps(function)
    async def scored(*args: Any, **kwargs: Any) -> Any:
        try:
            score = function(*args, **kwargs)
            return float(await score if inspect.isawaitable(score) else score)
        except Exception as error:
            name = getattr(function, "__name__", repr(function))
            _FAULTS.get([]).append(f"the function {name} of the rubric failed: {describe_fault(error)}")
            raise

    return scored


def _of_groups(rubric: Any) -> list[Any]:
    return [] if hasattr(rubric, "rubrics") else list(rubric._get_group_reward_funcs())


def _all_rubrics(environment: Any) -> Iterator[Any]:
    """Yield the rubrics of an environment and of those that it is a group of."""
    yield from _rubrics(environment.rubric)
    for inner in getattr(environment, "envs", ()):
        yield from _all_rubrics(inner)


def _rubrics(rubric: Any) -> Iterator[Any]:
    yield rubric
    for inner in getattr(rubric, "rubrics", ()):
        yield from _rubrics(inner)
