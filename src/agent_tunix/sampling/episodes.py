"""Sampling of episodes: the policy and its environments take turns until every episode has ended.

All rows write a turn; then the environments and tools of all rows run at the same time; then all rows whose episodes
continue write the next turn. Which rows share a batch depends on their tokens alone, so a slow tool changes no token.

Axes: B prompts, G episodes of each, N = B × G, L tokens of an episode.
"""

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from agent_tunix.data.episode_prompts import EpisodeEncoder
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.environments import EpisodeResult, Message, StopReason
from agent_tunix.environments.episode import Episode
from agent_tunix.environments.running import EnvironmentSet
from agent_tunix.policy.mesh import fetch, place_rows, row_shards
from agent_tunix.policy.variables import Parts
from agent_tunix.sampling.lengths import bucket
from agent_tunix.sampling.sampler import Completions, Sampler
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.sampling.turns import TurnInputs, draw_noise, new_cache, pack, read_prompts, take_turn

_LOGGER = logging.getLogger("agent_tunix.environments")

_DEFAULT_MAX_TURNS = 8
# Slots up to which one length of the cache serves all turns: unused slots cost less than another program.
_SMALL_CACHE = 512
# Characters of a result are limited to this many times its tokens, before it is encoded.
_CHARACTERS_OF_TOKEN = 16


@dataclass(frozen=True)
class EpisodeLimits:
    """Limits of episodes.

    Attributes:
        max_turns: Most turns; None for what the environment recommends, or else 8.
        max_episode_tokens: L, the most tokens after the prompt.
        max_result_tokens: Most tokens of a tool result or reply.
        fail_on_tool_error: True if an error of a tool ends the episode without a score.
    """

    max_turns: int | None
    max_episode_tokens: int
    max_result_tokens: int
    fail_on_tool_error: bool = False


@dataclass
class _Row:
    """An episode and its tokens.

    Attributes:
        number: Row of the batch.
        episode: Its episode.
        prompt: Token ids of the prompt.
        tokens: Token ids after the prompt.
        sampled: True for each of them that the policy wrote.
        logps: Log-probability of each of them; 0 for those that it did not write.
        unread: Last tokens of the text, which the model has not read.
        text: Text of its last turn.
        cut_reason: Limit at which its last turn was cut; None if the policy ended it.
        place: Row of the cache.
        slots: Slots of the cache that hold its tokens, in order.
    """

    number: int
    episode: Episode
    prompt: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    text: str = ""
    cut_reason: StopReason | None = None
    place: int = 0
    slots: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))

    @property
    def is_live(self) -> bool:
        return self.episode.stop_reason is None

    def add(self, tokens: Sequence[int], *, sampled: bool, logps: Sequence[float] | None = None) -> None:
        self.tokens += tokens
        self.sampled += [sampled] * len(tokens)
        self.logps += logps or [0.0] * len(tokens)


