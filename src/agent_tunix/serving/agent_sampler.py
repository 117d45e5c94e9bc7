"""Sampling of episodes that agents drive: they run in worker processes and call the policy over HTTP.

The thread of the trainer answers their calls, all of a batch together, until every agent has ended. Equal seeds give
equal tokens only if the agents are deterministic: a call's seed depends on the key of the batch, the rollout, the
tokens of the call's prompt, and the number of earlier calls with the same prompt. It does not depend on the order in
which calls arrive.
"""

import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import jax
import numpy as np

from agent_tunix.data.episode_prompts import EpisodeEncoder
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.environments.agents import AgentOutcome, AgentPool, AgentRun
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.sampling.requests import TokenRequest, TokenSource
from agent_tunix.sampling.sampler import Completions
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.serving.agent_episodes import make_result
from agent_tunix.serving.app import create_app
from agent_tunix.serving.calls import RecordedCall
from agent_tunix.serving.chat import ChatEncoder
from agent_tunix.serving.completions import completions_of
from agent_tunix.serving.policy_service import PolicyService
from agent_tunix.serving.recorder import RolloutCalls, RolloutRecorder
from agent_tunix.serving.running import serving
from agent_tunix.serving.settings import PolicySettings

_LOGGER = logging.getLogger("agent_tunix.environments")


class DrivenSource(TokenSource, Protocol):
    """A source of tokens that works while the trainer's thread drives it, such as `ContinuousSampler`."""

    def serve_until(self, is_done: Callable[[], bool]) -> None:
        """Answer requests until a condition holds."""
        ...

    def wake(self) -> None:
        """Let `serve_until` look at its condition."""
        ...

    def close(self) -> None:
        """Fail what waits, and refuse new requests."""
        ...


@dataclass(frozen=True)
class RolloutLimits:
    """Limits of a rollout.

    Attributes:
        max_calls: Most calls.
        max_tokens: Most sampled tokens.
        max_context: Longest conversation, in tokens, the reply included.
        stop_strings: Strings that end a reply, besides those that the agent gives.
    """

    max_calls: int
    max_tokens: int
    max_context: int
    stop_strings: tuple[str, ...] = ()


@dataclass(eq=False)
class _Rollout:
    """A rollout, and what became of it."""

    number: int
    seeds: "CallSeeds"
    recorded: RolloutCalls
    calls: Sequence[RecordedCall] = ()
    outcome: AgentOutcome = AgentOutcome()  # noqa: RUF009  # frozen


