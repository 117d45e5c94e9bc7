"""The compiled loop of the sampler: prefill, then one token of every row at a time until all rows have ended.

Rows that have ended leave the batch at a few points of the loop (`compaction.py`). The alternative is continuous
batching, in which waiting rows take their places. It suits a server, where new rows keep arriving, but here every row
of a step is known at the start. If a decode step of n rows costs a + b·n, compaction costs about a·T + b·(tokens
sampled). A batch of S < N places that is refilled needs at least (tokens sampled) / S steps and then drains. It pays b
equally often and a more often. In addition, the keys and values of its rows lie at different slots, each written by a
scatter, and its prompts are read in pieces. It would save only memory, as a smaller `training.batch_size` also does.

Axes: B prompts, G completions of each, N = B G rows, n places of a stage, P slots of a prompt, T of a completion, V
words.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Int

from agent_tunix.planning.cache_plan import Stage
from agent_tunix.policy.network.decoder import Prefix, grow_cache
from agent_tunix.sampling.compaction import (
    Arrangement,
    arrange,
    collect_rows,
    goes_on,
    has_row,
    live_rows,
    move_rows,
    prompts_of,
)
from agent_tunix.sampling.token_choice import SampledTokens, SamplingParams, TokenRules, uniforms


class _Carry(NamedTuple):
    t: Int[Array, ""]
    token: Int[Array, " n"]
    cache: Any
    sampled: SampledTokens


def generate(
    graphdef: Any,
    state: Any,
    prompt_BP: Int[Array, "B P"],
    length_B: Int[Array, " B"],
    key: jax.Array,
    stop_table: Int[Array, "S V"] | None = None,
    *,
    num_generations: int,
    stages: Sequence[Stage],
    sampling: SamplingParams,
    pad_id: int,
    eos_ids: tuple[int, ...],
) -> SampledTokens:
    """Sample completions of N rows.

    Args:
        graphdef: Graph of the decoder.
        state: Weights of the decoder.
        prompt_BP: Ids, padded on the left.
        length_B: Tokens of each prompt.
        key: PRNG key of the call; not read if sampling is greedy.
        stop_table: Table of `make_stop_table`; None without stop strings.
        num_generations: G.
        stages: Stages from `planning/cache_plan.py`. They change the amount of work, not the samples.
        sampling: How tokens are chosen.
        pad_id: Padding id. It is never sampled, unless it is also an end-of-sequence id.
        eos_ids: Ids that end a row.
    """
    model: Any = nnx.merge(graphdef, state)
    B, _ = prompt_BP.shape
    G, T = num_generations, sampling.max_new_tokens
    N = B * G
    rules = TokenRules(sampling, pad_id, eos_ids, stop_table)
    # Drawn in advance for all tokens, because otherwise every stage would compile its own drawing code and run it at
    # every token.
    noise_TN2 = None if sampling.greedy else jax.vmap(lambda t: uniforms(key, t, N))(jnp.arange(T))

    def sample(
        t: Any, logits_nV: jax.Array, row_n: jax.Array, sampled: SampledTokens
    ) -> tuple[jax.Array, SampledTokens]:
        noise_n2 = None if noise_TN2 is None else noise_TN2[t].at[row_n].get(mode="clip")
        return rules.sample(t, logits_nV, noise_n2, sampled.ended, sampled)

    def run(carry: _Carry, prefix: Prefix, arrangement: Arrangement | None, number: int) -> _Carry:
        """Run the loop of a stage until all rows have ended, a smaller stage fits the rest, or the cache is full."""
        length = stages[number].length
        smaller = next((stage for stage in stages[number + 1 :] if stage.size < stages[number].size), None)
        row_n = jnp.arange(N) if arrangement is None else arrangement.row
        start_n = length_B.at[row_n // G].get(mode="clip")

        def body(carry: _Carry) -> _Carry:
            t, token_n, cache, sampled = carry
            # Every live row has filled the slots up to that of this token. The results of ended rows are not used.
            filled_S = jnp.arange(length) <= t
            logits_n1V, cache = model(
                token_n[:, None], (start_n + t)[:, None], cache, filled_S[None, None], prefix=prefix
            )
            token_n, sampled = sample(t + 1, logits_n1V[:, 0], row_n, sampled)
            return _Carry(t + 1, token_n, cache, sampled)

        def has_more(carry: _Carry) -> jax.Array:
            return (carry.t < min(T - 1, length)) & goes_on(carry.sampled.ended, B, arrangement, smaller)

        with jax.named_scope("decode"):
            return jax.lax.while_loop(has_more, body, carry)

    with jax.named_scope("prefill"):
        last_BD, prefix = model.read_prefix(prompt_BP, length_B)
        logits_NV = jnp.repeat(model.project(last_BD), G, axis=0)
    empty = SampledTokens.empty(N, T, pad_id, None if stop_table is None else jnp.zeros(N, jnp.int32))
    token_N, sampled = sample(jnp.int32(0), logits_NV, jnp.arange(N), empty)
    cache = model.init_cache(N, stages[0].length, model.dtype, prefix=prefix)
    carry = run(_Carry(jnp.int32(0), token_N, cache, sampled), prefix, None, 0)
    sampled, arrangement, slots = carry.sampled, None, prefix
    for number, stage in enumerate(stages[1:], 1):
        if stage.size == stages[number - 1].size:
            carry = carry._replace(cache=grow_cache(carry.cache, stage.length))
        else:
            before, arrangement = arrangement, arrange(live_rows(carry.sampled.ended, B, arrangement), stage)
            carry = move_rows(carry, before, arrangement)
            ended = carry.sampled.ended | ~has_row(arrangement)
            carry = carry._replace(sampled=carry.sampled._replace(ended=ended))
            slots = prompts_of(prefix, arrangement)
        carry = run(carry, slots, arrangement, number)
        sampled = carry.sampled if arrangement is None else collect_rows(sampled, carry.sampled, arrangement)
    return sampled
