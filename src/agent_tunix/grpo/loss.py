"""The loss of a micro-batch: log-probabilities under the policy, then the objective of `losses`."""

from collections.abc import Callable
from dataclasses import field
from typing import Any

import flax.struct
import jax

from agent_tunix.config.checks import correction_bounds
from agent_tunix.config.schema import Config, GrpoConfig
from agent_tunix.grpo.logps import TokenStatistics, completion_statistics
from agent_tunix.grpo.losses import LossBatch, ObjectiveSettings, aggregate, policy_objective
from agent_tunix.grpo.teacher import TeacherLogps
from agent_tunix.policy.network.decoder import Decoder


@flax.struct.dataclass(frozen=True)
class LossInputs:
    """A micro-batch of b prompts, each once, and n completions, those of a prompt side by side.

    Attributes:
        prompts: [b, P] ids, padded on the left.
        prompt_lengths: [b] tokens of each prompt.
        tokens: [n, T] ids of the completions, padded on the right.
        mask: [n, T], True at tokens that take part in the loss.
        advantages: [n], or [n, T] where turns have their own.
        weights: [n] `completion_weights` of the whole batch, times the number of micro-batches of an update, because
            the trainer takes the mean of their gradients.
        settings: Settings of the objective. Its numbers are arrays, so that one program serves all values.
        reference_logps: [n, T] under the reference policy; None without a KL penalty.
        old_logps: [n, T] under the policy that sampled; None if the policy that trains is that policy.
        sampled_logps: [n, T] as the sampler computed them; the same as `old_logps` if that is not None.
        teacher: Log-probabilities under the teacher; None without one.
        taught: [n], True at completions that the teacher judges; None if it judges all.
        observation_weights: [n, T] weights of the tokens that tools and environments wrote, times the number of
            micro-batches; None without `grpo.observation_nll`.
        num_parts: Number of parts in which the completions go through the model, one after the other.
    """

    prompts: jax.Array
    prompt_lengths: jax.Array
    tokens: jax.Array
    mask: jax.Array
    advantages: jax.Array
    weights: jax.Array
    settings: ObjectiveSettings
    reference_logps: jax.Array | None = None
    old_logps: jax.Array | None = None
    sampled_logps: jax.Array | None = None
    teacher: TeacherLogps | None = None
    observation_weights: jax.Array | None = None
    taught: jax.Array | None = None
    num_parts: int = field(default=1, metadata={"pytree_node": False})


def make_policy_loss(config: Config) -> Callable[[Any, LossInputs], tuple[jax.Array, dict[str, jax.Array]]]:
    """Return the loss function of a run.

    It returns the loss and the statistics of `policy_objective`. It adds `entropy`, the entropies of the tokens in
    nats, aggregated like the losses, and the load of experts if the model has experts.
    """
    temperature = config.generation.temperature

    def policy_loss(policy: Decoder, example: LossInputs) -> tuple[jax.Array, dict[str, jax.Array]]:
        teacher, observed = example.teacher, example.observation_weights
        with jax.named_scope("log_probabilities"):
            token_statistics = _in_parts(
                lambda prompts, lengths, tokens, mask, words: completion_statistics(
                    policy,
                    prompts,
                    lengths,
                    tokens,
                    temperature=temperature,
                    mask_nT=mask,
                    entropy_gradient=example.settings.entropy_coefficient is not None,
                    top=words,
                    counted=mask if policy.config.num_experts else None,
                ),
                example.num_parts,
                example.prompts,
                example.prompt_lengths,
                example.tokens,
                example.mask if observed is None else example.mask | (observed > 0),
                None if teacher is None else teacher.words,
            )
        batch = LossBatch(
            logps=token_statistics.logps,
            old_logps=example.old_logps,
            reference_logps=example.reference_logps,
            advantages=example.advantages,
            mask=example.mask,
            weights=example.weights,
            entropies=token_statistics.entropies,
            sampled_logps=example.sampled_logps,
            teacher_logps=None if teacher is None else teacher.logps,
            top_logps=token_statistics.top_logps,
            observation_weights=observed,
            taught=example.taught,
        )
        with jax.named_scope("loss"):
            loss, statistics = policy_objective(batch, example.settings)
            load = {} if token_statistics.load is None else token_statistics.load.describe()
            return loss, {
                **statistics,
                **load,
                "entropy": aggregate(token_statistics.entropies, batch.mask, batch.weights),
            }

    return policy_loss


def _in_parts(compute: Callable[..., TokenStatistics], num_parts: int, *arrays: jax.Array | None) -> TokenStatistics:
    """Return the statistics of n rows, computed for one part of the rows after the other.

    The backward pass computes each part again, so that only one exists at a time.
    """
    if num_parts == 1:
        return compute(*arrays)

    # A part takes every `num_parts`th row, because devices hold rows that lie side by side, and all shall have work.
    def split(array: jax.Array) -> jax.Array:
        return array.reshape(-1, num_parts, *array.shape[1:]).swapaxes(0, 1)

    def join(array: jax.Array) -> jax.Array:
        return array.swapaxes(0, 1).reshape(-1, *array.shape[2:])

    recomputed = jax.checkpoint(lambda part: compute(*part))
    parts: TokenStatistics = jax.lax.map(recomputed, jax.tree.map(split, arrays))
    load = jax.tree.map(lambda sums: sums.sum(axis=0), parts.load)
    joined: TokenStatistics = jax.tree.map(join, parts._replace(load=None))
    return joined._replace(load=load)


def objective_settings(grpo: GrpoConfig, sampled_entropy: float = 0.0) -> ObjectiveSettings:
    """Return the objective that a configuration selects.

    Args:
        grpo: The configuration.
        sampled_entropy: Ĥ, the mean of −log π over the sampled tokens, which a bonus with a target follows.
    """
    coefficient, (floor, cap) = grpo.entropy_coefficient, correction_bounds(grpo)
    if grpo.entropy_target is not None:
        coefficient *= max(0.0, 1.0 - sampled_entropy / grpo.entropy_target)
    return ObjectiveSettings(
        loss=grpo.loss,
        epsilon=float(grpo.epsilon),
        epsilon_high=float(grpo.epsilon if grpo.epsilon_high is None else grpo.epsilon_high),
        epsilon_c=None if grpo.epsilon_c is None else float(grpo.epsilon_c),
        beta=float(grpo.beta),
        kl_estimator=grpo.kl_estimator,
        tau_positive=float(grpo.tau_positive),
        tau_negative=float(grpo.tau_negative),
        entropy_coefficient=float(coefficient) if grpo.entropy_coefficient else None,
        top_entropy_share=float(grpo.top_entropy_share) if grpo.top_entropy_share < 1.0 else None,
        off_policy_threshold=None if grpo.off_policy_threshold is None else float(grpo.off_policy_threshold),
        positive_nll=float(grpo.positive_nll) if grpo.positive_nll else None,
        sampler_correction=None if grpo.sampler_correction in ("none", "auto") else grpo.sampler_correction,
        sampler_correction_cap=float(cap),
        sampler_correction_floor=None if floor is None else float(floor),
        teacher_coefficient=float(grpo.teacher_coefficient),
        observation_nll=float(grpo.observation_nll) if grpo.observation_nll else None,
    )
