"""The phases of a step, each to be called as often as one likes: the functions and compiled programs of a run."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from agent_tunix.config.schema import Config
from agent_tunix.policy import compat
from agent_tunix.training.building import training_sampling
from agent_tunix.grpo.logps import bucket, logps_under
from agent_tunix.grpo.losses import completion_weights
from agent_tunix.grpo.loss import WeighedExample
from agent_tunix.sampling.sampler import Completions


class Phases(NamedTuple):
    """What each phase gives is there when the call returns.

    Attributes:
        completions: What was sampled once, and is read by the other phases.
        arrays: Prompts [B, P], their lengths [B] and completions [n, T], on the device.
        run: Name → phase: rollout, reference, update.
    """

    completions: Completions
    arrays: tuple[jax.Array, jax.Array, jax.Array]
    run: dict[str, Callable[[], Any]]


def make_phases(learner: Any, token_ids: Sequence[Sequence[int]], config: Config) -> Phases:
    """The phases of a learner on some prompts; the batch is one micro-batch, and each update changes the weights."""
    group, longest = config.grpo.num_generations, config.generation.max_prompt_length
    cluster, sampling = learner.rl_cluster, training_sampling(config)
    train_step, _ = cluster.actor_trainer.jit_train_and_eval_step(cache_nnx_graph=True)

    def rollout() -> Completions:
        sampled: Completions = cluster.rollout.sample(
            token_ids, jax.random.key(0), sampling, num_generations=group, max_prompt_length=longest
        )
        return sampled

    def within_mesh(run: Callable[[], Any]) -> Callable[[], Any]:
        def call() -> Any:
            with compat.entered(learner._mesh()):
                return jax.block_until_ready(run())

        return call

    completions = within_mesh(rollout)()
    P = bucket(int(completions.prompt_lengths.max()), longest)
    T = bucket(int(completions.lengths.max()), completions.tokens.shape[1])
    arrays = (
        jnp.asarray(completions.prompt_tokens[::group, -P:]),
        jnp.asarray(completions.prompt_lengths[::group]),
        jnp.asarray(completions.tokens[:, :T]),
    )
    reference_model = cluster.inference_worker.get_model("reference")
    reference = within_mesh(lambda: logps_under(reference_model, *arrays, config.generation.temperature))
    weights = completion_weights(completions.lengths, config.grpo.loss_agg_mode, completions.tokens.shape[1])
    example = WeighedExample(
        prompt_ids=arrays[0],
        prompt_mask=None,
        prompt_lengths=arrays[1],
        completion_ids=arrays[2],
        completion_mask=jnp.asarray(completions.mask[:, :T]),
        advantages=jnp.asarray(np.tile(np.linspace(-1, 1, group, dtype=np.float32), len(token_ids))),
        ref_per_token_logps=reference(),
        old_per_token_logps=None,
        weights=jnp.asarray(weights.astype(np.float32)),
    )
    update = within_mesh(lambda: train_step(example)[:2])
    return Phases(completions, arrays, {"rollout": within_mesh(rollout), "reference": reference, "update": update})
