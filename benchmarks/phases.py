"""Phases of a step that can be called repeatedly."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.grpo.micro_batches import make_loss_inputs
from agent_tunix.grpo.step import GrpoTrainer
from agent_tunix.sampling.sampler import Completions


class Phases(NamedTuple):
    """The phases; each has finished on the device when its call returns.

    Attributes:
        completions: Completions that the other phases read.
        arrays: Prompts [B, P], their lengths [B] and completions [n, T], on the device.
        run: Name → phase: rollout, reference, update.
    """

    completions: Completions
    arrays: tuple[jax.Array, jax.Array, jax.Array]
    run: dict[str, Callable[[], Any]]


def make_phases(trainer: GrpoTrainer, batch: PromptBatch) -> Phases:
    """Return the phases of a trainer; the batch is one micro-batch, and each update changes the weights."""
    reference, group = trainer.reference, trainer.config.grpo.num_generations
    assert reference is not None
    completions = trainer.sample(1, 0, batch)
    micro_batches = trainer.place(completions)
    part = micro_batches[0]
    arrays = part.prompts, part.prompt_lengths, part.tokens
    advantages = np.tile(np.linspace(-1, 1, group, dtype=np.float32), len(batch.prompts))
    inputs, _ = make_loss_inputs(micro_batches, completions, advantages, trainer.config, trainer.sampler.mesh)
    return Phases(
        completions,
        arrays,
        {
            "rollout": lambda: trainer.sample(1, 0, batch),
            "reference": lambda: jax.block_until_ready(reference.logps(*arrays)),
            "update": lambda: jax.block_until_ready(trainer.updater.dispatch(inputs[0])),
        },
    )
