"""The sampler: prompts in, completions out, in one compiled call.

A Tunix rollout engine of our own, because the vanilla one (Tunix 0.1.7) draws the same noise at every step, cuts the
end-of-sequence token from what is trained, and prefills each of a prompt's G copies. Here

- a prompt is prefilled once, and its G completions attend to its keys and values without copies of their own;
- every call takes its own key;
- the end-of-sequence token belongs to the completion;
- the padding token is never sampled.

Shapes: B prompts, G completions each, P prompt slots, T completion slots, V words.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from tunix.rl.rollout import base_rollout

from agent_tunix.policy.cache_plan import Stage, plan_stages
from agent_tunix.policy.mesh import even_count, fetch, place_rows, row_shards
from agent_tunix.policy.programs import Call, Programs
from agent_tunix.policy.tokenizer import Tokenizer
from agent_tunix.policy.variables import Parts
from agent_tunix.training.decode_loop import compiled_generate
from agent_tunix.training.logps import bucket, logps_under
from agent_tunix.training.sampling import Sampling


@dataclass(frozen=True)
class Completions:
    """What was sampled, as NumPy arrays of N = B × G rows, the completions of a prompt side by side.

    Attributes:
        prompt_tokens: [N, P], padded on the left.
        prompt_lengths: [N], tokens of each prompt. Which slots are padding follows from it alone, since the padding id
            may stand in a prompt: where a tokenizer has none of its own, it is the end-of-sequence id.
        tokens: [N, T], padded on the right, the end-of-sequence token included.
        lengths: [N], tokens that count.
        ended: [N], whether the row ended by itself.
        texts: N texts without special tokens.
        logps: [N, T] float32, the log-probability of each token under the model that sampled it, 0 at padding. The
            distribution is that of the training loss: the model's at the sampling temperature, over all words, before
            top-k and top-p; at temperature 1 where sampling is greedy.
    """

    prompt_tokens: np.ndarray
    prompt_lengths: np.ndarray
    tokens: np.ndarray
    lengths: np.ndarray
    ended: np.ndarray
    texts: list[str]
    logps: np.ndarray

    @property
    def mask(self) -> np.ndarray:
        """[N, T], True at tokens that count."""
        mask: np.ndarray = np.arange(self.tokens.shape[1]) < self.lengths[:, None]
        return mask


def join_completions(parts: Sequence[Completions], rows: Sequence[tuple[int, int]]) -> Completions:
    """Some completions of several samplings, all of the same P and T.

    Args:
        parts: The samplings.
        rows: (which of them, which of its rows), in the order wanted.
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
    )


