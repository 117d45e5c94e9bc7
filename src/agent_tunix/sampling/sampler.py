"""The sampler: prompts in, completions out, in one compiled call.

- A prompt is prefilled once. Its G completions attend to one copy of its keys and values.
- Every call takes a key of its own.
- The end-of-sequence token belongs to the completion.
- The padding token is never sampled.

Shapes: B prompts, G completions each, P prompt slots, T completion slots, V words.
"""

from collections.abc import Hashable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np
from flax import nnx

from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.environments import EpisodeResult
from agent_tunix.planning.cache_plan import Stage, plan_stages
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.mesh import even_count, fetch, place_rows, row_shards
from agent_tunix.policy.variables import Parts
from agent_tunix.sampling.decode_loop import generate
from agent_tunix.sampling.forks import Forks, join_forks
from agent_tunix.sampling.lengths import bucket
from agent_tunix.sampling.stop_strings import cut_at_stop, make_stop_table
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.startup.compiled_function import CompiledFunction

_STATICS = ("num_generations", "stages", "sampling", "pad_id", "eos_ids")


@dataclass(frozen=True)
class Completions:
    """Sampled completions as NumPy arrays of N = B × G rows, the completions of a prompt side by side.

    Attributes:
        prompt_tokens: [N, P], padded on the left.
        prompt_lengths: [N], tokens of each prompt. Only these tell which slots are padding, because the padding id may
            occur in a prompt: a tokenizer without a padding id uses the end-of-sequence id instead.
        tokens: [N, T], padded on the right, the end-of-sequence token included.
        lengths: [N], tokens after the prompt, those of tools and environments included.
        ended: [N], True if the row ended with an end-of-sequence token or a stop string; of episodes, if the policy
            or the environment ended them, not a limit or an error.
        texts: N texts without special tokens.
        logps: [N, T] float32, the log-probability of each token under the model that sampled it; 0 at padding, and at
            tokens that the model did not write; NaN if an engine did not tell it. The training loss uses the same
            distribution: the model's at the sampling temperature (1 if sampling is greedy), over all words, before
            top-k and top-p.
        sampled: [N, T], True at tokens that the model wrote; None if it wrote all of them.
        episodes: The episode of each row; None for completions of one turn.
        forks: Further rows of tokens of the episodes, which train with them. None for episodes that are always one row,
            so that the completions of a prompt share its tokens.
        versions: [N], the step after which the policy had the weights that sampled, 0 for the first weights; None if
            the policy itself sampled.
    """

    prompt_tokens: np.ndarray
    prompt_lengths: np.ndarray
    tokens: np.ndarray
    lengths: np.ndarray
    ended: np.ndarray
    texts: list[str]
    logps: np.ndarray
    sampled: np.ndarray | None = None
    episodes: Sequence[EpisodeResult] | None = None
    forks: Forks | None = None
    versions: np.ndarray | None = None

    @property
    def mask(self) -> np.ndarray:
        """[N, T], True at tokens that the model wrote."""
        mask: np.ndarray = np.arange(self.tokens.shape[1]) < self.lengths[:, None]
        return mask if self.sampled is None else mask & self.sampled

    @property
    def observed(self) -> np.ndarray:
        """[N, T], True at tokens after the prompt that tools and environments wrote."""
        observed: np.ndarray = ~self.mask & (np.arange(self.tokens.shape[1]) < self.lengths[:, None])
        return observed

    @property
    def num_sampled(self) -> np.ndarray:
        """[N], tokens that the model wrote, those of forks included."""
        counts: np.ndarray = self.mask.sum(axis=1)
        return counts if self.forks is None else self.forks.add_to(counts, self.forks.mask)

    @property
    def logp_sums(self) -> np.ndarray:
        """[N], sums of the log-probabilities, those of forks included."""
        sums: np.ndarray = self.logps.sum(axis=1)
        return sums if self.forks is None else self.forks.add_to(sums, self.forks.logps)


def join_completions(parts: Sequence[Completions], rows: Sequence[tuple[int, int]]) -> Completions:
    """Select completions from several samplings with equal P and T.

    Args:
        parts: The samplings.
        rows: Pairs (index of the sampling, row in it), in the order wanted.
    """

    def take(name: str) -> np.ndarray:
        return np.stack([getattr(parts[part], name)[row] for part, row in rows])

    return Completions(
        prompt_tokens=take("prompt_tokens"),
        prompt_lengths=take("prompt_lengths"),
        tokens=take("tokens"),
        lengths=take("lengths"),
        ended=take("ended"),
        texts=[parts[part].texts[row] for part, row in rows],
        logps=take("logps"),
        sampled=None if parts[0].sampled is None else take("sampled"),
        episodes=None if parts[0].episodes is None else [_episode(parts[part], row) for part, row in rows],
        forks=join_forks([part.forks for part in parts], rows),
        versions=None if parts[0].versions is None else take("versions"),
    )


def _episode(completions: Completions, row: int) -> EpisodeResult:
    assert completions.episodes is not None
    return completions.episodes[row]


