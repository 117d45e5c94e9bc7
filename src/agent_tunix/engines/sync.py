"""The policy's weights on their way to the engines, after each update, and the proof that they arrived (`gate.py`).

An adapter is written in PEFT's format to a directory of its own and loaded under its name, `policy-RUN-vN`. RUN is
drawn when the process starts, so that no engine ever sees a name with other weights, whatever run it served before. All
weights are written as a Hugging Face directory, which replaces what the engine serves.

The adapter is stored in float32. All weights are stored in float32 for engines of agent_tunix, which lose nothing, and
else in the type that the trainer computes in. An engine that computes in bfloat16 rounds them.
"""

import asyncio
import logging
import secrets
import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import httpx
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from agent_tunix.config.episodes import episode_tokens, prompt_tokens
from agent_tunix.config.schema import Config
from agent_tunix.engines.gate import MOST_PROBE_TOKENS, Check, ProbeScorer, ReplicaScores, SyncGate
from agent_tunix.engines.source import EngineSource
from agent_tunix.engines.wire import Wire
from agent_tunix.errors import EngineError
from agent_tunix.policy.files.export import write_adapter, write_merged
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.policy.variables import Variables
from agent_tunix.sampling.requests import TokenRequest

_LOGGER = logging.getLogger("agent_tunix.engines")
# Tokens of the probe's prompt, of the continuation that the engine samples once, and of the reply at each sync. They
# are fewer where the engine's context may be as short as the run's.
_PROMPT_TOKENS, _CONTINUATION_TOKENS, _REPLY_TOKENS = 64, 48, 16
_UNLOAD_S = 10.0
Value = TypeVar("Value")


class ProcessGroup(Protocol):
    """The processes of a run."""

    @property
    def is_first(self) -> bool:
        """True for the process that writes and speaks to engines."""
        ...

    def from_first(self, make: Callable[[], Value]) -> Value:
        """Call a function in the first process, and return its result or raise its error in every process."""
        ...


@dataclass(frozen=True)
class SyncReport:
    """A sync that passed the gate.

    Attributes:
        version: Number of weight updates of the policy.
        model: Name of what was synced.
        seconds: Wall time.
        checks: What the gate found, by URL of the replica.
    """

    version: int
    model: str
    seconds: float
    checks: Mapping[str, Check]

    @property
    def metrics(self) -> dict[str, float | None]:
        """The metrics of the sync: of the replica that differs most, and of the one that follows least."""
        shares = [check.share for check in self.checks.values()]
        known = [share for share in shares if share is not None]
        return {
            "engine/sync_s": self.seconds,
            "engine/probe_difference": max((check.difference for check in self.checks.values()), default=None),
            "engine/probe_share": min(known) if known and len(known) == len(shares) else None,
        }


# What a replica said: its URL, its scores of the probe by its model before its first sync and by the synced one, and
# the tokens and log-probabilities of a reply. Plain values, which processes exchange.
_Answer = tuple[str, list[float], list[float], list[int], list[float]]


