"""Environments that `load_environment` makes: `SingleTurnEnv`, `ToolEnv`, `MultiTurnEnv` and others, with a rubric."""

import functools
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import openai
import verifiers

from agent_tunix.environments.verifiers.installed import InstalledEnvironment, Rows
from agent_tunix.errors import EnvironmentFailedError, InvalidEnvironmentError
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.sample import Score

_LOGGER = logging.getLogger("agent_tunix.environments")

# Component with the number of functions that failed, which score 0 by the rules of verifiers.
FAULTS = "rubric_faults"
# Faults of the rubric's functions in the current rollout.
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
            raise InvalidEnvironmentError(
                f"verifiers:{name} scores the rollouts of a prompt together, which is not supported; use an "
                "environment whose rubric has no function with parameters such as completions or states",
                code="unsupported_library",
            )
        told: set[str] = set()
        for rubric in {id(one): one for one in _rubrics(self._environment)}.values():
            rubric.funcs[:] = [_told(function, told) for function in rubric.funcs]

    def rows(self, limit: int) -> Rows:
        """Return the rows of the dataset and of the evaluation dataset."""
        environment = self._environment
        train, held_out = environment.build_dataset(), environment.build_eval_dataset()
        return [] if train is None else train.to_list(), [] if held_out is None else held_out.to_list()

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
        scores = {name: float(score) for name, score in (output.get("metrics") or {}).items()}
        return Score(float(output["reward"]), {**scores, FAULTS: float(len(faults))}, detail="; ".join(faults))


def _told(function: Callable[..., Any], told: set[str]) -> Callable[..., Any]:
    """Return a function of a rubric that notes its faults, and logs the first of each name."""

    @functools.wraps(function)
    async def scored(*args: Any, **kwargs: Any) -> Any:
        try:
            score = function(*args, **kwargs)
            return float(await score if inspect.isawaitable(score) else score)
        except Exception as error:
            name = getattr(function, "__name__", repr(function))
            fault = f"the function {name} of the rubric failed and scores 0: {describe_fault(error)}"
            _FAULTS.get([]).append(fault)
            if name not in told:
                told.add(name)
                _LOGGER.warning("%s; further faults of it are counted in %s", fault, FAULTS)
            raise

    return scored


def _rubrics(part: Any) -> Iterator[Any]:
    """Yield the rubrics of an environment or a rubric, and of the groups in it."""
    if hasattr(part, "funcs"):
        yield part
    for inner in (getattr(part, "rubric", None), *getattr(part, "rubrics", ()), *getattr(part, "envs", ())):
        yield from () if inner is None else _rubrics(inner)
