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
from jaxtyping import Array, Bool, Float, Int
from tunix.rl.rollout import base_rollout

from agent_tunix.policy.mesh import place_rows
from agent_tunix.policy.tokenizer import Tokenizer
from agent_tunix.training.logps import bucket, fills, logps_under


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen.

    Attributes:
        max_new_tokens: T.
        temperature: Above 0; ignored when greedy.
        top_k: Only the k likeliest tokens; None for all.
        top_p: The smallest set of tokens with this probability; 1 for all.
        greedy: Always the likeliest token.
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    greedy: bool = False


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
        """Take the model as it is; Tunix calls this with its own adapter around our tokenizer."""
        self._model = rollout_actor
        self._mesh = mesh
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
        prompt_BP, length_B = self._pad(prompts, max_prompt_length)
        generate = self._generation(prompt_BP, length_B, key, sampling, num_generations)
        tokens_NT, lengths_N, ended_N, logps_NT = jax.device_get(generate())
        return Completions(
            prompt_tokens=np.repeat(prompt_BP, num_generations, axis=0),
            prompt_lengths=np.repeat(length_B, num_generations),
            tokens=tokens_NT,
            lengths=lengths_N,
            ended=ended_N,
            texts=self._tokenizer.decode_batch([row[:n] for row, n in zip(tokens_NT, lengths_N, strict=True)]),
            logps=logps_NT,
        )

    def compile(
        self,
        prompts: Sequence[Sequence[int]],
        key: jax.Array,
        sampling: Sampling,
        *,
        num_generations: int,
        max_prompt_length: int,
    ) -> None:
        """Compile what `sample` runs with these arguments."""
        generate = self._generation(*self._pad(prompts, max_prompt_length), key, sampling, num_generations)
        _generate.lower(*generate.args, **generate.keywords).compile()

    def _pad(self, prompts: Sequence[Sequence[int]], max_prompt_length: int) -> tuple[np.ndarray, np.ndarray]:
        """[B, P] ids, padded on the left, and [B] lengths."""
        prompt_BP = np.full((len(prompts), max_prompt_length), self.pad_id(), np.int32)
        for row, ids in zip(prompt_BP, prompts, strict=True):
            row[max_prompt_length - len(ids) :] = ids
        return prompt_BP, np.array([len(ids) for ids in prompts], np.int32)

    def _generation(
        self, prompt_BP: np.ndarray, length_B: np.ndarray, key: jax.Array, sampling: Sampling, num_generations: int
    ) -> "functools.partial[Any]":
        """The compiled call: [N, T] tokens, [N] lengths, [N] whether they ended, and [N, T] log-probabilities."""
        longest = bucket(int(length_B.max()), prompt_BP.shape[1])
        return functools.partial(
            _generate,
            *nnx.split(self._model),
            *place_rows(self._mesh, (prompt_BP[:, -longest:], length_B)),
            key,
            num_generations=num_generations,
            sampling=sampling,
            pad_id=self.pad_id(),
            eos_ids=self._eos_ids,
        )

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