class WeightSync:
    """The way of the policy's weights to all replicas. Every process of the run calls its methods.

    Make it before a checkpoint is restored, because the gate needs the scores of the initial weights.

    Args:
        source: The engines, which are ready.
        policy: The policy that trains.
        config: Configuration of the run.
        directory: Directory that the engines see under the same path.
        model_directory: Directory that the policy was loaded from.
        prompt_ids: Token ids of a prompt of the run, for the probe.
        processes: The processes of the run.
    """

    def __init__(
        self,
        source: EngineSource,
        policy: Decoder,
        config: Config,
        directory: Path,
        *,
        model_directory: Path,
        prompt_ids: Sequence[int],
        processes: ProcessGroup,
    ) -> None:
        self._source = source
        self._policy = policy
        self._config = config
        self._directory = directory
        self._model_directory = model_directory
        self._processes = processes
        self._has_adapter = config.model.lora_rank > 0
        self._temperature = config.generation.temperature or 1.0
        self._run = processes.from_first(lambda: secrets.token_hex(4))
        # Names that the engines have, with the policy's scores of the probe at that version; the current one last.
        self._loaded: deque[tuple[str, np.ndarray]] = deque()
        self.report: SyncReport | None = None
        context = min(prompt_tokens(config) + episode_tokens(config), MOST_PROBE_TOKENS)
        self._prompt = tuple(prompt_ids)[-min(_PROMPT_TOKENS, context // 2) :]
        self._rest = context - len(self._prompt)
        self._probe = [*self._prompt, *processes.from_first(self._draw_continuation)]
        self._scorer = ProbeScorer(policy, MOST_PROBE_TOKENS)
        self._gate = SyncGate(self._score_initial())
        if processes.is_first:
            source.on_rejoin = self._catch_up
        if config.engine.adapter_directory is None and processes.is_first:
            for left in directory.glob("*policy-*"):  # by a process of this run that was killed
                shutil.rmtree(left, ignore_errors=True)

    def _score_initial(self) -> np.ndarray:
        """Return the policy's scores of the probe with the weights that an engine starts with: without an adapter."""
        adapter = Variables(self._policy, nnx.LoRAParam)
        held = adapter.read()
        adapter.write(jax.tree.map(lambda array: 0 * array, held))
        try:
            return self._scorer.score(self._probe)
        finally:
            adapter.write(held)

    def _draw_continuation(self) -> list[int]:
        request = TokenRequest(self._prompt, min(_CONTINUATION_TOKENS, self._rest), seed=0)
        replies = self._source.each(lambda wire, client: wire.sample(client, self._source.base_model, request))
        return list(next(iter(replies.values())).tokens)

    def sync(self, version: int) -> SyncReport:
        """Give the policy's weights to all replicas, prove that they sample from them, and let them sample.

        Args:
            version: Number of weight updates. Nothing happens if it was synced already.

        Raises:
            EngineError: No replica takes the weights, or one does not follow. Its `code` is `engine_stale` or
                `engine_differs` if the gate found that.
        """
        if self.report is not None and self.report.version == version:
            return self.report
        started = time.perf_counter()
        name = f"policy-{self._run}-v{version}"
        self._write(name)
        expected = self._scorer.score(self._probe)
        # From here on, a replica that comes back takes this version too.
        self._loaded.append((name, expected))
        answers = self._processes.from_first(lambda: self._deliver(name, version))
        replicas = [self._read(answer) for answer in answers]
        # The gate of the first process alone knows the replicas that came back, so it judges for all.
        found = self._processes.from_first(
            lambda: [(one.url, *astuple(self._gate.check(name, expected, one))) for one in replicas]
        )
        checks = {url: Check(difference, share) for url, difference, share in found}
        if self._processes.is_first:
            self._source.follow(version, self._model(name))
        self._forget(self._config.engine.max_staleness + 1 if self._has_adapter else 1)
        self.report = SyncReport(version, name, time.perf_counter() - started, checks)
        return self.report

    def close(self) -> None:
        """Unload and remove what was written. Engines that do not answer are left as they are, and not waited for."""
        self._forget(0, waits=False)

    def _model(self, name: str) -> str:
        """Return the model that requests name to sample from what was synced under a name."""
        return name if self._has_adapter else self._source.base_model

    # --- writing ---------------------------------------------------------------------------------------------------

    def _write(self, name: str) -> None:
        """Write the weights, complete or not at all. All processes take part, and the first writes."""
        partial = self._directory / f".{name}.partial"
        config, model = self._config, self._config.model
        target = partial if self._processes.is_first else None
        try:
            if target is not None:
                partial.mkdir(parents=True)
            if self._has_adapter:
                base = model.path or str(self._model_directory)
                write_adapter(self._policy, self._model_directory, target, model.lora_alpha, base, has_tokenizer=False)
            else:
                dtype = jnp.dtype("float32") if config.engine.name == "agent_tunix" else None
                write_merged(self._policy, self._model_directory, target, model.lora_alpha, dtype)
            if target is not None:
                partial.rename(self._directory / name)
        except OSError as error:
            raise EngineError(
                f"the weights must be written to {self._directory} for the engines, but cannot be: {error}; set "
                "engine.adapter_directory to a directory that this process can write and the engines can read",
                code="engine_directory",
            ) from error

    def _forget(self, num_kept: int, *, waits: bool = True) -> None:
        """Unload and remove all but the newest names. Their requests have ended, or end where they are."""
        names = [self._loaded.popleft()[0] for _ in range(len(self._loaded) - num_kept)]

        async def unload(wire: Wire, client: httpx.AsyncClient) -> None:
            async with asyncio.timeout(_UNLOAD_S):
                for name in names:
                    await wire.unload_adapter(client, name)

        if not names or not self._processes.is_first:
            return
        if self._has_adapter and self._source.is_up:
            try:
                self._source.each(unload, waits=waits)
            except EngineError as error:
                _LOGGER.warning("%s could not be unloaded: %s", ", ".join(names), error)
        for name in names:
            shutil.rmtree(self._directory / name, ignore_errors=True)

    # --- speaking --------------------------------------------------------------------------------------------------

    def _deliver(self, name: str, version: int) -> list[_Answer]:
        """Let every replica take the weights and score the probe."""

        async def take(wire: Wire, client: httpx.AsyncClient) -> _Answer:
            base = await self._score_base(wire, client)
            await self._load(wire, client, name, version)
            probe = await wire.score(client, self._model(name), self._probe)
            request = TokenRequest(self._prompt, min(_REPLY_TOKENS, self._rest), self._temperature, seed=version)
            reply = await wire.sample(client, self._model(name), request)
            return str(client.base_url), base, probe, list(reply.tokens), list(reply.logps)

        return list(self._source.each(take).values())

    def _read(self, answer: _Answer) -> ReplicaScores:
        """Return the scores of a replica, with the trainer's log-probabilities of its reply beside its own."""
        url, base, probe, tokens, logps = answer
        expected = self._scorer.score([*self._prompt, *tokens], self._temperature)[-len(tokens) :]
        return ReplicaScores(url, np.asarray(base), np.asarray(probe), np.asarray(logps) - expected)

    async def _load(self, wire: Wire, client: httpx.AsyncClient, name: str, version: int) -> None:
        directory = (self._directory / name).resolve()
        if not self._has_adapter:
            await wire.load_weights(client, directory, version)
        elif name not in (await wire.describe(client)).models:
            await wire.load_adapter(client, name, directory)

    async def _catch_up(self, wire: Wire, client: httpx.AsyncClient) -> None:
        """Bring a replica that was away to the versions that requests may name, before it is used again.

        Raises:
            EngineError: It does not take them, or does not follow.
        """
        loaded = list(self._loaded)
        if not loaded:
            return
        base, (name, expected) = await self._score_base(wire, client), loaded[-1]
        for one, _ in loaded if self._has_adapter else loaded[-1:]:
            await self._load(wire, client, one, int(one.rpartition("-v")[2]))
        probe = await wire.score(client, self._model(name), self._probe)
        scores = ReplicaScores(str(client.base_url), np.asarray(base), np.asarray(probe))
        self._gate.check(name, expected, scores)

    async def _score_base(self, wire: Wire, client: httpx.AsyncClient) -> list[float]:
        """Return a replica's scores of the probe by the model that it has; none if the gate knows it."""
        if self._gate.knows(str(client.base_url)):
            return []
        return await wire.score(client, self._source.base_model, self._probe)
