"""The objectives of `losses` as Tunix's policy loss.

The one place where the model is called for an update. Log-probabilities come from Tunix's own helper, at the sampling
temperature; all that follows is ours, so that what is logged as the loss is what is differentiated.
"""

from typing import Any

import flax.struct
import jax
from flax import nnx
from tunix.rl import algo_core, common
from tunix.rl.grpo import grpo_learner

from agent_tunix.training.losses import LossBatch, aggregate, policy_objective


@flax.struct.dataclass(frozen=True)
class WeighedExample(grpo_learner.TrainExample):  # type: ignore[misc]
    """A micro-batch as Tunix knows it, with what each token of a completion counts for.

    Attributes:
        weights: [n] `completion_weights` over the whole batch, times the micro-batches of an update: Tunix takes the
            mean of their gradients.
    """

    weights: jax.Array | None = None


def policy_loss(
    model: nnx.Module, train_example: WeighedExample, algo_config: Any, pad_id: int, eos_id: int, **_: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """What Tunix's trainer differentiates.

    Returns:
        The loss, and the statistics of `policy_objective` with `entropy`, the tokens' entropies in nats aggregated as
        their losses are.
    """
    assert train_example.weights is not None
    graphdef, state = nnx.split(model)
    logps, logits = common.compute_per_token_logps(
        graphdef,
        state,
        prompt_tokens=train_example.prompt_ids,
        completion_tokens=train_example.completion_ids,
        pad_id=pad_id,
        eos_id=eos_id,
        stop_gradient=False,
        return_logits=True,
        temperature=algo_config.temperature,
    )
    batch = LossBatch(
        logps=logps,
        old_logps=train_example.old_per_token_logps,
        reference_logps=train_example.ref_per_token_logps,
        advantages=train_example.advantages,
        mask=train_example.completion_mask,
        weights=train_example.weights,
    )
    loss, statistics = policy_objective(batch, algo_config.objective)
    entropies = algo_core.compute_entropy_from_logits(jax.lax.stop_gradient(logits))
    return loss, {**statistics, "entropy": aggregate(entropies, batch.mask, batch.weights)}
