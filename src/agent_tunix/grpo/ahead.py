"""Sampling of the steps that follow, while the policy is updated.

With `engine.max_staleness` = K, step s trains on completions of the weights after step max(0, s − 1 − K), exactly: the
lag is fixed, so that a run can be repeated. At the start of step s, everything up to step s + K may be sampled with
weights that exist, and step s + K is sampled with those after step s − 1. K = 0 is the order of a run without a lag.

    trainer | wait     | update 1 | update 2 | update 3 |
    engine  | sample 1 | sample 2 | sample 3 | sample 4 |        K = 1; step 3 with the weights after step 1

A step takes as long as the longer of sampling and update. Where the engine has all weights in one set, it can serve no
older ones after it has read new ones. What is being sampled then ends before (`settle`), and the sampling of step s + K
begins afterwards: it still overlaps the updates of the steps before it, and K above 1 gains nothing over 1. Adapters
stay on the engine beside one another, so that K steps can be sampled at once.

Completions of earlier weights train off-policy. With one update a step, the importance ratio of the loss is relative to
the policy before that update, and `grpo.sampler_correction` weighs by trainer / sampler; with several, the ratio is
relative to the sampler itself, as in PPO. The KL penalty and other terms stay unweighted means over what was sampled.
"""

import contextlib
import dataclasses
import hashlib
import logging
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, InvalidStateError, wait
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from agent_tunix.config.episodes import has_environment, prompt_tokens
from agent_tunix.config.schema import Config
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.data.step_batches import Batches
from agent_tunix.engines.stored_completions import from_bytes, to_bytes
from agent_tunix.errors import ConfigError
from agent_tunix.sampling.keys import Use, derive_key
from agent_tunix.sampling.sampler import BatchSampler, Completions
from agent_tunix.sampling.token_choice import SamplingParams

_LOGGER = logging.getLogger("agent_tunix.run")
# Seconds that a sampling may take to end after it was cancelled.
_PATIENCE_S = 20.0


class VersionedSampler(BatchSampler, Protocol):
    """A sampler that can still use earlier weights, such as an engine with adapters."""

    def bound(self) -> BatchSampler:
        """Return a sampler of the policy's weights of now, whatever they become. It is used in other threads."""
        ...

    def cancel(self) -> None:
        """Let samplings in progress fail soon."""
        ...


class _Processes(Protocol):
    """The part of `distributed.Processes` that is used here; that room is not below this one."""

    count: int

    @property
    def is_first(self) -> bool: ...

    def from_first(self, make: Callable[[], Any]) -> Any: ...


def settle_correction(config: Config) -> Config:
    """Return the configuration with a choice in place of `grpo.sampler_correction=auto`.

    Completions of earlier weights would otherwise train as if the policy had sampled them.
    """
    grpo = config.grpo
    if grpo.sampler_correction != "auto":
        return config
    correction = "token" if config.engine.max_staleness and grpo.num_iterations == 1 else "none"
    if correction != "none":
        _LOGGER.info(
            "grpo.sampler_correction=auto is %s: completions are up to %d updates old and are weighted by the "
            "probability ratio of the policy and the weights that sampled; none turns it off",
            correction,
            config.engine.max_staleness,
        )
    return dataclasses.replace(config, grpo=dataclasses.replace(grpo, sampler_correction=correction))


def sample_round(sampler: BatchSampler, config: Config, batch: PromptBatch, step: int, number: int = 0) -> Completions:
    """Sample G completions of each prompt of a step, or of a further round of it."""
    return sampler.sample_batch(
        batch,
        derive_key(config.seed, Use.TRAINING, step, number),
        SamplingParams.of_training(config),
        num_generations=config.grpo.num_generations,
        max_prompt_length=prompt_tokens(config),
    )