def pad_prompts(prompts: Sequence[Sequence[int]], width: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Return [B, P] ids, padded on the left, and [B] lengths."""
    prompt_BP = np.full((len(prompts), width), pad_id, np.int32)
    for row, ids in zip(prompt_BP, prompts, strict=True):
        row[width - len(ids) :] = ids
    return prompt_BP, np.array([len(ids) for ids in prompts], np.int32)


class BatchSampler(Protocol):
    """A sampler of completions or episodes."""

    def sample_batch(
        self,
        batch: PromptBatch,
        key: jax.Array,
        sampling: SamplingParams,
        *,
        num_generations: int,
        max_prompt_length: int,
    ) -> Completions:
        """Sample `num_generations` completions of each prompt of a batch."""
        ...


class Sampler:
    """Sampler of a policy. It shares the policy's weights, so it always samples from their current values.

    Args:
        policy: Decoder to sample from.
        tokenizer: Its tokenizer.
        mesh: Mesh of the policy.
        eos_tokens: Ids that end a completion; by default the tokenizer's.
        stop_strings: Strings that also end a completion. Their tokens stay, but the text ends before them.
    """

    def __init__(
        self,
        policy: nnx.Module,
        tokenizer: Tokenizer,
        mesh: jax.sharding.Mesh,
        eos_tokens: Sequence[int] | None = None,
        stop_strings: Sequence[str] = (),
    ) -> None:
        self.policy = policy
        self.tokenizer = tokenizer
        self.mesh = mesh
        self.pad_id = tokenizer.pad_id()
        self.eos_ids: tuple[int, ...] = tuple(eos_tokens or tokenizer.eos_ids)
        self.stop_table = make_stop_table(tokenizer.token_texts(), stop_strings) if stop_strings else None
        self.stop_strings = tuple(stop_strings)
        self._parts = Parts(policy)
        self._generate = CompiledFunction(generate, static_argnames=_STATICS)

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        key: jax.Array,
        sampling: SamplingParams,
        *,
        num_generations: int,
        max_prompt_length: int,
    ) -> Completions:
        """Sample `num_generations` completions of each prompt.

        Args:
            prompts: Ids of B prompts, each at most `max_prompt_length` long.
            key: PRNG key. Equal keys, weights and prompts give equal completions.
            sampling: How tokens are chosen.
            num_generations: G.
            max_prompt_length: P.
        """
        N = len(prompts) * num_generations
        prompt_BP, length_B = self._pad(prompts, num_generations, max_prompt_length)
        args, statics = self._arguments(prompt_BP, length_B, key, sampling, num_generations)
        sampled = fetch(self._generate(*args, **statics))
        tokens_NT, logps_NT, lengths_N, ended_N = (array[:N] for array in sampled[:4])
        return Completions(
            prompt_tokens=np.repeat(prompt_BP, num_generations, axis=0)[:N],
            prompt_lengths=np.repeat(length_B, num_generations)[:N],
            tokens=tokens_NT,
            lengths=lengths_N,
            ended=ended_N,
            texts=self.decode([row[:n] for row, n in zip(tokens_NT, lengths_N, strict=True)]),
            logps=logps_NT,
        )

    def decode(self, ids_of_rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each row, up to its first stop string and without special tokens."""
        return [cut_at_stop(text, self.stop_strings) for text in self.tokenizer.decode_batch(ids_of_rows)]

    def sample_batch(
        self,
        batch: PromptBatch,
        key: jax.Array,
        sampling: SamplingParams,
        *,
        num_generations: int,
        max_prompt_length: int,
    ) -> Completions:
        """Sample `num_generations` completions of each prompt of a batch; see `sample`."""
        return self.sample(
            batch.token_ids, key, sampling, num_generations=num_generations, max_prompt_length=max_prompt_length
        )

    def compile_ahead(
        self,
        executor: Executor,
        prompts: Sequence[Sequence[int]],
        key: jax.Array,
        sampling: SamplingParams,
        *,
        num_generations: int,
        max_prompt_length: int,
    ) -> None:
        """Begin to compile the program that `sample` runs with the same arguments."""
        prompt_BP, length_B = self._pad(prompts, num_generations, max_prompt_length)
        args, statics = self._arguments(prompt_BP, length_B, key, sampling, num_generations)
        self._generate.compile_ahead(executor, *args, **statics)

    def _pad(
        self, prompts: Sequence[Sequence[int]], num_generations: int, max_prompt_length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return [B, P] ids, padded on the left, and [B] lengths."""
        # The last prompt is repeated until the devices can divide the rows evenly.
        missing = even_count(self.mesh, len(prompts), num_generations) - len(prompts)
        prompts = [*prompts, *[prompts[-1]] * missing]
        return pad_prompts(prompts, max_prompt_length, self.pad_id)

    def _arguments(
        self,
        prompt_BP: np.ndarray,
        length_B: np.ndarray,
        key: jax.Array,
        sampling: SamplingParams,
        num_generations: int,
    ) -> tuple[tuple[Any, ...], dict[str, Hashable]]:
        """Return the arguments of `generate`, and its static arguments."""
        width = bucket(int(length_B.max()), prompt_BP.shape[1])
        return (
            *self._parts.split(),
            *place_rows(self.mesh, (prompt_BP[:, -width:], length_B)),
            key,
            self.stop_table,
        ), {
            "num_generations": num_generations,
            "stages": self._stages(len(prompt_BP), num_generations, width, sampling.max_new_tokens),
            "sampling": sampling,
            "pad_id": self.pad_id,
            "eos_ids": self.eos_ids,
        }

    def _stages(self, num_prompts: int, num_generations: int, width: int, num_tokens: int) -> tuple[Stage, ...]:
        """Return the stages of the decode loop; one if rows lie on several devices, which must not exchange rows."""
        if row_shards(self.mesh) > 1:
            return (Stage(num_prompts, num_generations, num_tokens),)
        return plan_stages(num_prompts, num_generations, width, num_tokens)
