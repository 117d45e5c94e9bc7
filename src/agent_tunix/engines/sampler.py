"""Sampling of batches from a source of tokens, such as inference engines.

Every row of a batch is a request with a seed of its own, which depends on the key of the batch and the number of the
row. So its tokens do not depend on the replica that samples them, nor on what else is sampled at the time, up to
rounding, where the engine honours seeds.

A token whose log-probability the engine does not tell is NaN in `Completions.logps`, and does not train.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import replace
from typing import Any, TypeVar

import jax
import numpy as np

from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.errors import EngineError
from agent_tunix.sampling.keys import derive_seed
from agent_tunix.sampling.requests import TokenReply, TokenRequest, TokenSource
from agent_tunix.sampling.sampler import Completions, Sampler, pad_prompts
from agent_tunix.sampling.token_choice import SamplingParams

Value = TypeVar("Value")


class CallFirst:
    """Calls a function in the process that has the engines, and returns its result in every process of the run.

    This one is for runs of a single process; `Processes.from_first` is for several. Results have built-in types.
    """

    def __call__(self, make: Callable[[], Value]) -> Value:
        """Return the result of a function."""
        return make()


class EngineSampler:
    """Sampler of completions from a source of tokens. It takes the place of a `Sampler` where batches are sampled.

    Args:
        source: Source of tokens, which is used in one process alone.
        sampler: Sampler of the policy, for its tokenizer and its stops. It samples nothing.
        from_first: Returns the result of a function that uses the source, in all processes.
    """

    def __init__(self, source: TokenSource, sampler: Sampler, from_first: Callable[[Any], Any] | None = None) -> None:
        self._source = source
        self._sampler = sampler
        self._from_first = from_first or CallFirst()

    def sample_batch(
        self,
        batch: PromptBatch,
        key: jax.Array,
        sampling: SamplingParams,
        *,
        num_generations: int,
        max_prompt_length: int,
    ) -> Completions:
        """Sample `num_generations` completions of each prompt of a batch; see `Sampler.sample`.

        Raises:
            EngineError: The engines do not answer, or not as they must.
        """
        sampler = self._sampler
        prompts = [ids for ids in batch.token_ids for _ in range(num_generations)]
        requests = [
            request_tokens(ids, sampling.max_new_tokens, sampling, derive_seed(key, row, 0), sampler)
            for row, ids in enumerate(prompts)
        ]
        turns = self._from_first(lambda: [plain_turn(reply) for reply in gather(self._source, requests)])
        prompt_tokens, prompt_lengths = pad_prompts(prompts, max_prompt_length, sampler.pad_id)
        tokens = np.full((len(turns), sampling.max_new_tokens), sampler.pad_id, np.int32)
        logps = np.zeros(tokens.shape, np.float32)
        for row, (ids, its_logps, _) in enumerate(turns):
            tokens[row, : len(ids)], logps[row, : len(ids)] = ids, its_logps
        return Completions(
            prompt_tokens=prompt_tokens,
            prompt_lengths=prompt_lengths,
            tokens=tokens,
            lengths=np.array([len(ids) for ids, _, _ in turns], np.int32),
            ended=np.array([has_ended for _, _, has_ended in turns]),
            texts=sampler.decode([ids for ids, _, _ in turns]),
            logps=logps,
        )


def request_tokens(
    prompt: Sequence[int], max_tokens: int, sampling: SamplingParams, seed: int, sampler: Sampler
) -> TokenRequest:
    """Return the request for a completion or a turn, with the stops of the policy's sampler."""
    return TokenRequest(
        tuple(prompt),
        max_tokens,
        seed=seed,
        stop_ids=sampler.eos_ids,
        stop_strings=sampler.stop_strings,
        **sampling.of_request,
    )


def plain_turn(reply: TokenReply) -> tuple[list[int], list[float], bool]:
    """Return the tokens of a reply, their log-probabilities, and True if the policy ended it."""
    return list(reply.tokens), list(reply.logps), reply.finish_reason == "stop"


def gather(source: TokenSource, requests: Sequence[TokenRequest]) -> list[TokenReply]:
    """Return the replies to requests. If one fails, cancel the others and raise its error."""
    futures: list[Future[TokenReply]] = []
    try:
        for request in requests:
            futures.append(source.submit(request))
        for future in wait(futures, return_when=FIRST_EXCEPTION).done:
            future.result()
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()


class WaitingSource:
    """A source of tokens that works by itself, for a sampler of agents, which drives its source otherwise.

    Args:
        source: The source. It is not closed with this one.
        stop_ids: Further tokens that end every reply.
    """

    def __init__(self, source: TokenSource, stop_ids: Sequence[int] = ()) -> None:
        self._source = source
        self._stop_ids = tuple(stop_ids)
        self._changed = threading.Condition()
        self._failure: EngineError | None = None

    def submit(self, request: TokenRequest, on_part: Callable[[TokenReply], None] | None = None) -> Future[TokenReply]:
        """Begin to continue a prompt; see `TokenSource`."""
        stop_ids = tuple(dict.fromkeys((*request.stop_ids, *self._stop_ids)))
        future = self._source.submit(replace(request, stop_ids=stop_ids), on_part)
        future.add_done_callback(self._keep_failure)
        return future

    def _keep_failure(self, future: Future[TokenReply]) -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, EngineError):
            self._failure = error
            self.wake()

    def serve_until(self, is_done: Callable[[], bool]) -> None:
        """Wait for a condition, which `wake` looks at.

        Raises:
            EngineError: The engines failed, which agents would take for a fault of their own.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or is_done())
        if self._failure is not None:
            raise self._failure

    def wake(self) -> None:
        """Let `serve_until` look at its condition."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Do nothing: the source ends with the run."""
