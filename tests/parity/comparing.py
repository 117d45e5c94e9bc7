"""What the decoder, the sampler and the export give, and what transformers and PEFT make of the same files."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from tests.parity.families import VOCAB_SIZE
from tests.policy.padding import Padded, pad

from agent_tunix.config.schema import ModelConfig
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.sampling.sampler import Sampler
from agent_tunix.sampling.token_choice import SamplingParams

# Longer and shorter than the window of sliding layers.
LENGTHS = (24, 3, 17)
NEW_TOKENS = 24
RANK, ALPHA = 3, 6.0


@functools.cache
def tokenizer() -> Tokenizer:
    """The embedded model's."""
    return Tokenizer(EMBEDDED_MODEL)


def texts() -> list[np.ndarray]:
    """Token ids of several lengths, no special ones among them."""
    rng = np.random.default_rng(0)
    return [rng.integers(10, VOCAB_SIZE, length) for length in LENGTHS]


def load_ours(directory: Path, dtype: str = "float32", **settings: Any) -> Decoder:
    """The policy of a directory."""
    return load_policy(directory, ModelConfig(dtype=dtype, **settings), make_mesh([1, 1]))


def with_adapter(directory: Path) -> Decoder:
    """The policy with an adapter that does something."""
    policy = load_ours(directory, lora_rank=RANK, lora_alpha=ALPHA)
    rng = np.random.default_rng(0)
    state = nnx.state(policy, nnx.LoRAParam)
    nnx.update(policy, jax.tree.map(lambda leaf: jnp.asarray(0.2 * rng.normal(size=leaf.shape), leaf.dtype), state))
    return policy


@nnx.jit
def _call(model: Any, *arguments: Any) -> Any:
    return model(*arguments)


def our_logits(model: Decoder, batch: Padded) -> np.ndarray:
    """[B, T, V] in one pass, as in training."""
    logits, _ = _call(model, *map(jnp.asarray, (batch.tokens, batch.positions)), None, jnp.asarray(batch.mask))
    return np.asarray(logits, np.float64)


def our_cached_logits(model: Decoder, batch: Padded, prompt: int) -> np.ndarray:
    """[B, T, V] by a pass over the first `prompt` slots and one for each slot after them."""
    tokens, _, positions, mask = batch
    B, T = tokens.shape
    cache = model.init_cache(B, T, model.dtype)
    found = []
    for now in (slice(0, prompt), *(slice(t, t + 1) for t in range(prompt, T))):
        arguments = (jnp.asarray(tokens[:, now]), jnp.asarray(positions[:, now]), cache, jnp.asarray(mask[:, now]))
        logits, cache = _call(model, *arguments)
        found.append(np.asarray(logits, np.float64))
    return np.concatenate(found, axis=1)


def their_logits(model: Any, batch: Padded) -> np.ndarray:
    """[B, T, V] of transformers or PEFT."""
    with torch.no_grad():
        out = model(
            input_ids=torch.tensor(batch.tokens),
            attention_mask=torch.tensor(batch.filled, dtype=torch.long),
            position_ids=torch.tensor(batch.positions),
        )
    return np.asarray(out.logits.float().numpy(), np.float64)


def logit_error(ours: Decoder, theirs: Any, *, through_cache: bool) -> float:
    """The largest difference of a logit over both sides of padding, in one pass and through the cache."""
    worst = 0.0
    for side in ("left", "right"):
        batch = pad(texts(), side, tokenizer().pad_id())
        reference = their_logits(theirs, batch)
        found = [our_logits(ours, batch)]
        if through_cache:
            found.append(our_cached_logits(ours, batch, prompt=8))
        worst = max(worst, *(float(np.abs(logits - reference)[batch.filled].max()) for logits in found))
    return worst


def our_completions(model: Decoder, eos_ids: list[int]) -> list[list[int]]:
    """Greedy completions by the sampler of training."""
    sampler = Sampler(model, tokenizer(), make_mesh([1, 1]), eos_ids)
    sampling = SamplingParams(max_new_tokens=NEW_TOKENS, greedy=True)
    prompts = [text.tolist() for text in texts()]
    out = sampler.sample(prompts, jax.random.key(0), sampling, num_generations=1, max_prompt_length=max(LENGTHS) + 2)
    return [row[:length].tolist() for row, length in zip(out.tokens, out.lengths, strict=True)]


def their_completions(model: Any) -> list[list[int]]:
    """Greedy completions by transformers, all of the full length."""
    pad_id = tokenizer().pad_id()
    batch = pad(texts(), "left", pad_id)
    with torch.no_grad():
        out = model.generate(
            input_ids=torch.tensor(batch.tokens),
            attention_mask=torch.tensor(batch.filled, dtype=torch.long),
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
            eos_token_id=[VOCAB_SIZE],  # no token
            pad_token_id=pad_id,
            suppress_tokens=[pad_id],
        )
    rows: list[list[int]] = out[:, batch.tokens.shape[1] :].tolist()
    return rows


def greedy_agrees(ours: Decoder, theirs: Any) -> bool:
    """Whether both write the same tokens, where one that comes up in the middle of the first row ends a row."""
    expected = their_completions(theirs)
    eos_id = expected[0][NEW_TOKENS // 2]
    cut = [row[: row.index(eos_id) + 1] if eos_id in row else row for row in expected]
    return our_completions(ours, [eos_id]) == cut
