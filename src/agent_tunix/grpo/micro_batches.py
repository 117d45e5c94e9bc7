"""Completions of a step on the device, in micro-batches.

Arrays are cut to the longest prompt and completion of the step, rounded up to one of a few lengths.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from agent_tunix.config.checks import micro_batch_size
from agent_tunix.config.schema import Config
from agent_tunix.grpo.loss import LossInputs, objective_settings
from agent_tunix.grpo.losses import ObjectiveSettings, completion_weights
from agent_tunix.grpo.teacher import TeacherLogps
from agent_tunix.policy.mesh import place_numbers, place_rows
from agent_tunix.sampling.lengths import bucket
from agent_tunix.sampling.sampler import Completions

# Takes prompts [b, P], their lengths [b] and completions [n, T]; returns reference log-probabilities [n, T].
ReferencePass = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
# Takes the same; returns log-probabilities under the teacher.
TeacherPass = Callable[[jax.Array, jax.Array, jax.Array], TeacherLogps]


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch on the device.

    Attributes:
        rows: Its rows among the completions of the step.
        prompts: [b, P] ids, padded on the left.
        prompt_lengths: [b] tokens of each prompt.
        tokens: [n, T] ids of the completions, padded on the right.
        reference_logps: [n, T] under the reference policy; None without a KL penalty.
        teacher: Log-probabilities under the teacher; None without one.
    """

    rows: slice
    prompts: jax.Array
    prompt_lengths: jax.Array
    tokens: jax.Array
    reference_logps: jax.Array | None
    teacher: TeacherLogps | None = None


def place_micro_batches(
    completions: Completions,
    config: Config,
    mesh: jax.sharding.Mesh,
    reference_pass: ReferencePass | None,
    teacher_pass: TeacherPass | None = None,
) -> list[MicroBatch]:
    """Bring completions to the device and dispatch the passes of reference policy and teacher over them."""
    P = bucket(int(completions.prompt_lengths.max()), completions.prompt_tokens.shape[1])
    # At least 1, because all episodes of a step may fail before their first turn.
    T = bucket(max(1, int(completions.lengths.max())), completions.tokens.shape[1])
    G = config.grpo.num_generations
    size = micro_batch_size(config) * G
    placed = []
    for start in range(0, len(completions.texts), size):
        rows = slice(start, start + size)
        prompts = slice(rows.start, rows.stop, G)
        arrays = (
            place_rows(mesh, completions.prompt_tokens[prompts, -P:]),
            place_rows(mesh, completions.prompt_lengths[prompts]),
            place_rows(mesh, completions.tokens[rows, :T]),
        )
        reference_logps = None if reference_pass is None else reference_pass(*arrays)
        placed.append(
            MicroBatch(rows, *arrays, reference_logps, None if teacher_pass is None else teacher_pass(*arrays))
        )
    return placed


def loss_mask(completions: Completions, config: Config) -> np.ndarray:
    """Return [N, T], True at the tokens that take part in the loss."""
    mask = completions.mask
    return mask & completions.ended[:, None] if config.grpo.mask_truncated else mask


def step_settings(completions: Completions, config: Config) -> ObjectiveSettings:
    """Return the objective of a step, whose entropy bonus may depend on the entropy of the completions."""
    mask = loss_mask(completions, config)
    sampled_entropy = float(-np.mean(completions.logps, where=mask)) if mask.any() else 0.0
    return objective_settings(config.grpo, sampled_entropy)


def make_loss_inputs(
    micro_batches: Sequence[MicroBatch],
    completions: Completions,
    advantages: np.ndarray,
    config: Config,
    mesh: jax.sharding.Mesh,
) -> tuple[list[LossInputs], float]:
    """Return the inputs of the loss for each micro-batch, and the sum of the weights of the batch's tokens.

    Args:
        micro_batches: Micro-batches of the completions.
        completions: The completions of a step.
        advantages: [N].
        config: Configuration of the run.
        mesh: Mesh of the policy.
    """
    mask = loss_mask(completions, config)
    grpo = config.grpo
    weights = completion_weights(mask.sum(axis=1), grpo.loss_agg_mode, mask.shape[1], grpo.num_generations)
    settings = place_numbers(mesh, step_settings(completions, config))
    several_passes = grpo.num_iterations > 1

    def make(part: MicroBatch) -> LossInputs:
        rows, T = part.rows, part.tokens.shape[1]
        placed = place_rows(
            mesh,
            {
                "mask": mask[rows, :T],
                "advantages": advantages[rows],
                "weights": (weights[rows] * len(micro_batches)).astype(np.float32),
                "sampled_logps": completions.logps[rows, :T],
            },
        )
        return LossInputs(
            prompts=part.prompts,
            prompt_lengths=part.prompt_lengths,
            tokens=part.tokens,
            settings=settings,
            reference_logps=part.reference_logps,
            teacher=part.teacher,
            # Only the first pass trains the policy that sampled.
            old_logps=placed["sampled_logps"] if several_passes else None,
            **placed,
        )

    return [make(part) for part in micro_batches], float((weights * mask.sum(axis=1)).sum())