class AgentSampler:
    """Sampler of the episodes of agents. It takes the place of a `Sampler` where batches are sampled.

    Args:
        make_source: Returns the source of tokens. Its argument is a function that returns a number, which changes
            where the weights may have changed.
        tokenizer: The policy's tokenizer.
        agents: Processes of the agents. The source, the server and the threads of this sampler end with them.
        encoder: Encoder of conversations.
        limits: Limits of a rollout.
    """

    def __init__(
        self,
        make_source: Callable[[Callable[[], int]], DrivenSource],
        tokenizer: Tokenizer,
        agents: AgentPool,
        encoder: EpisodeEncoder,
        limits: RolloutLimits,
    ) -> None:
        self._tokenizer = tokenizer
        self._agents = agents
        self._limits = limits
        self._num_batches = 0
        self._source = make_source(lambda: self._num_batches)
        self._recorder = RolloutRecorder(limits.max_calls, limits.max_tokens)
        self._settings = PolicySettings(port=0, accepts_any_model=True, max_context=limits.max_context)
        self._service = PolicyService(
            self._source, self._tokenizer, self._settings, ChatEncoder(encoder), self._recorder
        )
        self._base_url = ""
        self._threads: ThreadPoolExecutor
        _LOGGER.info(
            "agents: up to %d at once; the run's own temperature, top_k, top_p and min_p hold for all their calls; "
            "equal seeds give equal tokens only if the agent is deterministic",
            agents.limits.max_concurrency,
        )

    def sample_batch(
        self,
        batch: PromptBatch,
        key: jax.Array,
        sampling: SamplingParams,
        *,
        num_generations: int,
        max_prompt_length: int,
    ) -> Completions:
        """Run `num_generations` agents for each row.

        Args:
            batch: Rows.
            key: PRNG key, from which the seeds of all calls derive.
            sampling: How tokens are chosen; `max_new_tokens` is the limit on a reply.
            num_generations: G.
            max_prompt_length: Not used; the limits have the context.

        Raises:
            InvalidEnvironmentError: The agent cannot be loaded in a worker.
        """
        self._start()
        self._num_batches += 1
        words = np.asarray(jax.random.key_data(key)).tobytes()
        rollouts = [
            self._open(number, CallSeeds(words, number), sampling)
            for number in range(len(batch.prompts) * num_generations)
        ]
        size = self._agents.group_size(len(rollouts))
        runs = [
            self._begin(rollouts[start : start + size], batch, num_generations)
            for start in range(0, len(rollouts), size)
        ]
        try:
            self._source.serve_until(lambda: all(run.done() for run in runs))
        except BaseException:  # an error of the trainer itself, or an interrupt: no agent may stay
            self._agents.close()
            raise
        finally:
            self._recorder.close_all()
        for run in runs:
            run.result()
        results = [
            make_result(
                rollout.calls,
                rollout.outcome,
                rollout.recorded.refused,
                rollout.recorded.met_limit,
                batch.messages[rollout.number // num_generations],
                self._tokenizer.decode,
            )
            for rollout in rollouts
        ]
        return completions_of(
            [rollout.calls for rollout in rollouts],
            results,
            self._tokenizer,
            max_row_tokens=self._limits.max_context,
        )

    def _open(self, number: int, seeds: "CallSeeds", sampling: SamplingParams) -> _Rollout:
        """Open a rollout, whose calls are sampled as the run says, whatever the agent asks for."""

        def adjust(request: TokenRequest) -> TokenRequest:
            return replace(
                request,
                max_tokens=min(request.max_tokens, sampling.max_new_tokens),
                **sampling.of_request,
                seed=seeds.of(request.prompt),
                stop_strings=tuple(dict.fromkeys((*request.stop_strings, *self._limits.stop_strings))),
                adapter=None,
            )

        return _Rollout(number, seeds, self._recorder.open(str(number), adjust))

    def _start(self) -> None:
        """Start the server and the threads, once."""
        if self._base_url:
            return
        logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it warns about every invalid request
        resources, pool = self._agents.resources, self._agents
        resources.callback(self._source.close)
        self._base_url = resources.enter_context(serving(create_app(self._service), self._settings))
        self._threads = resources.enter_context(ThreadPoolExecutor(pool.num_workers, "agents"))

    def _begin(self, rollouts: Sequence[_Rollout], batch: PromptBatch, num_generations: int) -> Future[None]:
        """Begin to run the agents of some rollouts, in one worker."""

        def end(number: int, outcome: AgentOutcome) -> None:
            rollouts[number].outcome = outcome
            rollouts[number].calls = self._recorder.close(rollouts[number].recorded.key)

        requests = [
            AgentRun(batch.columns[one.number // num_generations], self._base_url, one.recorded.key, one.seeds.of())
            for one in rollouts
        ]
        run = self._threads.submit(self._agents.run, requests, end)
        run.add_done_callback(lambda _: self._source.wake())
        return run


class CallSeeds:
    """Seeds of a rollout: one of its own, and one for each call.

    Args:
        words: Key of the batch.
        number: Number of the rollout in the batch.
    """

    def __init__(self, words: bytes, number: int) -> None:
        self._start = hashlib.blake2b(words + number.to_bytes(8, "little"), digest_size=8)
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._lock = threading.Lock()

    def of(self, prompt: tuple[int, ...] = ()) -> int:
        """Return the seed of the next call with a prompt, from 0 to 2^64 - 1."""
        with self._lock:
            number = self._counts[prompt]
            self._counts[prompt] += 1
        digest = self._start.copy()
        digest.update(np.array([number, *prompt], np.int64).tobytes())
        return int.from_bytes(digest.digest(), "little")
