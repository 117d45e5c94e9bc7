"""An environment of verifiers as an agent: a function of a row and a client of the policy."""

import asyncio
import contextlib
import importlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_tunix.environments.agents import AgentLimits, AgentPool, AgentRecipe
from agent_tunix.environments.agents.commands import without_proxy
from agent_tunix.environments.agents.program import FunctionProgram
from agent_tunix.environments.resolve import sendable
from agent_tunix.environments.verifiers.loading import load_environment
from agent_tunix.rewards.sample import Score


def open_agents(recipe: AgentRecipe, limits: AgentLimits) -> AgentPool:
    """Return the workers of the agent of an environment; see `agent_of`."""
    return AgentPool(sendable(recipe), limits, is_shared=True, program=VerifiersProgram)


def agent_of(name: str, args: Mapping[str, Any], directory: Path) -> AgentRecipe:
    """Return the recipe of the agent of an environment; its arguments are those of `VerifiersAgent`."""
    place = f"{VerifiersAgent.__module__}.{VerifiersAgent.__qualname__}"
    return AgentRecipe(
        place, args={"name": name, "args": dict(args), "directory": str(directory)}, working_directory=directory
    )


class VerifiersAgent:
    """An agent that runs the rollouts of an environment of verifiers, several at once.

    Args:
        name: Name of the environment's package.
        args: Arguments of the environment.
        directory: Directory whose modules can be imported too.

    Raises:
        InvalidEnvironmentError: The environment cannot be loaded or served.
    """

    def __init__(self, name: str, args: Mapping[str, Any], directory: str) -> None:
        os.environ.update(without_proxy())  # the library makes clients of the policy itself
        self._environment = load_environment(name, args, Path(directory))
        # Clients and servers of the environment belong to one event loop, whose tasks outlive a rollout.
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="verifiers", daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._environment.open(), self._loop).result()

    async def __call__(self, row: Mapping[str, Any], client: Any) -> Score:
        """Run a rollout and return its score.

        Args:
            row: Row of the environment's data.
            client: A client of OpenAI's library, bound to this rollout; only its address and key are used.

        Raises:
            EnvironmentFailedError: The environment or its rubric failed.
        """
        rollout = self._environment.rollout(row, str(client.base_url), client.api_key)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(rollout, self._loop))


class VerifiersProgram(FunctionProgram):
    """Program of a worker whose agent is an environment of verifiers."""

    @staticmethod
    def prepare() -> None:
        """Import the library in the process from which all workers are forked."""
        FunctionProgram.prepare()
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
        with contextlib.suppress(ImportError):
            verifiers = importlib.import_module("verifiers")
            if getattr(verifiers, "Environment", None) is None:  # the base of environments below 0.4
                importlib.import_module("verifiers.v1")