class EpisodeSampler:
    """Sampler of episodes. It takes the place of a `Sampler` where batches are sampled.

    Args:
        sampler: Sampler of the policy.
        environments: Environments of the run.
        encoder: Encoder of prompts and replies.
        limits: Limits of episodes.
    """

    def __init__(
        self, sampler: Sampler, environments: EnvironmentSet, encoder: EpisodeEncoder, limits: EpisodeLimits
    ) -> None:
        self.mesh = sampler.mesh
        self._sampler = sampler
        self._environments = environments
        self._encoder = encoder
        self._limits = limits
        self._parts = Parts(sampler.policy)
        self._draw_noise = jax.jit(draw_noise, static_argnames=("num_tokens", "num_rows"))
        self._read_prompts = jax.jit(read_prompts)
        self._new_cache = jax.jit(new_cache, static_argnames=("num_rows", "num_slots"))
        self._pack = jax.jit(pack)
        self._take_turn = jax.jit(take_turn, static_argnames=("sampling", "pad_id", "eos_ids"), donate_argnums=3)

    def sample_batch(
        self,
        batch: PromptBatch,
        key: jax.Array,
        sampling: SamplingParams,
        *,
        num_generations: int,
        max_prompt_length: int,
    ) -> Completions:
        """Sample `num_generations` episodes of each row.

        Args:
            batch: Rows, and their conversations before what `reset` returns.
            key: PRNG key. Equal keys, weights and rows give equal episodes, if the environments are deterministic.
            sampling: How tokens are chosen; `max_new_tokens` is the limit on a turn.
            num_generations: G.
            max_prompt_length: Longest prompt, with tools and the text of `reset`.
        """
        rows = [
            _Row(number, self._new_episode(batch.columns[number // num_generations]))
            for number in range(len(batch.prompts) * num_generations)
        ]
        try:
            self._begin(rows, batch, key, num_generations, max_prompt_length)
            if any(row.is_live for row in rows):
                self._take_turns(rows, key, sampling, num_generations, max_prompt_length)
        finally:
            for row in rows:  # an error of the trainer itself must not leave episodes open
                row.episode.stop(StopReason.ERROR, "the run was interrupted")
            results: list[EpisodeResult | None] = [None] * len(rows)

            def conclude(row: _Row) -> None:
                results[row.number] = row.episode.conclude()

            self._environments.for_each(conclude, rows)
        return self._collect(rows, [result for result in results if result is not None], max_prompt_length)

    # --- beginning -------------------------------------------------------------------------------------------------

    def _begin(
        self,
        rows: Sequence[_Row],
        batch: PromptBatch,
        key: jax.Array,
        num_generations: int,
        max_prompt_length: int,
    ) -> None:
        """Begin all episodes and encode their prompts."""
        words = [int(word) for word in np.asarray(jax.random.key_data(key)).ravel()]

        def begin(row: _Row) -> None:
            group = row.number // num_generations
            seed = int(np.random.SeedSequence(words, spawn_key=(group,)).generate_state(1)[0])
            row.episode.begin(batch.columns[group], [dict(message) for message in batch.messages[group]], seed)

        self._environments.for_each(begin, rows)
        for start in range(0, len(rows), num_generations):
            self._encode_group(rows[start : start + num_generations], max_prompt_length)

    def _new_episode(self, columns: Any) -> Episode:
        most = self._limits.max_result_tokens
        return Episode(
            lambda: self._environments.open(columns),
            self._encoder.call_format,
            most * _CHARACTERS_OF_TOKEN,
            shorten=lambda text: self._encoder.shorten(text, most),
            fail_on_tool_error=self._limits.fail_on_tool_error,
        )

    def _encode_group(self, rows: Sequence[_Row], max_prompt_length: int) -> None:
        """Encode the prompt of a group. The group shares it, so episodes that began otherwise have failed."""
        first = next((row for row in rows if row.is_live), None)
        ids: list[int] = [self._sampler.pad_id]
        if first is not None:
            messages = [dict(message) for message in first.episode.messages]
            tools = list(first.episode.environment.tools)
            names = [tool.name for tool in tools]
            for row in rows:
                if row.is_live and (
                    row.episode.messages != messages or [t.name for t in row.episode.environment.tools] != names
                ):
                    row.episode.stop(
                        StopReason.ERROR,
                        "reset must begin all episodes of a row with the same text and tools, but they differ; draw "
                        "from the seed that reset receives",
                    )
            ids = self._encoder.encode_prompt(messages, tools)
            if len(ids) > max_prompt_length:
                for row in rows:
                    row.episode.stop(
                        StopReason.ERROR,
                        f"the prompt with its tools has {len(ids)} tokens, more than generation.max_prompt_length="
                        f"{max_prompt_length}; raise that",
                    )
                ids = [self._sampler.pad_id]
        for row in rows:
            row.prompt, row.unread = ids, ids[-1:]

    # --- turns -----------------------------------------------------------------------------------------------------

    def _take_turns(
        self,
        rows: Sequence[_Row],
        key: jax.Array,
        sampling: SamplingParams,
        num_generations: int,
        max_prompt_length: int,
    ) -> None:
        """Let the policy and the environments take turns until every episode has stopped."""
        mesh, N = self.mesh, len(rows)
        arguments = self._parts.split()
        noise = None
        if not sampling.greedy:
            noise = self._draw_noise(key, num_tokens=self._limits.max_episode_tokens, num_rows=N)
        prefix = self._read_prompts(
            *arguments, *place_rows(mesh, self._prefixes(rows[::num_generations], max_prompt_length))
        )
        cache = None
        for turn in itertools.count():
            layout = self._arrange(rows, num_generations)
            inputs, num_slots = self._inputs(layout, sampling.max_new_tokens)
            if cache is None:
                cache = self._new_cache(*arguments, num_rows=len(layout), num_slots=num_slots)
            else:
                cache = self._pack(cache, *_moves(layout, num_slots))
            placed = place_rows(mesh, inputs)
            written, cache = self._take_turn(
                *arguments,
                prefix,
                cache,
                placed,
                noise,
                sampling=sampling,
                pad_id=self._sampler.pad_id,
                eos_ids=self._sampler.eos_ids,
            )
            live = [(place, row) for place, row in enumerate(layout) if row is not None]
            self._read_turn(live, inputs, fetch(written))
            self._environments.for_each(_answer, [row for _, row in live])
            self._reply([row for _, row in live if row.is_live], turn + 1)
            if not any(row.is_live for row in rows):
                return

    def _prefixes(self, rows: Sequence[_Row], max_prompt_length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the prompts of the groups without their last tokens, padded on the left, and their lengths."""
        prompts = [row.prompt[:-1] for row in rows]
        width = bucket(max(1, *map(len, prompts)), max_prompt_length)
        prompt_BP = np.full((len(prompts), width), self._sampler.pad_id, np.int32)
        for padded, ids in zip(prompt_BP, prompts, strict=True):
            padded[width - len(ids) :] = ids
        return prompt_BP, np.array([len(ids) for ids in prompts], np.int32)

    def _arrange(self, rows: Sequence[_Row], num_generations: int) -> list[_Row | None]:
        """Return the row at each place of the batch. Rows that have ended leave, if a quarter of the places suffices.

        Every number of places needs a compiled program of its own, so there are few.
        """
        groups = [
            [row for row in rows[start : start + num_generations] if row.is_live]
            for start in range(0, len(rows), num_generations)
        ]
        places = num_generations
        if row_shards(self.mesh) == 1:
            most = max(map(len, groups))
            while places > 1 and most <= -(-places // 4):
                places = -(-places // 4)
        return [row for group in groups for row in [*group, *[None] * (places - len(group))]]

    def _inputs(self, layout: Sequence[_Row | None], turn_tokens: int) -> tuple[TurnInputs, int]:
        """Return what the rows begin a turn with, and the slots that the cache needs."""
        longest = max(len(row.unread) for row in layout if row is not None)
        C = 1 if longest == 1 else bucket(longest, self._limits.max_episode_tokens + 1)
        inputs = TurnInputs(
            chunk=np.full((len(layout), C), self._sampler.pad_id, np.int32),
            chunk_lengths=np.ones(len(layout), np.int32),
            filled=np.zeros(len(layout), np.int32),
            positions=np.zeros(len(layout), np.int32),
            limits=np.zeros(len(layout), np.int32),
            written=np.zeros(len(layout), np.int32),
            rows=np.zeros(len(layout), np.int32),
        )
        for place, row in enumerate(layout):
            if row is None:
                continue
            inputs.chunk[place, : len(row.unread)] = row.unread
            inputs.chunk_lengths[place] = len(row.unread)
            inputs.filled[place] = len(row.slots)
            inputs.positions[place] = len(row.prompt) + len(row.tokens) - len(row.unread)
            inputs.limits[place] = min(turn_tokens, self._limits.max_episode_tokens - len(row.tokens))
            inputs.written[place] = len(row.tokens)
            inputs.rows[place] = row.number
        most = self._limits.max_episode_tokens + C + turn_tokens
        return inputs, most if most <= _SMALL_CACHE else bucket(int(inputs.filled.max()) + C + turn_tokens, most)

    def _read_turn(self, live: Sequence[tuple[int, _Row]], inputs: TurnInputs, written: Any) -> None:
        """Add what the policy wrote to its rows, and tell the episodes that were cut."""
        start, C = int(inputs.filled.max()), inputs.chunk.shape[1]
        lengths = [int(written.lengths[place]) for place, _ in live]
        ids = [written.tokens[place, :length].tolist() for (place, _), length in zip(live, lengths, strict=True)]
        texts = self._sampler.tokenizer.decode_batch(ids)
        for (place, row), tokens, text in zip(live, ids, texts, strict=True):
            row.place = place
            row.slots = np.concatenate(
                [
                    np.arange(len(row.slots)),
                    start + np.arange(len(row.unread)),
                    start + C + np.arange(len(tokens) - 1),
                ]
            ).astype(np.int32)
            row.add(tokens, sampled=True, logps=written.logps[place, : len(tokens)].tolist())
            row.unread = tokens[-1:]
            row.text = text
            if not written.ended[place]:
                is_full = len(row.tokens) == self._limits.max_episode_tokens
                row.cut_reason = StopReason.MAX_EPISODE_TOKENS if is_full else StopReason.MAX_TURN_TOKENS

    def _reply(self, rows: Sequence[_Row], num_turns: int) -> None:
        """Add the replies of tools and environments to the rows whose episodes continue."""
        continuing = []
        for row in rows:
            limit = self._limits.max_turns or row.episode.max_turns or _DEFAULT_MAX_TURNS
            if num_turns >= limit:
                row.episode.stop(StopReason.MAX_TURNS)
            else:
                continuing.append(row)
        replies = self._encoder.encode_replies([_last_replies(row.episode) for row in continuing])
        for row, ids in zip(continuing, replies, strict=True):
            if len(row.tokens) + len(ids) >= self._limits.max_episode_tokens:
                row.episode.stop(StopReason.MAX_EPISODE_TOKENS)
            else:
                row.add(ids, sampled=False)
                row.unread = row.unread + ids

    # --- the result ------------------------------------------------------------------------------------------------

    def _collect(self, rows: Sequence[_Row], results: Sequence[EpisodeResult], max_prompt_length: int) -> Completions:
        N, L = len(rows), self._limits.max_episode_tokens
        prompts = np.full((N, max_prompt_length), self._sampler.pad_id, np.int32)
        tokens = np.full((N, L), self._sampler.pad_id, np.int32)
        sampled, logps = np.zeros((N, L), np.bool_), np.zeros((N, L), np.float32)
        for row in rows:
            prompts[row.number, max_prompt_length - len(row.prompt) :] = row.prompt
            length = len(row.tokens)
            tokens[row.number, :length] = row.tokens
            sampled[row.number, :length] = row.sampled
            logps[row.number, :length] = row.logps
        return Completions(
            prompt_tokens=prompts,
            prompt_lengths=np.array([len(row.prompt) for row in rows], np.int32),
            tokens=tokens,
            lengths=np.array([len(row.tokens) for row in rows], np.int32),
            ended=np.array(
                [result.stop_reason in (StopReason.FINISHED, StopReason.ENVIRONMENT_DONE) for result in results]
            ),
            texts=[row.text for row in rows],
            logps=logps,
            sampled=sampled,
            episodes=results,
        )


def _answer(row: _Row) -> None:
    """Let the environment answer a turn of the policy."""
    if row.cut_reason is None:
        row.episode.write(row.text)
    else:
        row.episode.cut(row.text, row.cut_reason)


def _last_replies(episode: Episode) -> list[Message]:
    """Return the messages after the policy's last turn."""
    last = max(place for place, message in enumerate(episode.messages) if message["role"] == "assistant")
    return episode.messages[last + 1 :] or [{"role": "user", "content": ""}]


def _moves(layout: Sequence[_Row | None], num_slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and the slots of the cache before for each row of the next one."""
    row_n = np.zeros(len(layout), np.int32)
    slot_nS = np.zeros((len(layout), num_slots), np.int32)
    for place, row in enumerate(layout):
        if row is not None:
            row_n[place] = row.place
            slot_nS[place, : len(row.slots)] = row.slots
    return row_n, slot_nS
