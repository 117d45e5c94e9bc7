"""One step of a supervised start: cross-entropy on the tokens of the targets.

    loss = Σ −log π(token | prompt, tokens before) / number of target tokens in the batch

The denominator is that of the whole batch, whatever the micro-batches: a token counts the same wherever it stands. The
trainer takes the mean of its micro-batches' gradients, so the sum of each is divided by the batch's tokens a
micro-batch.
"""

import time
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from tunix.rl import rl_cluster as rl_cluster_lib

from agent_tunix.config.checks import micro_batch_size
from agent_tunix.config.schema import Config
from agent_tunix.errors import DataError
from agent_tunix.policy import compat, sharing
from agent_tunix.policy.decoder import Decoder
from agent_tunix.policy.mesh import fetch, place_rows
from agent_tunix.training.learner import GrpoLearner, PromptBatch
from agent_tunix.training.logps import completion_statistics
from agent_tunix.training.profiling import phase
from agent_tunix.training.rollout import Rollout
from agent_tunix.training.targets import make_targets
from agent_tunix.training.update_metrics import describe_norms, up_to_failure


@flax.struct.dataclass(frozen=True)
class TargetExample:
    """A micro-batch of n rows.

    Attributes:
        prompt_ids: [n, P], padded on the left.
        prompt_lengths: [n], tokens of each prompt.
        target_ids: [n, T], padded on the right.
        mask: [n, T], whether a token is learned.
        weight: [n] what one of its tokens counts for.
    """

    prompt_ids: jax.Array
    prompt_lengths: jax.Array
    target_ids: jax.Array
    mask: jax.Array
    weight: jax.Array


@dataclass(frozen=True)
class SupervisedResult:
    """What one step did.

    Attributes:
        loss: Mean negative log-probability of the batch's target tokens, in nats, before the update.
        token_accuracy: Share of them that were the likeliest token.
        num_tokens: How many there were.
        left_out: Why, for each row that had no target that fits.
        grad_norm: Of the update, before clipping.
        norms: How far the update moved the weights, as `describe_norms` has it.
        finite: Whether the update was finite; one that was not is not applied.
        updates_applied: Optimiser updates that changed the weights.
        seconds: Wall time of the step.
    """

    loss: float
    token_accuracy: float
    num_tokens: int
    left_out: tuple[str, ...]
    grad_norm: float
    norms: dict[str, float]
    finite: bool
    updates_applied: int
    seconds: float


class SupervisedTeacher:
    """Teaches the policy of a learner by targets, through the learner's own trainer and optimiser.

    Args:
        learner: Its trainer takes another loss from now on.
        config: The run.
    """

    def __init__(self, learner: GrpoLearner, config: Config) -> None:
        self._config = config
        self._cluster = learner.rl_cluster
        self._rollout: Rollout = self._cluster.rollout
        self._trainer = self._cluster.actor_trainer
        self._trainer.with_loss_fn(_loss, has_aux=True)
        self._trainer.with_gen_model_input_fn(lambda x: {"example": x})
        mesh = self._cluster.r2m[rl_cluster_lib.Role.ACTOR]
        sharing.update_trained_only(self._trainer, mesh, self._rollout.programs, "update_supervised")

    def run_step(self, step: int, batch: PromptBatch) -> SupervisedResult:
        """One update with the targets of a batch.

        Raises:
            DataError: Not one row has a target that fits.
        """
        started = time.perf_counter()
        targets = make_targets(
            batch,
            self._rollout.tokenizer,
            self._config,
            pad_id=self._rollout.pad_id(),
            eos_id=self._rollout.eos_id(),
        )
        num_tokens = int(targets.mask.sum())
        if not num_tokens:
            raise DataError(
                f"step {step}: no row of the batch has a target that fits; the first: {targets.left_out[0]}",
                code="batch_without_target",
            )
        size = micro_batch_size(self._config)
        num_rows = len(targets.tokens)
        weight = (num_rows // size) / num_tokens
        begun: list[dict[str, Any]] = []
        mesh = self._cluster.r2m[rl_cluster_lib.Role.ACTOR]
        with compat.entered(mesh), phase("update"):
            train_step, _ = self._trainer.jit_train_and_eval_step(cache_nnx_graph=True)
            for start in range(0, num_rows, size):
                rows = slice(start, start + size)
                arrays = {
                    "prompt_ids": targets.prompt_tokens[rows],
                    "prompt_lengths": targets.prompt_lengths[rows],
                    "target_ids": targets.tokens[rows],
                    "mask": targets.mask[rows],
                    "weight": np.full(size, weight, np.float32),
                }
                healthy = begun[-1]["healthy"] if begun else None
                _, aux, _ = train_step(TargetExample(**place_rows(mesh, arrays)), healthy)
                begun.append(aux)
            records = up_to_failure(fetch(begun))
            finite = bool(records[-1]["finite"])
            if not finite:
                compat.reset_accumulation(self._trainer.optimizer)
        return SupervisedResult(
            loss=float(np.sum([record["nll"] for record in records], dtype=np.float64) / num_tokens),
            token_accuracy=float(sum(int(record["num_right"]) for record in records) / num_tokens),
            num_tokens=num_tokens,
            left_out=tuple(targets.left_out),
            grad_norm=float(records[-1]["grad_norm"]),
            norms=describe_norms(records[-1:]),
            finite=finite,
            updates_applied=int(finite),
            seconds=time.perf_counter() - started,
        )


def _loss(model: nnx.Module, example: TargetExample) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The weighed sum of −log π over a micro-batch's target tokens; `nll`, their plain sum, and `num_right`."""
    assert isinstance(model, Decoder)
    found = completion_statistics(
        model, example.prompt_ids, example.prompt_lengths, example.target_ids, temperature=1.0, likeliest=True
    )
    assert found.likeliest is not None
    nll_nT = jnp.where(example.mask, -found.logps, 0.0)
    right_nT = (found.likeliest == example.target_ids) & example.mask
    return (nll_nT * example.weight[:, None]).sum(), {"nll": nll_nT.sum(), "num_right": right_nT.sum()}