@functools.partial(jax.jit, static_argnames=("num_generations", "sampling", "pad_id", "eos_ids"))
def _generate(
    graphdef: Any,
    state: Any,
    prompt_BP: Int[Array, "B P"],
    length_B: Int[Array, " B"],
    key: jax.Array,
    *,
    num_generations: int,
    sampling: Sampling,
    pad_id: int,
    eos_ids: tuple[int, ...],
) -> tuple[Int[Array, "N T"], Int[Array, " N"], Bool[Array, " N"], Float[Array, "N T"]]:
    """Prefill, then a loop that ends when every row has ended."""
    model: Any = nnx.merge(graphdef, state)
    B = prompt_BP.shape[0]
    T = sampling.max_new_tokens
    N = B * num_generations
    # Padding and end-of-sequence are one id in some tokenizers; then it must stay possible to end.
    forbidden = None if pad_id in eos_ids else pad_id

    filled_BP = fills(length_B, prompt_BP.shape[1])
    last_BD, prefix = model.read_prefix(prompt_BP, filled_BP)
    logits_NV = jnp.repeat(model.project(last_BD), num_generations, axis=0)
    next_position_N = jnp.repeat(length_B, num_generations)
    cache = model.init_cache(N, T, model.dtype)
    filled_NT = jnp.zeros((N, T), jnp.bool_)
    eos = jnp.array(eos_ids)

    def choose(logits_NV: Float[Array, "N V"], t: Int[Array, ""]) -> Int[Array, " N"]:
        logits_NV = logits_NV.astype(jnp.float32)
        if forbidden is not None:
            logits_NV = logits_NV.at[:, forbidden].set(-jnp.inf)
        if sampling.greedy:
            return jnp.argmax(logits_NV, axis=-1)
        logits_NV = _truncate(logits_NV / sampling.temperature, sampling.top_k, sampling.top_p)
        return jax.random.categorical(jax.random.fold_in(key, t), logits_NV)

    def log_probability(logits_NV: Float[Array, "N V"], token_N: Int[Array, " N"]) -> Float[Array, " N"]:
        logits_NV = logits_NV.astype(jnp.float32) / (1.0 if sampling.greedy else sampling.temperature)
        chosen_N = jnp.take_along_axis(logits_NV, token_N[:, None], axis=-1)[:, 0]
        return chosen_N - jax.nn.logsumexp(logits_NV, axis=-1)

    def record(t: Any, logits_NV: Any, tokens_NT: Any, logps_NT: Any, lengths_N: Any, done_N: Any) -> Any:
        token_N = jnp.where(done_N, pad_id, choose(logits_NV, t)).astype(jnp.int32)
        logp_N = jnp.where(done_N, 0.0, log_probability(logits_NV, token_N))
        tokens_NT = jax.lax.dynamic_update_slice(tokens_NT, token_N[:, None], (0, t))
        logps_NT = jax.lax.dynamic_update_slice(logps_NT, logp_N[:, None], (0, t))
        return token_N, tokens_NT, logps_NT, lengths_N + ~done_N, done_N | jnp.isin(token_N, eos)

    def body(carry: Any) -> Any:
        t, cache, filled_NT, token_N, tokens_NT, logps_NT, lengths_N, done_N = carry
        filled_NT = jax.lax.dynamic_update_slice(filled_NT, (t < lengths_N)[:, None], (0, t))
        logits_N1V, cache = model(
            token_N[:, None], (next_position_N + t)[:, None], cache, filled_NT[:, None, :], prefix=prefix
        )
        return t + 1, cache, filled_NT, *record(t + 1, logits_N1V[:, 0], tokens_NT, logps_NT, lengths_N, done_N)

    def goes_on(carry: Any) -> jax.Array:
        t, done_N = carry[0], carry[-1]
        return jnp.asarray((t < T - 1) & ~done_N.all())

    empty = jnp.full((N, T), pad_id, jnp.int32), jnp.zeros((N, T), jnp.float32)
    first = record(jnp.int32(0), logits_NV, *empty, jnp.zeros(N, jnp.int32), jnp.zeros(N, jnp.bool_))
    carry = jax.lax.while_loop(goes_on, body, (jnp.int32(0), cache, filled_NT, *first))
    *_, tokens_NT, logps_NT, lengths_N, done_N = carry
    return tokens_NT, lengths_N, done_N, logps_NT


def _truncate(logits_NV: Float[Array, "N V"], top_k: int | None, top_p: float) -> Float[Array, "N V"]:
    """Minus infinity outside the k likeliest tokens and outside the nucleus of probability `top_p`."""
    V = logits_NV.shape[-1]
    k = V if top_k is None else min(top_k, V)
    if k == V and top_p >= 1.0:
        return logits_NV
    sorted_Nk, _ = jax.lax.top_k(logits_NV, k)
    probs_Nk = jax.nn.softmax(sorted_Nk, axis=-1)
    # A token stays while the probability before it is under top_p, so the likeliest always stays.
    stays_Nk = jnp.cumsum(probs_Nk, axis=-1) - probs_Nk < top_p
    threshold_N1 = jnp.min(jnp.where(stays_Nk, sorted_Nk, jnp.inf), axis=-1, keepdims=True)
    return jnp.where(logits_NV < threshold_N1, -jnp.inf, logits_NV)
