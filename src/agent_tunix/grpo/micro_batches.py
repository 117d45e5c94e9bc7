"""Rows of a step on the device, in micro-batches.

Arrays are cut to the longest prompt and completion of the step, rounded up to one of a few lengths.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from agent_tunix.config.schema import Config
from agent_tunix.grpo.loss import LossInputs, objective_settings
from agent_tunix.grpo.losses import ObjectiveSettings, completion_weights
from agent_tunix.grpo.teacher import TeacherLogps
from agent_tunix.grpo.teacher_prompts import ShownPrompts
from agent_tunix.grpo.training_rows import TrainingRows, training_rows
from agent_tunix.grpo.turn_advantages import row_advantages
from agent_tunix.policy.mesh import place_numbers, place_rows, row_shards
from agent_tunix.sampling.lengths import bucket, bucket_of_any
from agent_tunix.sampling.sampler import Completions

# Takes prompts [b, P], their lengths [b] and completions [n, T]; returns reference log-probabilities [n, T].
ReferencePass = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
# Takes the same; returns log-probabilities under the teacher.
TeacherPass = Callable[[jax.Array, jax.Array, jax.Array], TeacherLogps]

_Logps = TypeVar("_Logps", jax.Array, TeacherLogps)


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch on the device.

    Attributes:
        rows: Its rows among the `TrainingRows` of the step.
        prompts: [b, P] ids, padded on the left.
        prompt_lengths: [b] tokens of each prompt.
        tokens: [n, T] ids of the completions, padded on the right.
        reference_logps: [n, T] under the reference policy; None without a KL penalty.
        teacher: Log-probabilities under the teacher; None without one.
        taught: [n], True at completions that the teacher judges; None if it judges all.
        num_parts: Number of parts in which the rows go through the model.
    """

    rows: slice
    prompts: jax.Array
    prompt_lengths: jax.Array
    tokens: jax.Array
    reference_logps: jax.Array | None
    teacher: TeacherLogps | None = None
    num_parts: int = 1
    taught: np.ndarray | None = None


