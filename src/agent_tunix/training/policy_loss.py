"""The objectives of `losses` as Tunix's policy loss.

Tunix differentiates and applies; log-probabilities (`logps.py`) and all that follows are ours, so that what is logged
as the loss is what is differentiated.
"""

from typing import Any

import flax.struct
import jax
from flax import nnx
from tunix.rl.grpo import grpo_learner

from agent_tunix.policy.decoder import Decoder
from agent_tunix.training.logps import completion_statistics
from agent_tunix.training.losses import LossBatch, aggregate, policy_objective


@flax.struct.dataclass(frozen=True)
class WeighedExample(grpo_learner.TrainExample):  # type: ignore[misc]
    """A micro-batch: b prompts, each once, and n = b × G completions.

    Attributes:
        prompt_lengths: [b] tokens of each prompt.
        weights: [n] `completion_weights` over the whole batch, times the micro-batches of an update: Tunix takes the
            mean of their gradients.
    """

    prompt_lengths: jax.Array | None = None
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
    assert train_example.prompt_lengths is not None
    assert isinstance(model, Decoder)
    with jax.named_scope("log_probabilities"):
        tokens = completion_statistics(
            model,
            train_example.prompt_ids,
            train_example.prompt_lengths,
            train_example.completion_ids,
            temperature=algo_config.temperature,
        )
    batch = LossBatch(
        logps=tokens.logps,
        old_logps=train_example.old_per_token_logps,
        reference_logps=train_example.ref_per_token_logps,
        advantages=train_example.advantages,
        mask=train_example.completion_mask,
        weights=train_example.weights,
    )
    with jax.named_scope("loss"):
        loss, statistics = policy_objective(batch, algo_config.objective)
        return loss, {**statistics, "entropy": aggregate(tokens.entropies, batch.mask, batch.weights)}
