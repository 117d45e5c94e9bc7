"""Sampling of episodes: the policy and its environments take turns until every episode has ended.

There are two schedules. With `lockstep`, all rows write a turn. Then the environments and tools of all rows run at the
same time. Then all rows whose episodes continue write the next turn. Only the tokens decide which rows share a batch,
so a slow tool changes no token. With `arrival`, the rows write some tokens at a time, and a row joins the others as
soon as its own tools have answered. A slow tool then delays only its own episode. But the rounding of a row's numbers,
and occasionally a token, then depends on the rows that share its batches.

Axes: B prompts, G episodes of each, N = B × G, L tokens of an episode.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import jax
import numpy as np

from agent_tunix.data.episode_prompts import EpisodeEncoder
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.environments import EpisodeResult, Message, StopReason
from agent_tunix.environments.environment import EpisodeEnvironment
from agent_tunix.environments.episode import Episode
from agent_tunix.planning.cache_plan import Stage, plan_stages
from agent_tunix.policy.mesh import fetch, place_rows, row_shards
from agent_tunix.policy.variables import Parts
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.sampling.lengths import bucket
from agent_tunix.sampling.sampler import Completions, Sampler, pad_prompts
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.sampling.turns import TurnInputs, draw_noise, new_cache, pack, read_prompts, take_turn

_LOGGER = logging.getLogger("agent_tunix.environments")

# Tokens after which rows whose tools have answered join the others, with the schedule `arrival`.
_TOKENS_BETWEEN_ARRIVALS = 32
# Room for the tokens of the template around a result.
_TOKENS_AROUND_RESULT = 32
# Slots up to which one length of the cache serves all turns: unused slots cost less than another program.
_SMALL_CACHE = 512
# Characters of a result are limited to this many times its tokens, before it is encoded.
_CHARACTERS_OF_TOKEN = 16


class Environments(Protocol):
    """The environments of a run, such as `EnvironmentSet`."""

    def open(self, row: Mapping[str, Any]) -> EpisodeEnvironment:
        """Return the environment of a new episode of a row."""
        ...

    def for_each(self, function: Callable[["EpisodeRow"], None], items: Iterable["EpisodeRow"]) -> None:
        """Call a function on episodes."""
        ...

    def submit(self, function: Callable[["EpisodeRow"], None], item: "EpisodeRow") -> Future[None]:
        """Begin to call a function on an episode."""
        ...

    def release(self, function: Callable[["EpisodeRow"], None], items: Iterable["EpisodeRow"]) -> None:
        """Call a function on episodes after an error."""
        ...


@dataclass(frozen=True)
class EpisodeLimits:
    """Limits of episodes.

    Attributes:
        max_turns: Maximum turns; None for the environment's recommendation, or 8 without one.
        max_episode_tokens: L, the maximum tokens after the prompt.
        max_result_tokens: Maximum tokens of a tool result or reply.
        fail_on_tool_error: True if an error of a tool ends the episode without a score.
        waits_for_all: True for the schedule `lockstep`, False for `arrival`.
    """

    max_turns: int | None
    max_episode_tokens: int
    max_result_tokens: int
    fail_on_tool_error: bool = False
    waits_for_all: bool = True


@dataclass(eq=False)
class EpisodeRow:
    """An episode and its tokens.

    Attributes:
        number: Row of the batch.
        episode: The episode.
        prompt: Token ids of the prompt.
        tokens: Token ids after the prompt.
        sampled: True for each of `tokens` that the policy wrote.
        logps: Log-probability of each of `tokens`; 0 for those that the policy did not write.
        unread: Last tokens of the text, which the model has not read.
        turn_start: Number of tokens before the last turn.
        stop_state: State of the last turn in the table of stop strings.
        is_writing: True until the last turn has ended.
        text: Text of the last turn.
        cut_reason: Limit at which the last turn was cut; None if the policy ended it.
        place: Row of the cache.
        slots: Slots of the cache that hold the row's tokens, in order.
    """

    number: int
    episode: Episode
    prompt: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    turn_start: int = 0
    stop_state: int = 0
    is_writing: bool = True
    text: str = ""
    cut_reason: StopReason | None = None
    place: int = 0
    slots: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))

    @property
    def is_live(self) -> bool:
        """True until the episode stops."""
        return self.episode.stop_reason is None

    def add(self, tokens: Sequence[int], *, sampled: bool, logps: Sequence[float] | None = None) -> None:
        """Add tokens of the policy, or of tools and environments, after the others."""
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
        self, sampler: Sampler, environments: Environments, encoder: EpisodeEncoder, limits: EpisodeLimits
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
        self._take_turn = jax.jit(
            take_turn, static_argnames=("stages", "sampling", "pad_id", "eos_ids"), donate_argnums=3
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
        """Sample `num_generations` episodes of each row.

        Args:
            batch: Rows, and their conversations without the message that `reset` returns.
            key: PRNG key. Equal keys, weights and rows give equal episodes, if the environments are deterministic.
            sampling: How tokens are chosen; `max_new_tokens` is the limit on a turn.
            num_generations: G.
            max_prompt_length: Longest prompt, with tools and the text of `reset`.
        """
        rows = [
            EpisodeRow(number, self._new_episode(batch.columns[number // num_generations]))
            for number in range(len(batch.prompts) * num_generations)
        ]
        answering: dict[Future[None], EpisodeRow] = {}
        results: dict[int, EpisodeResult] = {}

        def conclude(row: EpisodeRow) -> None:
            results[row.number] = row.episode.conclude()

        try:
            self._begin(rows, batch, key, num_generations, max_prompt_length)
            if any(row.is_live for row in rows):
                self._take_turns(rows, answering, key, sampling, num_generations, max_prompt_length)
        except BaseException:  # an error of the trainer itself must not leave episodes open
            wait(answering)
            for row in rows:
                row.episode.stop(StopReason.ERROR, "the run was interrupted")
            self._environments.release(conclude, rows)
            raise
        self._environments.for_each(conclude, rows)
        return self._collect(rows, [results[row.number] for row in rows], max_prompt_length)

    # --- beginning -------------------------------------------------------------------------------------------------

    def _begin(
        self,
        rows: Sequence[EpisodeRow],
        batch: PromptBatch,
        key: jax.Array,
        num_generations: int,
        max_prompt_length: int,
    ) -> None:
        """Begin all episodes and encode their prompts."""
        words = [int(word) for word in np.asarray(jax.random.key_data(key)).ravel()]

        def begin(row: EpisodeRow) -> None:
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

    def _encode_group(self, rows: Sequence[EpisodeRow], max_prompt_length: int) -> None:
        """Encode the prompt that a group shares. An episode that began with another prompt has failed."""
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
                        "from `random`, from NumPy's global generator or from the seed that reset receives",
                    )
            try:
                ids = self._encoder.encode_prompt(messages, tools)
            except Exception as error:  # a chat template may raise anything
                if first.episode.environment.prompt() is None:
                    raise
                for row in rows:
                    row.episode.stop(StopReason.ERROR, f"the prompt cannot be encoded: {describe_fault(error)}")
            if len(ids) > max_prompt_length:
                for row in rows:
                    row.episode.stop(
                        StopReason.ERROR,
                        f"the prompt with its tools has {len(ids)} tokens, more than generation.max_prompt_length="
                        f"{max_prompt_length}; set generation.max_prompt_length={len(ids)} or more",
                    )
                ids = [self._sampler.pad_id]
        for row in rows:
            row.prompt, row.unread = ids, ids[-1:]

    # --- turns -----------------------------------------------------------------------------------------------------

    def _take_turns(
        self,
        rows: Sequence[EpisodeRow],
        answering: dict[Future[None], EpisodeRow],
        key: jax.Array,
        sampling: SamplingParams,
        num_generations: int,
        max_prompt_length: int,
    ) -> None:
        """Let the policy and the environments take turns until every episode has stopped.

        Args:
            rows: The rows.
            answering: Rows whose environments are at work; empty.
            key: PRNG key of the batch.
            sampling: How tokens are chosen.
            num_generations: G.
            max_prompt_length: Longest prompt.
        """
        mesh, N = self.mesh, len(rows)
        arguments = self._parts.split()
        noise = None
        if not sampling.greedy:
            noise = self._draw_noise(key, num_tokens=self._limits.max_episode_tokens, num_rows=N)
        prefix = self._read_prompts(
            *arguments, *place_rows(mesh, self._prefixes(rows[::num_generations], max_prompt_length))
        )
        turn_tokens = sampling.max_new_tokens
        if not self._limits.waits_for_all:
            sampling = replace(sampling, max_new_tokens=min(turn_tokens, _TOKENS_BETWEEN_ARRIVALS))
        cache = None
        while any(row.is_live for row in rows):
            layout = self._arrange(rows, num_generations)
            inputs, num_slots = self._inputs(layout, sampling.max_new_tokens, turn_tokens)
            if cache is None:
                cache = self._new_cache(*arguments, prefix, num_rows=len(layout), num_slots=num_slots)
            else:
                cache = self._pack(cache, *_moves(layout, num_slots))
            placed = place_rows(mesh, inputs)
            turn, cache = self._take_turn(
                *arguments,
                prefix,
                cache,
                placed,
                noise,
                self._sampler.stop_table,
                stages=self._stages(len(rows) // num_generations, layout, max_prompt_length, sampling.max_new_tokens),
                sampling=sampling,
                pad_id=self._sampler.pad_id,
                eos_ids=self._sampler.eos_ids,
            )
            ended_rows = self._read(layout, inputs, fetch(turn), turn_tokens)
            if self._limits.waits_for_all:
                self._environments.for_each(answer, ended_rows)
            else:
                answering |= {self._environments.submit(answer, row): row for row in ended_rows}
                ended_rows = self._answered(answering, [row for row in layout if row is not None])
            self._reply([row for row in ended_rows if row.is_live])

    def _stages(
        self, num_prompts: int, layout: Sequence[EpisodeRow | None], prompt_slots: int, num_tokens: int
    ) -> tuple[Stage, ...]:
        """Return the stages of a call; only one if rows lie on several devices, which must not exchange rows."""
        planned = plan_stages(num_prompts, len(layout) // num_prompts, prompt_slots, num_tokens)
        stages = [stage._replace(length=0) for stage in planned]
        return tuple(dict.fromkeys(stages)) if row_shards(self.mesh) == 1 else (stages[0],)

    def _answered(self, answering: dict[Future[None], EpisodeRow], live: Sequence[EpisodeRow]) -> list[EpisodeRow]:
        """Return the rows whose tools have answered. Wait for one of them if no row can write."""
        nobody_writes = not any(row.is_writing for row in live)
        futures = wait(answering, None if nobody_writes else 0, FIRST_COMPLETED).done
        for future in futures:
            future.result()
        return sorted((answering.pop(future) for future in futures), key=lambda row: row.number)

    def _prefixes(self, rows: Sequence[EpisodeRow], max_prompt_length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the prompts of the groups without their last tokens, padded on the left, and their lengths."""
        prompts = [row.prompt[:-1] for row in rows]
        width = bucket(max(1, *map(len, prompts)), max_prompt_length)
        return pad_prompts(prompts, width, self._sampler.pad_id)

    def _arrange(self, rows: Sequence[EpisodeRow], num_generations: int) -> list[EpisodeRow | None]:
        """Return the row at each place of the batch. Rows that have ended leave, if a quarter of the places suffices.

        Every number of places needs a compiled program of its own, so only a few numbers are used.
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

    def _inputs(self, layout: Sequence[EpisodeRow | None], num_tokens: int, turn_tokens: int) -> tuple[TurnInputs, int]:
        """Return the inputs of a call, and the number of slots that the cache needs.

        Args:
            layout: The row at each place.
            num_tokens: Tokens that a row writes at most in the call.
            turn_tokens: Longest turn.
        """
        longest = max([1, *(len(row.unread) for row in layout if row is not None and row.is_writing)])
        C = 1
        if longest > 1:  # most chunks are one result; several make a longer one
            usual = self._limits.max_result_tokens + _TOKENS_AROUND_RESULT
            most = self._limits.max_episode_tokens + 1
            C = bucket(longest, usual if longest <= usual < most else most)
        inputs = TurnInputs(
            chunk=np.full((len(layout), C), self._sampler.pad_id, np.int32),
            chunk_lengths=np.ones(len(layout), np.int32),
            filled=np.zeros(len(layout), np.int32),
            positions=np.zeros(len(layout), np.int32),
            limits=np.zeros(len(layout), np.int32),
            written=np.zeros(len(layout), np.int32),
            rows=np.zeros(len(layout), np.int32),
            stop_states=np.zeros(len(layout), np.int32),
        )
        for place, row in enumerate(layout):
            if row is None:
                continue
            inputs.filled[place] = len(row.slots)
            if not row.is_writing:
                continue
            inputs.chunk[place, : len(row.unread)] = row.unread
            inputs.chunk_lengths[place] = len(row.unread)
            inputs.positions[place] = len(row.prompt) + len(row.tokens) - len(row.unread)
            inputs.limits[place] = min(
                num_tokens,
                row.turn_start + turn_tokens - len(row.tokens),
                self._limits.max_episode_tokens - len(row.tokens),
            )
            inputs.written[place] = len(row.tokens)
            inputs.rows[place] = row.number
            inputs.stop_states[place] = row.stop_state
        most = self._limits.max_episode_tokens + C + num_tokens
        return inputs, most if most <= _SMALL_CACHE else bucket(int(inputs.filled.max()) + C + num_tokens, most)

    def _read(
        self, layout: Sequence[EpisodeRow | None], inputs: TurnInputs, turn: Any, turn_tokens: int
    ) -> list[EpisodeRow]:
        """Add the tokens that the policy wrote to their rows, and return the rows whose turns have ended."""
        start, C = int(inputs.filled.max()), inputs.chunk.shape[1]
        ended_rows = []
        for place, row in enumerate(layout):
            if row is None:
                continue
            row.place = place
            row.slots = np.arange(len(row.slots), dtype=np.int32)
            if not row.is_writing:
                continue
            length = int(turn.lengths[place])
            tokens = turn.tokens[place, :length].tolist()
            row.slots = np.concatenate(
                [row.slots, start + np.arange(len(row.unread)), start + C + np.arange(length - 1)]
            ).astype(np.int32)
            row.add(tokens, sampled=True, logps=turn.logps[place, :length].tolist())
            row.unread = tokens[-1:]
            row.stop_state = 0 if turn.stop_state is None else int(turn.stop_state[place])
            if turn.ended[place]:
                ended_rows.append(row)
            elif len(row.tokens) == self._limits.max_episode_tokens:
                row.cut_reason = StopReason.MAX_EPISODE_TOKENS
                ended_rows.append(row)
            elif len(row.tokens) == row.turn_start + turn_tokens:
                row.cut_reason = StopReason.MAX_TURN_TOKENS
                ended_rows.append(row)
        self._end_turns(ended_rows)
        return ended_rows

    def _end_turns(self, rows: Sequence[EpisodeRow]) -> None:
        """Decode the turns that have ended."""
        texts = self._sampler.decode([row.tokens[row.turn_start :] for row in rows])
        for row, text in zip(rows, texts, strict=True):
            row.text, row.is_writing = text, False

    def _reply(self, rows: Sequence[EpisodeRow]) -> None:
        """Add the replies of tools and environments to the rows whose episodes continue."""
        continuing = []
        for row in rows:
            limit = self._limits.max_turns or row.episode.max_turns
            if row.episode.num_turns >= limit:
                row.episode.stop(StopReason.MAX_TURNS)
            else:
                continuing.append(row)
        replies = self._encoder.encode_replies(
            [_last_replies(row.episode) for row in continuing], [row.tokens[-1] for row in continuing]
        )
        for row, ids in zip(continuing, replies, strict=True):
            if len(row.tokens) + len(ids) >= self._limits.max_episode_tokens:
                row.episode.stop(StopReason.MAX_EPISODE_TOKENS)
            else:
                row.add(ids, sampled=False)
                row.unread = row.unread + ids
                row.turn_start, row.stop_state, row.is_writing = len(row.tokens), 0, True

    # --- the result ------------------------------------------------------------------------------------------------

    def _collect(
        self, rows: Sequence[EpisodeRow], results: Sequence[EpisodeResult], max_prompt_length: int
    ) -> Completions:
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


def answer(row: EpisodeRow) -> None:
    """Let the environment answer a turn of the policy."""
    if row.cut_reason is None:
        row.episode.write(row.text)
    else:
        row.episode.cut(row.text, row.cut_reason)


def _last_replies(episode: Episode) -> list[Message]:
    """Return the messages after the policy's last turn."""
    last = max(place for place, message in enumerate(episode.messages) if message["role"] == "assistant")
    return episode.messages[last + 1 :] or [{"role": "user", "content": ""}]


def _moves(layout: Sequence[EpisodeRow | None], num_slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each row of the next cache, its row and slots in the current cache."""
    row_n = np.zeros(len(layout), np.int32)
    slot_nS = np.zeros((len(layout), num_slots), np.int32)
    for place, row in enumerate(layout):
        if row is not None:
            row_n[place] = row.place
            slot_nS[place, : len(row.slots)] = row.slots
    return row_n, slot_nS
