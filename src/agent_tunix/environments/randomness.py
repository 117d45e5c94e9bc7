"""Random numbers of environments that do not take a seed.

Such an environment draws from `random` or from NumPy's global generator. Each episode has its own state of both, which
begins with its seed. So the episodes of a group see the same task, and neither other episodes in the same process nor
the number of processes change what an episode draws.
"""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from agent_tunix.environments.environment import EpisodeEnvironment
from agent_tunix.environments.outcomes import DEFAULT_MAX_RESULT_CHARS, CallResult, Message, Reply
from agent_tunix.environments.tools import Tool
from agent_tunix.rewards.sample import Score

_LOCK = threading.RLock()  # the generators belong to the whole process


class GlobalRandomness:
    """States of the global generators, which are theirs inside `active` alone."""

    def __init__(self, seed: int) -> None:
        self._state: tuple[Any, Any] = (random.Random(seed).getstate(), np.random.RandomState(seed % 2**32).get_state())

    def has_same_states(self, other: "GlobalRandomness") -> bool:
        """Return True if the same numbers come next."""
        (one, one_numpy), (another, another_numpy) = self._state, other._state
        return one == another and all(map(np.array_equal, one_numpy, another_numpy))

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Give the global generators these states; afterwards, keep what became of them and restore the former ones."""
        with _LOCK:
            former = _global_state()
            _set_global_state(self._state)
            try:
                yield
            finally:
                self._state = _global_state()
                _set_global_state(former)


def _global_state() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()


def _set_global_state(state: tuple[Any, Any]) -> None:
    random.setstate(state[0])
    np.random.set_state(state[1])


class SeededEnvironment(EpisodeEnvironment):
    """An episode whose global generators begin with its seed.

    Args:
        make: Makes the environment. It is called again by `reset` if it drew random numbers before the seed was known.
    """

    def __init__(self, make: Callable[[], EpisodeEnvironment]) -> None:
        self._make = make
        self._randomness = GlobalRandomness(0)
        with self._randomness.active():
            self._environment = make()
        self._has_drawn = not self._randomness.has_same_states(GlobalRandomness(0))
        self.traits = self._environment.traits

    @property
    def tools(self) -> Sequence[Tool]:
        """Tools of the environment."""
        return self._environment.tools

    def reset(self, row: Mapping[str, Any], seed: int) -> str | None:
        """Begin the episode."""
        self._randomness = GlobalRandomness(seed)
        with self._randomness.active():
            if self._has_drawn:
                self._environment.close()
                self._environment = self._make()
            return self._environment.reset(row, seed)

    def prompt(self) -> list[Message] | None:
        """Return the messages that the environment made from the row."""
        return self._environment.prompt()

    def call(
        self, name: str, arguments: Mapping[str, Any], max_result_chars: int = DEFAULT_MAX_RESULT_CHARS
    ) -> CallResult:
        """Call a tool."""
        with self._randomness.active():
            return self._environment.call(name, arguments, max_result_chars)

    def respond(self, text: str) -> Reply:
        """Reply to a turn without tool calls."""
        with self._randomness.active():
            return self._environment.respond(text)

    def score(self, messages: Sequence[Message], stop_reason: str) -> Score | None:
        """Return the score of the episode."""
        with self._randomness.active():
            return self._environment.score(messages, stop_reason)

    def state(self) -> dict[str, Any]:
        """Return the environment's state."""
        return self._environment.state()

    def close(self) -> None:
        """Release what the episode holds."""
        self._environment.close()