class Rollout(base_rollout.BaseRollout):  # type: ignore[misc]
    """Samples from the policy that is being trained, sharing its weights."""

    def __init__(self, rollout_actor: nnx.Module, tokenizer: Any, mesh: jax.sharding.Mesh, rollout_config: Any) -> None:
        """Take the model as it is; Tunix calls this with its own adapter around our tokenizer.

        Where compiled programs are kept, `programs` is replaced by those of the run.
        """
        self._model = rollout_actor
        self._mesh = mesh
        self.programs = Programs()
        self._tokenizer: Tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        self._temperature: float = rollout_config.temperature
        self._eos_ids: tuple[int, ...] = tuple(rollout_config.eos_tokens or self._tokenizer.eos_ids)

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        key: jax.Array,
        sampling: Sampling,
        *,
        num_generations: int,
        max_prompt_length: int,
    ) -> Completions:
        """Sample `num_generations` completions of each prompt.

        Args:
            prompts: Token ids of B prompts, each at most `max_prompt_length` long.
            key: A PRNG key; the same key, weights and prompts give the same completions.
            sampling: How tokens are chosen.
            num_generations: G.
            max_prompt_length: P.
        """
        N = len(prompts) * num_generations
        prompt_BP, length_B = self._pad(prompts, num_generations, max_prompt_length)
        sampled = fetch(self.programs.run(self._generation(prompt_BP, length_B, key, sampling, num_generations)))
        tokens_NT, logps_NT, lengths_N, ended_N = (array[:N] for array in sampled)
        return Completions(
            prompt_tokens=np.repeat(prompt_BP, num_generations, axis=0)[:N],
            prompt_lengths=np.repeat(length_B, num_generations)[:N],
            tokens=tokens_NT,
            lengths=lengths_N,
            ended=ended_N,
            texts=self._tokenizer.decode_batch([row[:n] for row, n in zip(tokens_NT, lengths_N, strict=True)]),
            logps=logps_NT,
        )

    def call(
        self,
        prompts: Sequence[Sequence[int]],
        key: jax.Array,
        sampling: Sampling,
        *,
        num_generations: int,
        max_prompt_length: int,
    ) -> Call:
        """What `sample` runs with these arguments, for who asks `programs` about it or has it ready."""
        return self._generation(*self._pad(prompts, num_generations, max_prompt_length), key, sampling, num_generations)

    def _pad(
        self, prompts: Sequence[Sequence[int]], num_generations: int, max_prompt_length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """[B, P] ids, padded on the left, and [B] lengths."""
        # More of the last one, so that no device has to compute the rows of the others.
        missing = even_count(self._mesh, len(prompts), num_generations) - len(prompts)
        prompts = [*prompts, *[prompts[-1]] * missing]
        prompt_BP = np.full((len(prompts), max_prompt_length), self.pad_id(), np.int32)
        for row, ids in zip(prompt_BP, prompts, strict=True):
            row[max_prompt_length - len(ids) :] = ids
        return prompt_BP, np.array([len(ids) for ids in prompts], np.int32)

    def _generation(
        self, prompt_BP: np.ndarray, length_B: np.ndarray, key: jax.Array, sampling: Sampling, num_generations: int
    ) -> Call:
        """What samples: [N, T] tokens and log-probabilities, [N] lengths and whether they ended."""
        width = bucket(int(length_B.max()), prompt_BP.shape[1])
        return Call(
            "generate",
            compiled_generate(self._parts.module.config.num_layers),
            (*self._parts.split(), *place_rows(self._mesh, (prompt_BP[:, -width:], length_B)), key),
            {
                "num_generations": num_generations,
                "stages": self._stages(len(prompt_BP), num_generations, width, sampling.max_new_tokens),
                "sampling": sampling,
                "pad_id": self.pad_id(),
                "eos_ids": self._eos_ids,
            },
            shapes=(len(prompt_BP), width),
            num_iterations=sampling.max_new_tokens,
        )

    @functools.cached_property
    def _parts(self) -> Parts:
        return Parts(self._model)

    def _stages(self, num_prompts: int, num_generations: int, width: int, num_tokens: int) -> tuple[Stage, ...]:
        """Rows that lie on several devices stay there: gathering them would send the cache from one to another."""
        if row_shards(self._mesh) > 1:
            return (Stage(num_prompts, num_generations, num_tokens),)
        return plan_stages(num_prompts, num_generations, width, num_tokens)

    def generate(
        self, prompts: list[str], rollout_config: base_rollout.RolloutConfig, **kwargs: Any
    ) -> base_rollout.RolloutOutput:
        """Tunix's own interface: one completion of each prompt text, seeded by `rollout_config.seed`."""
        out = self.sample(
            [self._tokenizer.encode(text) for text in prompts],
            rollout_config.seed,
            Sampling(
                max_new_tokens=rollout_config.max_tokens_to_generate,
                temperature=rollout_config.temperature,
                top_k=rollout_config.top_k,
                top_p=1.0 if rollout_config.top_p is None else rollout_config.top_p,
                greedy=rollout_config.top_p is None,
            ),
            num_generations=1,
            max_prompt_length=rollout_config.max_prompt_length,
        )
        return base_rollout.RolloutOutput(
            text=out.texts,
            logits=[],
            tokens=[row[:n] for row, n in zip(out.tokens, out.lengths, strict=True)],
            left_padded_prompt_tokens=out.prompt_tokens,
            logprobs=[row[:n] for row, n in zip(out.logps, out.lengths, strict=True)],
        )

    def get_per_token_logps(self, prompt_tokens: jax.Array, completion_tokens: jax.Array) -> jax.Array:
        """[N, T] log-probabilities at the sampling temperature; every prompt is read, since Tunix knows no groups."""
        # Padding is what stands before the first other token; within a prompt its id is a token.
        lengths = prompt_tokens.shape[1] - jnp.argmax(prompt_tokens != self.pad_id(), axis=1)
        return logps_under(self._model, prompt_tokens, lengths, completion_tokens, self._temperature)

    def update_params(self, params: Any, filter_types: tuple[Any, ...] | None = None) -> None:
        """Take new weights; the trainer's are shared, so that this is needed only when they are not."""
        nnx.update(self._model, params)

    @property
    def tokenizer(self) -> Tokenizer:
        """The policy's."""
        return self._tokenizer

    def pad_id(self) -> int:
        """The padding id."""
        return self._tokenizer.pad_id()

    def eos_id(self) -> int:
        """The first end-of-sequence id."""
        return self._eos_ids[0]

    def model(self) -> nnx.Module:
        """The model sampled from."""
        return self._model
