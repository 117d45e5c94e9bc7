"""Sampling of episodes whose turns a source of tokens writes, such as inference engines.

Every episode goes on by itself: when its environment has answered, its text so far is the prompt of the next turn,
token for token, whatever the others do. The seed of a turn depends on the key of the batch, the number of the row and
the tokens before it. In a run of several processes, whose environments are in process 0, the episodes whose turns have
ended wait for each other's environments.
"""

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import jax

from agent_tunix.data.episode_prompts import EpisodeEncoder
from agent_tunix.engines.sampler import CallFirst, plain_turn, request_tokens
from agent_tunix.environments import StopReason
from agent_tunix.sampling.episodes import Environments, EpisodeLimits, EpisodeRow, EpisodeSampler, answer
from agent_tunix.sampling.keys import derive_seed
from agent_tunix.sampling.requests import TokenReply, TokenSource
from agent_tunix.sampling.sampler import Sampler
from agent_tunix.sampling.token_choice import SamplingParams

Value = TypeVar("Value")
# Number of a row, and its turn; None in its place if its environment has answered.
_Event = tuple[int, tuple[list[int], list[float], bool] | None]


class EngineEpisodeSampler(EpisodeSampler):
    """Sampler of episodes from a source of tokens.

    Args:
        source: Source of tokens, which is used in one process alone.
        sampler: Sampler of the policy, for its tokenizer and its stops. It samples nothing.
        environments: Environments of the run.
        encoder: Encoder of prompts and replies.
        limits: Limits of episodes; the schedule is not used.
        from_first: In a run of several processes, returns the result of a function of process 0 in all of them.
    """

    def __init__(
        self,
        source: TokenSource,
        sampler: Sampler,
        environments: Environments,
        encoder: EpisodeEncoder,
        limits: EpisodeLimits,
        from_first: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(sampler, environments, encoder, limits)
        self._source = source
        self._is_shared = from_first is not None
        self._from_first = from_first or CallFirst()

    def _take_turns(
        self,
        rows: Sequence[EpisodeRow],
        answering: dict[Future[None], EpisodeRow],
        key: jax.Array,
        sampling: SamplingParams,
        num_generations: int,
        max_prompt_length: int,
    ) -> None:
        """Let the policy and the environments take turns; see `EpisodeSampler`.

        Raises:
            EngineError: The engines do not answer, or not as they must.
        """
        events: queue.SimpleQueue[tuple[int, Future[Any]]] = queue.SimpleQueue()
        writing: dict[int, Future[TokenReply]] = {}

        def ask(row: EpisodeRow) -> None:
            start = len(row.tokens)
            max_tokens = min(sampling.max_new_tokens, self._limits.max_episode_tokens - start)
            seed = derive_seed(key, row.number, start)
            request = request_tokens([*row.prompt, *row.tokens], max_tokens, sampling, seed, self._sampler)
            writing[row.number] = tell(row.number, self._source.submit(request))

        def tell(number: int, future: Future[Value]) -> Future[Value]:
            future.add_done_callback(lambda done: events.put((number, done)))
            return future

        def read(number: int, future: Future[Any]) -> _Event:
            if answering.pop(future, None) is not None:
                future.result()
                return number, None
            del writing[number]
            return number, plain_turn(future.result())

        def next_events() -> list[_Event]:
            """Ask for the turns that may begin, and return what has happened since, at least one thing."""
            for row in rows:
                if row.is_live and row.is_writing and row.number not in writing:
                    ask(row)
            happened = [read(*events.get())]
            while not events.empty():
                happened.append(read(*events.get()))
            return happened

        try:
            while any(row.is_live for row in rows):
                happened = self._from_first(next_events)
                answered = [rows[number] for number, turn in happened if turn is None]
                written = [self._add_turn(rows[number], *turn) for number, turn in happened if turn is not None]
                self._end_turns(written)
                if self._is_shared:
                    self._environments.for_each(answer, written)
                    answered = written
                else:
                    for row in written:
                        future = self._environments.submit(answer, row)
                        answering[future] = row
                        tell(row.number, future)
                self._reply([row for row in answered if row.is_live])
        finally:
            for turn in writing.values():
                turn.cancel()

    def _add_turn(self, row: EpisodeRow, tokens: list[int], logps: list[float], has_ended: bool) -> EpisodeRow:
        """Add a turn of the policy to its row."""
        row.add(tokens, sampled=True, logps=logps)
        if not has_ended:
            is_full = len(row.tokens) == self._limits.max_episode_tokens
            row.cut_reason = StopReason.MAX_EPISODE_TOKENS if is_full else StopReason.MAX_TURN_TOKENS
        return row
