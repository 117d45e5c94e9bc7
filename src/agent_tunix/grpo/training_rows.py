"""Rows of tokens that a step trains: its completions, and the forks of episodes that are not one row.

Rows of an episode share its advantage, and `completion_weights` counts their tokens as those of one completion. Without
forks, and if the completions of a prompt share its tokens, the model reads each prompt once. Otherwise every row has a
prompt of its own.

A sampled token whose log-probability is not finite, because an engine did not tell it, takes no part in the loss, and
does not count in the weights.

The number of forks differs from step to step. An update has as many micro-batches as without them. Each has one of a
few numbers of rows, the last of which may be empty, so that few compiled programs serve all steps. Micro-batches with
more rows than usual go through the model in parts, and need little more memory.
"""

import math
from dataclasses import dataclass

import jax
import numpy as np

from agent_tunix.config.checks import micro_batch_size
from agent_tunix.config.schema import Config
from agent_tunix.grpo.losses import completion_weights
from agent_tunix.policy.mesh import row_shards
from agent_tunix.sampling.forks import Forks
from agent_tunix.sampling.sampler import Completions


@dataclass(frozen=True)
class TrainingRows:
    """R rows of tokens, those that share a prompt side by side.

    Attributes:
        owners: [R], the number of the completion that each row belongs to; 0 for empty rows.
        prompt_tokens: [R / g, P], padded on the left.
        prompt_lengths: [R / g], tokens of each prompt.
        tokens: [R, T], padded on the right.
        lengths: [R], tokens after the prompt.
        logps: [R, T] under the policy that sampled; 0 at tokens that it did not write.
        mask: [R, T], True at the tokens that take part in the loss.
        observed: [R, T], True at the tokens of which `grpo.observation_nll` takes the likelihood; None without it.
        group: g, the number of rows that share a prompt.
        size: Rows of a micro-batch.
        num_parts: Number of parts in which a micro-batch goes through the model.
    """

    owners: np.ndarray
    prompt_tokens: np.ndarray
    prompt_lengths: np.ndarray
    tokens: np.ndarray
    lengths: np.ndarray
    logps: np.ndarray
    mask: np.ndarray
    group: int
    size: int
    num_parts: int = 1
    observed: np.ndarray | None = None

    @property
    def lengths_of_completions(self) -> np.ndarray:
        """[N], tokens of all rows of each completion that take part in the loss."""
        counts: np.ndarray = np.bincount(self.owners, self.mask.sum(axis=1))
        return counts

    @property
    def observation_weights(self) -> np.ndarray | None:
        """[R, T], weights of the observed tokens, 1 in sum, all completions with such a token alike; None without."""
        if self.observed is None:
            return None
        lengths = np.bincount(self.owners, self.observed.sum(axis=1))
        weights = completion_weights(lengths, "sequence-mean-token-mean", self.tokens.shape[1])
        return np.asarray(weights[self.owners, None] * self.observed)


def training_rows(completions: Completions, config: Config, mesh: jax.sharding.Mesh) -> TrainingRows:
    """Return the rows of the completions of a step."""
    N, G = len(completions.texts), config.grpo.num_generations
    size = micro_batch_size(config) * G
    forks, mask, observes = completions.forks, loss_mask(completions, config), config.grpo.observation_nll > 0
    firsts = np.arange(0, N, G) if forks is None else _shared_prompts(completions, forks, G)
    if firsts is not None:
        return TrainingRows(
            owners=np.arange(N),
            prompt_tokens=completions.prompt_tokens[firsts],
            prompt_lengths=completions.prompt_lengths[firsts],
            tokens=completions.tokens,
            lengths=completions.lengths,
            logps=completions.logps,
            mask=mask,
            group=G,
            size=size,
            observed=completions.observed if observes else None,
        )
    assert forks is not None
    num_batches, F = -(-N // size), len(forks.owners)
    size, num_parts = divide_rows(-(-(N + F) // num_batches), size, row_shards(mesh))
    num_empty = num_batches * size - N - F
    forks_mask = forks.mask & np.isfinite(forks.logps)
    if config.grpo.mask_truncated:
        forks_mask = forks_mask & completions.ended[forks.owners, None]

    def join(own: np.ndarray, of_forks: np.ndarray) -> np.ndarray:
        return np.concatenate([own, of_forks, np.zeros((num_empty, *own.shape[1:]), own.dtype)])

    return TrainingRows(
        owners=join(np.arange(N), forks.owners),
        prompt_tokens=join(completions.prompt_tokens, forks.prompt_tokens),
        # At least one token: a row that attends to nothing is not a number.
        prompt_lengths=np.maximum(join(completions.prompt_lengths, forks.prompt_lengths), 1),
        tokens=join(completions.tokens, forks.tokens),
        lengths=join(completions.lengths, forks.lengths),
        logps=join(completions.logps, forks.logps),
        mask=join(mask, forks_mask),
        group=1,
        size=size,
        num_parts=num_parts,
        observed=join(completions.observed, forks.observed) if observes else None,
    )


def loss_mask(completions: Completions, config: Config) -> np.ndarray:
    """Return [N, T], True at the tokens of completions that take part in the loss; those of forks are left out."""
    mask: np.ndarray = completions.mask & np.isfinite(completions.logps)
    return mask & completions.ended[:, None] if config.grpo.mask_truncated else mask


def divide_rows(num_rows: int, usual: int, shards: int) -> tuple[int, int]:
    """Return the number of rows of a micro-batch with forks, and the number of parts, none larger than usual.

    Args:
        num_rows: Rows that it must hold, at least `usual`.
        usual: Rows of a micro-batch without forks.
        shards: Parts that a mesh divides rows into. They divide each part, if they divide `usual`.
    """
    # Four numbers between one power of two and the next.
    octave = 2 ** max(0, math.floor(math.log2(num_rows / usual)))
    step = max(1, usual * octave // 4)
    size = -(-num_rows // step) * step
    num_parts = -(-size // usual)
    each = num_parts * (shards if usual % shards == 0 else 1)
    return -(-size // each) * each, num_parts


def _shared_prompts(completions: Completions, forks: Forks, G: int) -> np.ndarray | None:
    """Return the row of each group whose prompt all of its rows share; None if a group has several, or there are forks.

    Rows without tokens train with any prompt.
    """
    if len(forks.owners):
        return None
    firsts = []
    for start in range(0, len(completions.texts), G):
        rows = start + np.flatnonzero(completions.lengths[start : start + G])
        first = rows[0] if len(rows) else start
        if (completions.prompt_lengths[rows] != completions.prompt_lengths[first]).any():
            return None
        if (completions.prompt_tokens[rows] != completions.prompt_tokens[first]).any():
            return None
        firsts.append(first)
    return np.array(firsts)
