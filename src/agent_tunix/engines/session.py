"""The inference engines of a run: started or found, checked, and given the policy's weights before each batch."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import jax
import numpy as np

from agent_tunix.config.episodes import episode_tokens, prompt_tokens
from agent_tunix.config.schema import Config
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.engines.devices import SAMPLING_DEVICES
from agent_tunix.engines.processes import SamplingProcesses
from agent_tunix.engines.source import EngineSource, make_wire
from agent_tunix.engines.sync import ProcessGroup, WeightSync
from agent_tunix.engines.wire import EngineFacts
from agent_tunix.errors import ConfigError, EngineError, RequestRefusedError
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.sampling.requests import TokenReply, TokenRequest, TokenSource
from agent_tunix.sampling.sampler import BatchSampler, Completions
from agent_tunix.sampling.token_choice import SamplingParams

_LOGGER = logging.getLogger("agent_tunix.engines")
# Seconds in which sampling processes must have loaded the model, at least.
_START_S = 600.0


class EngineSession:
    """The engines of a run.

    Args:
        config: Configuration of the run.
        directory: Directory for the logs of sampling processes and, unless the configuration names another, for
            weights on their way to the engines.
        processes: The processes of the run, of which the first alone speaks to the engines.
        resources: Ends what the session opens.
    """

    def __init__(
        self, config: Config, directory: Path, processes: ProcessGroup, resources: contextlib.ExitStack
    ) -> None:
        self._config = config
        self._directory = directory.resolve()
        given = config.engine.adapter_directory
        self._weights = self._directory if given is None else Path(given).resolve()
        self._processes = processes
        self._resources = resources
        self._started: SamplingProcesses | None = None
        self._source: EngineSource
        self._sync: WeightSync
        self._num_updates: Callable[[], int]
        self._in_flight: WeakSet[Future[TokenReply]] = WeakSet()
        self._lock = threading.Lock()  # several steps may be sampled at once
        self._totals = dict.fromkeys(("tokens", "retries", "context_cut"), 0)
        self._of_sync: dict[str, float | None] = {}
        self._seconds = 0.0
        self._unknown_logps = 0

    # --- the start -------------------------------------------------------------------------------------------------

    def start(self, config: Config, model: Path) -> None:
        """Start sampling processes, if the run has any. They load the model while this process does.

        Args:
            config: Configuration of the run, with the longest prompt.
            model: Directory of the model.
        """
        self._config, engine = config, config.engine
        if not engine.num_processes or not self._processes.is_first:
            return
        num_rows = config.training.batch_size * config.grpo.num_generations
        options = {
            "--adapter-directory": self._weights,
            "--dtype": config.model.dtype,
            "--max-context": prompt_tokens(config) + episode_tokens(config),
            "--places": min(engine.max_concurrency, -(-num_rows // engine.num_processes)),
        }
        self._weights.mkdir(parents=True, exist_ok=True)
        self._started = self._resources.enter_context(
            SamplingProcesses(
                model,
                engine.num_processes,
                ["--load-weights", *(str(word) for option in options.items() for word in option)],
                self._directory,
                SAMPLING_DEVICES.get(),
            )
        )

    def connect(self, policy: Decoder, model: Path, prompt: list[int], num_updates: Callable[[], int]) -> None:
        """Wait for the engines, and check that they serve the policy's model. Call this before weights change.

        Args:
            policy: The policy that trains.
            model: Directory of the model.
            prompt: Token ids of a prompt of the run.
            num_updates: Returns the number of updates that the policy's weights have had.

        Raises:
            EngineError: An engine does not answer in time, or serves another model.
            ConfigError: The key is missing, or the engines' context is too short for the run.
        """
        engine, wire = self._config.engine, make_wire(self._config.engine.name, policy.config.vocab_size)
        urls = self._processes.from_first(
            lambda: list(engine.urls) if self._started is None else self._started.urls(max(engine.timeout_s, _START_S))
        )
        self._source = self._resources.enter_context(
            EngineSource(
                urls,
                wire,
                api_key=self._key(),
                max_concurrency=engine.max_concurrency,
                timeout_s=engine.timeout_s,
                max_retries=engine.max_retries,
                reason_gone=lambda: None if self._started is None else self._started.reason_gone(),
            )
        )
        self._processes.from_first(lambda: self._check(self._source.wait_until_ready()))
        self._num_updates = num_updates
        self._sync = WeightSync(
            self._source,
            policy,
            self._config,
            self._weights,
            model_directory=model,
            prompt_ids=prompt,
            processes=self._processes,
        )
        self._resources.callback(self._sync.close)

    def _key(self) -> str | None:
        """Return the key of the engines; None if they need none."""
        name = self._config.engine.api_key_variable
        if self._started is not None:
            return self._started.key
        if name is None:
            return None
        if name not in os.environ:
            raise ConfigError(
                f"engine.api_key_variable={name} must name an environment variable with the engines' key, but it is "
                "not set; set it, or engine.api_key_variable=null",
                code="missing_variable",
            )
        return os.environ[name]

    def _check(self, facts: dict[str, EngineFacts]) -> None:
        """Refuse engines whose context is too short."""
        needed = prompt_tokens(self._config) + episode_tokens(self._config)
        for url, fact in facts.items():
            if fact.max_context is not None and fact.max_context < needed:
                raise ConfigError(
                    f"{url} must have room for {needed} tokens, the longest prompt and completion of the run, but its "
                    f"context has {fact.max_context}; start it with a longer one (--max-model-len, --context-length or "
                    "--max-context), or lower generation.max_prompt_length or generation.max_generation_steps",
                    code="context_exceeded",
                )
            _LOGGER.info("engine: %s, %s %s, %s", url, fact.kind, fact.version, ", ".join(fact.models))

    # --- sampling --------------------------------------------------------------------------------------------------

    def sampler(self, make: Callable[..., BatchSampler]) -> "SyncedSampler":
        """Return a sampler from the engines.

        Args:
            make: Makes it from a source of tokens; with `alone=True`, one that other processes do not share.
        """
        return SyncedSampler(self, make)

    def submit(self, request: TokenRequest, on_part: Callable[[TokenReply], None] | None = None) -> Future[TokenReply]:
        """Begin to continue a prompt; see `TokenSource`."""
        future = self._source.submit(request, on_part)
        with self._lock:
            self._in_flight.add(future)
        return future

    def cancel(self) -> None:
        """Cancel all requests that are being answered."""
        with self._lock:
            futures = list(self._in_flight)
        for future in futures:
            future.cancel()

    def follow(self) -> str | None:
        """Bring the engines up to the policy's weights, if they changed.

        Returns:
            The name of the adapter with these weights; None if they are those of the model itself.

        Raises:
            EngineError: They do not take the weights, or do not sample from them.
        """
        before = self._sync.report
        report = self._sync.sync(self._num_updates())
        if report is not before:
            self._of_sync = dict(report.metrics)
        return report.model if self._config.model.lora_rank > 0 else None

    def count(self, completions: Completions, seconds: float) -> None:
        """Count a batch that was sampled."""
        forks = completions.forks
        unknown = int((np.isnan(completions.logps) & completions.mask).sum())
        unknown += 0 if forks is None else int((np.isnan(forks.logps) & forks.mask).sum())
        with self._lock:
            self._seconds += seconds
            self._unknown_logps += unknown

    def metrics(self) -> dict[str, float | None]:
        """Return the metrics of what happened since the last call; null for a rate if nothing was sampled."""
        counts = self._source.counts
        now = {name: int(getattr(counts, name)) for name in self._totals}
        news = {name: count - self._totals[name] for name, count in now.items()}
        row = {
            **self._of_sync,
            "engine/tokens_per_s": news["tokens"] / self._seconds if self._seconds else None,
            "engine/retries": news["retries"],
            "engine/context_cut": news["context_cut"],
            "engine/unknown_logps": self._unknown_logps,
        }
        self._totals, self._seconds, self._unknown_logps = now, 0.0, 0
        self._of_sync = dict.fromkeys(self._of_sync)  # null until the next sync
        return row


class SyncedSampler:
    """A sampler from engines, which it brings up to the policy's weights before each batch.

    Args:
        session: The engines.
        make: Makes the sampler from a source of tokens; with `alone=True`, one that other processes do not share.
    """

    def __init__(self, session: EngineSession, make: Callable[..., BatchSampler]) -> None:
        self._session = session
        self._make = make
        self._sampler = make(session)

    def sample_batch(
        self,
        batch: PromptBatch,
        key: jax.Array,
        sampling: SamplingParams,
        *,
        num_generations: int,
        max_prompt_length: int,
    ) -> Completions:
        """Sample `num_generations` completions of each prompt of a batch from the current weights.

        Raises:
            EngineError: The engines do not take the weights, do not answer, or not as they must.
        """
        self._session.follow()
        return MeasuredSampler(self._session, self._sampler).sample_batch(
            batch, key, sampling, num_generations=num_generations, max_prompt_length=max_prompt_length
        )

    def bound(self) -> BatchSampler:
        """Bring the engines up to the current weights, and return a sampler from these, whatever follows them.

        All processes of a run call this together, and the sampler is for one of them alone.
        """
        source = _BoundSource(self._session, self._session.follow())
        return MeasuredSampler(self._session, self._make(source, alone=True))

    def cancel(self) -> None:
        """Cancel all requests that are being answered; their samplings raise CancelledError."""
        self._session.cancel()


class _BoundSource:
    """A source whose requests name a model, unless it is None."""

    def __init__(self, source: TokenSource, model: str | None) -> None:
        self._source = source
        self._model = model

    def submit(self, request: TokenRequest, on_part: Callable[[TokenReply], None] | None = None) -> Future[TokenReply]:
        """Begin to continue a prompt; see `TokenSource`."""
        return self._source.submit(replace(request, adapter=self._model), on_part)


class MeasuredSampler:
    """A sampler whose time and completions are counted, and whose errors are those of an engine."""

    def __init__(self, session: EngineSession, sampler: BatchSampler) -> None:
        self._session = session
        self._sampler = sampler

    def sample_batch(self, batch: PromptBatch, key: jax.Array, sampling: SamplingParams, **sizes: Any) -> Completions:
        """Sample a batch; see `BatchSampler`."""
        started = time.perf_counter()
        try:
            completions = self._sampler.sample_batch(batch, key, sampling, **sizes)
        except RequestRefusedError as error:
            raise EngineError(str(error), code=error.code) from error
        self._session.count(completions, time.perf_counter() - started)
        return completions
