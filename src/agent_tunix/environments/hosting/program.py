"""Worker for environments: a process that builds one environment and runs its episodes.

A request is a tuple of a method's name and its arguments. The reply is `("ok", value)` with plain data, or `("fault",
message, code)` if the user's code failed.
"""

from typing import Any

from agent_tunix.environments.conventions import EnvironmentAdapter
from agent_tunix.environments.environment import EpisodeEnvironment
from agent_tunix.environments.hosting.requests import answer_request
from agent_tunix.environments.resolve import EnvironmentRecipe, build_environment
from agent_tunix.errors import AgentTunixError
from agent_tunix.execution.workers.process import WorkerProcess
from agent_tunix.rewards import sources
from agent_tunix.rewards.faults import describe_fault


class EnvironmentProgram:
    """Program of a worker with one environment and its open episodes, by number."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._adapter: EnvironmentAdapter | None = None
        self._episodes: dict[int, EpisodeEnvironment] = {}

    def answer(self, request: Any) -> None:
        """Carry out one request and reply."""
        method, *arguments = request
        try:
            value: Any = None
            if method == "build":
                with self._process.loading():
                    self._build(*arguments)
            elif method == "open":
                value = self._open(*arguments)
            else:
                number, *rest = arguments
                episode = self._episodes.pop(number) if method == "close" else self._episodes[number]
                value = answer_request(episode, method, *rest)
        except AgentTunixError as error:
            self._process.restore()
            self._process.send("fault", str(error), error.code)
        except BaseException as error:  # a user's code may raise anything
            self._process.restore()
            self._process.send("fault", describe_fault(error), "environment_failed")
        else:
            self._process.restore()
            self._process.send("ok", value)

    def _build(self, recipe: EnvironmentRecipe) -> None:
        sources.use(recipe.sources)
        self._adapter = build_environment(recipe)

    def _open(self, number: int) -> int | None:
        """Open an episode and return its limit on turns, which only the constructor may know."""
        assert self._adapter is not None
        self._episodes[number] = episode = self._adapter.open()
        return episode.traits.max_turns