class SamplingAhead:
    """The completions of the current step and of the K steps that follow it.

    Of several processes the first one samples, and the others get its completions.

    Args:
        config: Configuration of the run.
        sampler: Sampler of the policy.
        batches: Prompts of each step.
        processes: Processes of the run, as `distributed.here()` returns them.

    Raises:
        ConfigError: Several processes share environments, which answer only when all of them wait for it.

    Attributes:
        num_waiting: Steps that were sampled and waited when the newest step began.
    """

    def __init__(self, config: Config, sampler: VersionedSampler, batches: Batches, processes: _Processes) -> None:
        if processes.count > 1 and has_environment(config):
            raise ConfigError(
                f"engine.max_staleness={config.engine.max_staleness} must be 0 with an environment in a run of several "
                "processes; set it to 0, or train in one process",
                code="invalid_engine",
            )
        self._config = config
        self._lag = config.engine.max_staleness
        self._sampler = sampler
        self._batches = batches
        self._processes = processes
        self._has_versions = config.model.lora_rank > 0
        self._begun: dict[int, Future[Completions]] = {}
        self._paths: dict[int, str] = {}  # in a checkpoint
        # Environments serve one batch at a time.
        self._tasks = _Tasks(self._lag if self._has_versions and not has_environment(config) else 1)
        self.num_waiting = 0

    def take(self, step: int) -> Completions:
        """Return the completions of a step, after the sampling of all steps has begun that the weights allow.

        Args:
            step: Number of the step. The policy has the weights after the step before it.

        Raises:
            EngineError: The step could not be sampled.
        """
        self._begin(step)
        self.num_waiting = sum(future.done() for later, future in self._begun.items() if later > step)
        if self._processes.count == 1:
            return self._begun[step].result()
        return from_bytes(self._processes.from_first(lambda: to_bytes(self._begun[step].result())))

    def settle(self) -> None:
        """Wait until nothing is being sampled. An error is raised when its step is taken."""
        _wait(self._begun)

    def cancel(self) -> None:
        """End what is being sampled. Steps that are needed nevertheless are sampled again."""
        running = [future for future in self._begun.values() if not (future.cancel() or future.done())]
        if running:
            self._sampler.cancel()
            for future in wait(running, timeout=_PATIENCE_S).not_done:
                future.set_exception(CancelledError())  # it hangs, and its thread is left alone
        for step, future in self._begun.items():
            if not _has_succeeded(future):
                self._begun[step] = Future()
                self._begun[step].cancel()

    def close(self) -> None:
        """End what is being sampled, and the threads."""
        self.cancel()
        self._tasks.close()

    def files(self, step: int) -> Callable[[], Mapping[str, bytes]]:
        """Return a function that waits for what is being sampled, and returns it as files for a checkpoint.

        With these completions, a resumed run continues as if it had not been interrupted.

        Args:
            step: Step of the checkpoint. The files are those of later steps, by path.
        """
        begun = {later: future for later, future in self._begun.items() if later > step}
        paths = {later: self._paths[later] for later in begun}

        def read() -> Mapping[str, bytes]:
            _wait(begun)
            if lost := [later for later, future in begun.items() if not _has_succeeded(future)]:
                _LOGGER.warning(
                    "the checkpoint of step %d lacks the completions of steps %s, which were not sampled to the end; "
                    "a resumed run samples them with the weights of the checkpoint",
                    step,
                    lost,
                )
            return {paths[later]: to_bytes(begun[later].result()) for later in begun if later not in lost}

        return read

    def load(self, checkpoint: Path, step: int) -> None:
        """Take over the completions of a checkpoint, except those of steps that have other prompts or settings since.

        Args:
            checkpoint: Directory of the checkpoint.
            step: Its step.

        Raises:
            ValueError: A file has no completions.
        """
        for later in range(step + 1, min(step + self._lag, self._batches.num_steps) + 1):
            path = self._paths[later] = self._path(later, self._batches.batch(later))
            if (file := checkpoint / path).exists():
                self._begun[later] = Future()
                self._begun[later].set_result(from_bytes(file.read_bytes()))

    def _path(self, step: int, batch: PromptBatch) -> str:
        # Another seed or batch size draws other rows of the same data.
        made_of = [
            *(self._batches.fingerprint(step), [list(map(int, ids)) for ids in batch.token_ids], list(batch.rows)),
            *(self._config.grpo.num_generations, self._config.generation, self._config.environment),
        ]
        return f"ahead/step_{step:06d}-{hashlib.blake2b(repr(made_of).encode(), digest_size=8).hexdigest()}.npz"

    def _begin(self, step: int) -> None:
        """Begin to sample the steps up to step + K that have not begun, and forget earlier ones."""
        self._begun = {
            begun: future for begun, future in self._begun.items() if begun >= step and not future.cancelled()
        }
        last = min(step + self._lag, self._batches.num_steps)
        missing = self._processes.from_first(
            lambda: [later for later in range(step, last + 1) if later not in self._begun]
        )
        if not missing:
            return
        if not self._has_versions:
            self.settle()
        sampler = self._sampler.bound()  # all processes gather the weights
        for later in missing if self._processes.is_first else ():
            self._begun[later] = self._tasks.submit(self._task(sampler, later, step - 1))

    def _task(self, sampler: BatchSampler, step: int, version: int) -> Callable[[], Completions]:
        batch = self._batches.batch(step)
        self._paths[step] = self._path(step, batch)

        def sample() -> Completions:
            completions = sample_round(sampler, self._config, batch, step)
            if completions.versions is not None:
                return completions
            return dataclasses.replace(completions, versions=np.full(len(completions.texts), version, np.int64))

        return sample


def _wait(begun: Mapping[int, Future[Completions]]) -> None:
    # A future that was cancelled before it ran counts as done only here.
    wait([future for future in begun.values() if not future.done()])


def _has_succeeded(future: Future[Completions]) -> bool:
    return not future.cancelled() and future.exception() is None


class _Tasks:
    """Threads that do tasks in order. They are daemons: a task that hangs does not keep the process."""

    def __init__(self, num_threads: int) -> None:
        self._num_threads = num_threads
        self._has_threads = False  # they begin with the first task, so that a run that cannot start leaves none
        self._queue: queue.SimpleQueue[tuple[Future[Completions], Callable[[], Completions]] | None] = (
            queue.SimpleQueue()
        )

    def submit(self, task: Callable[[], Completions]) -> Future[Completions]:
        if not self._has_threads:
            self._has_threads = True
            for number in range(self._num_threads):
                threading.Thread(target=self._work, name=f"sampling-{number}", daemon=True).start()
        future: Future[Completions] = Future()
        self._queue.put((future, task))
        return future

    def close(self) -> None:
        for _ in range(self._num_threads if self._has_threads else 0):
            self._queue.put(None)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            future, task = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                completions = task()
            except BaseException as error:
                with contextlib.suppress(InvalidStateError):  # nobody waits for it any more
                    future.set_exception(error)
            else:
                with contextlib.suppress(InvalidStateError):
                    future.set_result(completions)