def place_micro_batches(
    completions: Completions,
    config: Config,
    mesh: jax.sharding.Mesh,
    reference_pass: ReferencePass | None,
    teacher_pass: TeacherPass | None = None,
) -> list[MicroBatch]:
    """Bring the rows of a step to the device and dispatch the passes of reference policy and teacher over them."""
    rows = training_rows(completions, config, mesh)
    # The widths of agents' arrays are the context, of which most rows take a small part.
    fit = bucket if completions.forks is None else bucket_of_any
    P = fit(int(rows.prompt_lengths.max()), rows.prompt_tokens.shape[1])
    # At least 1, because all episodes of a step may fail before their first turn.
    T = fit(max(1, int(rows.lengths.max())), rows.tokens.shape[1])

    def place(part: slice) -> tuple[jax.Array, jax.Array, jax.Array]:
        prompts = slice(part.start // rows.group, part.stop // rows.group)
        return (
            place_rows(mesh, rows.prompt_tokens[prompts, -P:]),
            place_rows(mesh, rows.prompt_lengths[prompts]),
            place_rows(mesh, rows.tokens[part, :T]),
        )

    placed = []
    for start in range(0, len(rows.owners), rows.size):
        part = slice(start, start + rows.size)
        arrays = place(part)
        length = rows.size // rows.num_parts
        inputs = (
            [arrays] if rows.num_parts == 1 else [place(slice(n, n + length)) for n in range(start, part.stop, length)]
        )
        placed.append(
            MicroBatch(
                part,
                *arrays,
                None if reference_pass is None else _joined([reference_pass(*one) for one in inputs]),
                None if teacher_pass is None else _joined([teacher_pass(*one) for one in inputs]),
                rows.num_parts,
            )
        )
    return placed


def judge_shown(
    micro_batches: Sequence[MicroBatch],
    completions: Completions,
    shown: ShownPrompts,
    mesh: jax.sharding.Mesh,
    teacher_pass: TeacherPass,
) -> list[MicroBatch]:
    """Dispatch the teacher's pass over micro-batches without forks, with prompts of its own.

    These may be long, and there may be one for each completion. A pass therefore takes as many rows as hold at most
    twice the pairs of tokens that the policy's own pass has.
    """
    group = len(completions.texts) // len(shown.tokens)

    def judge(part: MicroBatch) -> MicroBatch:
        n, T = part.tokens.shape
        b, P = part.prompts.shape
        num_prompts, width = n // group, shown.tokens.shape[1]
        pairs, usual = num_prompts * width**2 + n * T * (width + T), b * P**2 + n * T * (P + T)
        size = _rows_of_pass(num_prompts, -(-pairs // (2 * usual)), row_shards(mesh))
        first = part.rows.start // group
        starts = range(first, first + num_prompts, size)
        parts = [(slice(start, start + size), slice(start * group, (start + size) * group)) for start in starts]
        logps = [
            teacher_pass(
                place_rows(mesh, shown.tokens[prompts]),
                place_rows(mesh, shown.lengths[prompts]),
                place_rows(mesh, completions.tokens[rows, :T]),
            )
            for prompts, rows in parts
        ]
        return replace(part, teacher=_joined(logps), taught=shown.taught[part.rows])

    return [judge(part) for part in micro_batches]


def _rows_of_pass(num_rows: int, num_parts: int, shards: int) -> int:
    """Return the most rows of one of at least `num_parts` equal passes, which a mesh divides if it divides them all."""
    sizes = (size for size in range(num_rows // min(num_parts, num_rows), 0, -1) if num_rows % size == 0)
    return next((size for size in sizes if num_rows % shards or size % shards == 0), num_rows)


def _joined(parts: Sequence[_Logps]) -> _Logps:
    """Return the results of the passes over the parts of a micro-batch as one."""
    joined: _Logps = parts[0] if len(parts) == 1 else jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *parts)
    return joined


def step_settings(rows: TrainingRows, config: Config) -> ObjectiveSettings:
    """Return the objective of a step, whose entropy bonus may depend on the entropy of the completions.

    Without an observed token their term is 0, as the bonus is above its target, so that nothing trains by it.
    """
    sampled_entropy = float(-np.mean(rows.logps, where=rows.mask)) if rows.mask.any() else 0.0
    settings = objective_settings(config.grpo, sampled_entropy)
    if rows.observed is not None and not rows.observed.any():
        settings = replace(settings, observation_nll=0.0)
    return settings


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
        advantages: [N] of the completions, or [N, K] of their turns.
        config: Configuration of the run.
        mesh: Mesh of the policy.
    """
    rows, grpo = training_rows(completions, config, mesh), config.grpo
    weights = completion_weights(
        rows.lengths_of_completions,
        grpo.loss_agg_mode,
        rows.tokens.shape[1],
        grpo.num_generations,
        grpo.length_exponent,
    )[rows.owners]
    observation_weights = rows.observation_weights
    settings = place_numbers(mesh, step_settings(rows, config))
    of_rows = row_advantages(advantages, rows, completions)
    is_off_policy = grpo.num_iterations > 1 or grpo.replay_groups > 0

    def make(part: MicroBatch) -> LossInputs:
        own, T = part.rows, part.tokens.shape[1]
        arrays = {
            "mask": rows.mask[own, :T],
            "advantages": of_rows[own] if of_rows.ndim == 1 else of_rows[own, :T],
            "weights": (weights[own] * len(micro_batches)).astype(np.float32),
            "sampled_logps": rows.logps[own, :T],
        }
        if part.taught is not None:
            arrays["taught"] = part.taught
        if observation_weights is not None:
            arrays["observation_weights"] = (observation_weights[own, :T] * len(micro_batches)).astype(np.float32)
        placed = place_rows(mesh, arrays)
        return LossInputs(
            prompts=part.prompts,
            prompt_lengths=part.prompt_lengths,
            tokens=part.tokens,
            settings=settings,
            reference_logps=part.reference_logps,
            teacher=part.teacher,
            # Only the first pass trains the policy that sampled, and only rows that are not replayed.
            old_logps=placed["sampled_logps"] if is_off_policy else None,
            num_parts=part.num_parts,
            **placed,
        )

    return [make(part) for part in micro_batches], float((weights * rows.mask.sum(axis=1)).sum())
