"""Worker for environments: a process that builds one environment and runs its episodes.

A request is a tuple of a method's name and its arguments. The reply is `("ok", value)` with plain data, or `("fault",
message, code)` if the user's code failed.
"""

import json
import random
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from agent_tunix.environments.conventions import EnvironmentAdapter
from agent_tunix.environments.environment import EpisodeEnvironment
from agent_tunix.environments.outcomes import Message
from agent_tunix.environments.resolve import EnvironmentRecipe, build_environment
from agent_tunix.errors import AgentTunixError
from agent_tunix.execution.workers.limits import WorkerLimits, WorkerPlace
from agent_tunix.execution.workers.process import WorkerProcess
from agent_tunix.rewards.execution import wire
from agent_tunix.rewards.faults import describe_fault


def main(
    connection: socket.socket, output: int, trace: int, limits: WorkerLimits, place: WorkerPlace | None = None
) -> NoReturn:
    """Work until the connection to the host closes; see `WorkerProcess`."""
    random.seed()
    process = WorkerProcess(connection, output, trace, limits, place)
    desk = _Desk(process)
    while True:
        desk.answer(process.receive())


class _Desk:
    """The environment and its open episodes, by number."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._adapter: EnvironmentAdapter | None = None
        self._episodes: dict[int, EpisodeEnvironment] = {}

    def answer(self, request: Any) -> None:
        """Carry out one request and reply."""
        method, *arguments = request
        try:
            if method == "build":
                value: Any = None
                with self._process.loading():
                    self._build(*arguments)
            else:
                methods: dict[str, Callable[..., Any]] = {
                    "open": self._open,
                    "reset": self._reset,
                    "call": self._call,
                    "respond": self._respond,
                    "score": self._score,
                    "close": self._close,
                }
                value = methods[method](*arguments)
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
        self._adapter = build_environment(recipe)

    def _open(self, number: int) -> None:
        assert self._adapter is not None
        self._episodes[number] = self._adapter.open()

    def _reset(self, number: int, row: dict[str, Any], seed: int) -> tuple[str | None, Any, list[Any]]:
        episode = self._episodes[number]
        first = episode.reset(row, seed)
        tools = [(str(tool.name), str(tool.description), _plain(tool.parameters)) for tool in episode.tools]
        return first, _plain(episode.prompt()), tools

    def _call(self, number: int, name: str, arguments: dict[str, Any], max_result_chars: int) -> tuple[Any, ...]:
        result = self._episodes[number].call(name, arguments, max_result_chars)
        return str(result.text), str(result.outcome.value), float(result.seconds), str(result.detail)

    def _respond(self, number: int, text: str) -> tuple[str | None, bool]:
        reply = self._episodes[number].respond(text)
        return None if reply.text is None else str(reply.text), bool(reply.done)

    def _score(self, number: int, messages: list[Message], stop_reason: str) -> wire.PlainScore | None:
        score = self._episodes[number].score(messages, stop_reason)
        return None if score is None else wire.to_plain(score)

    def _close(self, number: int) -> None:
        episode = self._episodes.pop(number, None)
        if episode is not None:
            episode.close()


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))
