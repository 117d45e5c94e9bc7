"""One step of a supervised start: cross-entropy on the tokens of the targets.

    loss = Σ −log π(token | prompt, tokens before) / number of target tokens in the batch

The denominator is that of the whole batch, so every token counts the same in every micro-batch. The updater takes the
mean of the gradients of M micro-batches, so the sum of each micro-batch is multiplied by M / (number of target tokens
in the batch).
"""

import time
from dataclasses import dataclass

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from agent_tunix.config.checks import micro_batch_size
from agent_tunix.config.schema import Config
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.errors import DataError
from agent_tunix.grpo.logps import completion_statistics
from agent_tunix.grpo.update_metrics import describe_norms
from agent_tunix.grpo.updater import PolicyUpdater
from agent_tunix.policy.mesh import place_rows
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.sampling.sampler import Sampler
from agent_tunix.training.targets import make_targets


@flax.struct.dataclass(frozen=True)
class TargetExample:
    """A micro-batch of n rows."""

    prompt_ids: jax.Array  # [n, P], padded on the left
    prompt_lengths: jax.Array  # [n], number of tokens of each prompt
    target_ids: jax.Array  # [n, T], padded on the right
    mask: jax.Array  # [n, T], True for tokens that are learned
    weight: jax.Array  # [n], weight of each token of a row in the loss


@dataclass(frozen=True)
class SupervisedResult:
    """The result of one step."""

    loss: float  # mean negative log-probability of the batch's target tokens, in nats, before the update
    token_accuracy: float  # share of target tokens that were the likeliest token
    num_tokens: int  # number of target tokens
    left_out: tuple[str, ...]  # for each row without a target that fits, the reason
    grad_norm: float  # norm of the gradient, before clipping
    norms: dict[str, float]  # norms of the update and of the weights, from `describe_norms`
    finite: bool  # True if the update was finite. An update that is not finite is not applied.
    updates_applied: int  # optimizer updates that changed the weights
    seconds: float


class SupervisedTrainer:
    """Trainer of the policy on targets.

    Args:
        config: Configuration of the run.
        sampler: Sampler of the policy. The trainer uses its tokenizer and mesh.
        updater: Updater of the policy. The trainer replaces its loss.
    """

    def __init__(self, config: Config, sampler: Sampler, updater: PolicyUpdater) -> None:
        self._config = config
        self._sampler = sampler
        self._updater = updater
        updater.use_loss(_loss)

    def take_step(self, step: int, batch: PromptBatch) -> SupervisedResult:
        """Update the policy once with the targets of a batch; raise DataError if no row has a target that fits."""
        started = time.perf_counter()
        sampler, size = self._sampler, micro_batch_size(self._config)
        targets = make_targets(batch, sampler.tokenizer, self._config, pad_id=sampler.pad_id, eos_id=sampler.eos_ids[0])
        num_tokens, num_rows = int(targets.mask.sum()), len(targets.tokens)
        if not num_tokens:
            raise DataError(
                f"step {step}: at least one row of the batch must have a usable target, but none has; the first: "
                f"{targets.left_out[0]}",
                code="invalid_row",
            )
        weight = (num_rows // size) / num_tokens
        examples = []
        for start in range(0, num_rows, size):
            rows = slice(start, start + size)
            arrays = {
                "prompt_ids": targets.prompt_tokens[rows],
                "prompt_lengths": targets.prompt_lengths[rows],
                "target_ids": targets.tokens[rows],
                "mask": targets.mask[rows],
                "weight": np.full(size, weight, np.float32),
            }
            examples.append(TargetExample(**place_rows(sampler.mesh, arrays)))
        with jax.profiler.TraceAnnotation("update"):
            records = self._updater.apply(examples)
        finite = bool(records[-1]["finite"])
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


def _loss(policy: Decoder, example: TargetExample) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the weighted sum of −log π over target tokens. The statistics are the plain sum and the correct tokens."""
    statistics = completion_statistics(
        policy,
        example.prompt_ids,
        example.prompt_lengths,
        example.target_ids,
        temperature=1.0,
        mask_nT=example.mask,
        likeliest=True,
    )
    assert statistics.likeliest is not None
    nll_nT = jnp.where(example.mask, -statistics.logps, 0.0)
    right_nT = (statistics.likeliest == example.target_ids) & example.mask
    return (nll_nT * example.weight[:, None]).sum(), {"nll": nll_nT.sum(), "num_right": right_nT.sum()}
