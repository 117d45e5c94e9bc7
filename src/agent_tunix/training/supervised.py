"""One step of a run that learns from rows: their tokens, the loss of an objective, the update.

An objective, such as the target texts of `sft` or the pairs of `prefer`, reads a batch and gives the loss of a
micro-batch. It is a sum over units (tokens or pairs):

    loss = Σ loss of a unit / number of units in the batch

The denominator is that of the whole batch, so every unit counts the same in every micro-batch. The updater takes the
mean of the gradients of M micro-batches, so the sum of each micro-batch is multiplied by M / (number of units in the
batch).
"""

import abc
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from agent_tunix.config.checks import evaluated_rows, micro_batch_size
from agent_tunix.config.schema import Config
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.data.prompting import Prompts
from agent_tunix.errors import DataError
from agent_tunix.grpo.logps import completion_statistics
from agent_tunix.grpo.update_metrics import describe_norms
from agent_tunix.grpo.updater import PolicyUpdater
from agent_tunix.policy.mesh import fetch, place_rows
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.policy.variables import Parts
from agent_tunix.sampling.sampler import Sampler
from agent_tunix.training.targets import ResponseBatch, make_targets

# Statistics of a loss under `sums`: sums over units, by the last part of the metric's name; `loss` among them.
Statistics = dict[str, dict[str, jax.Array]]


@flax.struct.dataclass(frozen=True)
class ResponseExample:
    """A micro-batch of n rows with k responses each."""

    prompt_ids: jax.Array  # [n, P], padded on the left
    prompt_lengths: jax.Array  # [n], number of tokens of each prompt
    tokens: jax.Array  # [n × k, T], those of a prompt side by side, padded on the right
    mask: jax.Array  # [n × k, T], True for tokens that are learned
    weight: jax.Array  # [n], weight of each unit of a row in the loss
    reference: jax.Array | None = None  # [n × k, T], log-probabilities under the reference policy, if there is one


class Objective(abc.ABC):
    """The subject that a run learns from its rows: how they are read, and the loss.

    Attributes:
        name: First part of the names of its metrics.
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def read(self, batch: PromptBatch) -> ResponseBatch:
        """Return the tokens of a batch. A row that cannot be used has an empty mask."""

    @abc.abstractmethod
    def count(self, mask: np.ndarray) -> int:
        """Return the number of units that train, from the mask of the responses."""

    @abc.abstractmethod
    def loss(self, policy: Decoder, example: ResponseExample) -> tuple[jax.Array, Statistics]:
        """Return the weighted sum of the losses of a micro-batch, and its statistics without weights."""

    def complete(self, example: ResponseExample) -> ResponseExample:
        """Return a micro-batch with the other arrays that the loss needs, beside its tokens."""
        return example


@dataclass(frozen=True)
class SupervisedResult:
    """The result of one step."""

    figures: Mapping[str, float]  # means over the units of the batch, before the update; `loss` among them
    num_tokens: int  # number of tokens that are learned
    left_out: tuple[str, ...]  # for each row that cannot be used, the reason
    grad_norm: float  # norm of the gradient, before clipping
    norms: dict[str, float]  # norms of the update and of the weights, from `describe_norms`
    finite: bool  # True if the update was finite. An update that is not finite is not applied.
    updates_applied: int  # optimizer updates that changed the weights
    seconds: float

    @property
    def loss(self) -> float:
        """Mean loss of a unit before the update."""
        return self.figures["loss"]


class SupervisedTrainer:
    """Trainer of the policy on an objective.

    Args:
        config: Configuration of the run.
        sampler: Sampler of the policy. The trainer uses its mesh.
        updater: Updater of the policy. The trainer replaces its loss.
        objective: The rows' tokens and the loss.
        held_out: Rows of evaluations; None without any.
    """

    def __init__(
        self,
        config: Config,
        sampler: Sampler,
        updater: PolicyUpdater,
        objective: Objective,
        held_out: Prompts | None = None,
    ) -> None:
        self._config = config
        self._mesh = sampler.mesh
        self._updater = updater
        self._objective = objective
        self._held_out = held_out
        self._parts = Parts(updater.policy)
        self._sums = jax.jit(lambda graph, state, example: objective.loss(nnx.merge(graph, state), example)[1]["sums"])
        updater.use_loss(objective.loss)

    def take_step(self, step: int, batch: PromptBatch) -> SupervisedResult:
        """Update the policy once with a batch; raise DataError if none of its rows can be used."""
        started = time.perf_counter()
        responses = self._objective.read(batch)
        count = self._objective.count(responses.mask)
        if not count:
            raise DataError(
                f"step {step}: at least one row of the batch must be usable, but none is; the first: "
                f"{responses.left_out[0]}",
                code="invalid_row",
            )
        examples = list(self._examples(responses, count))
        with jax.profiler.TraceAnnotation("update"):
            records = self._updater.apply(examples)
        finite = bool(records[-1]["finite"])
        return SupervisedResult(
            figures=_means([record["sums"] for record in records], count),
            num_tokens=int(responses.mask.sum()),
            left_out=tuple(responses.left_out),
            grad_norm=float(records[-1]["grad_norm"]),
            norms=describe_norms(records[-1:]),
            finite=finite,
            updates_applied=int(finite),
            seconds=time.perf_counter() - started,
        )

    def evaluate(self) -> dict[str, float | None]:
        """Return the figures of the objective on held-out rows, such as `eval/sft/loss`; None if no row can be used."""
        held_out = self._held_out
        assert held_out is not None
        size, num_rows = micro_batch_size(self._config), min(evaluated_rows(self._config), len(held_out.examples))
        sums: list[dict[str, jax.Array]] = []
        count, num_left_out = 0, 0
        for start in range(0, num_rows, size):
            rows = [*range(start, min(start + size, num_rows))]
            padding = size - len(rows)
            batch = held_out.batch(rows + rows[:1] * padding)
            # A row without columns cannot be used, so it counts nowhere.
            columns = [*batch.columns[: len(rows)], *({} for _ in range(padding))]
            responses = self._objective.read(replace(batch, columns=columns))
            count += self._objective.count(responses.mask)
            num_left_out += len(responses.left_out) - padding
            sums += [self._sums(*self._parts.split(), example) for example in self._examples(responses, 1)]
        fetched = fetch(sums)
        figures: dict[str, float | None] = dict.fromkeys(fetched[0]) if fetched else {}
        figures |= _means(fetched, count) if count else {}
        figures["left_out"] = num_left_out
        return {f"eval/{self._objective.name}/{leaf}": value for leaf, value in figures.items()}

    def _examples(self, responses: ResponseBatch, count: int) -> Iterator[ResponseExample]:
        """Yield the micro-batches of a batch."""
        size, num_rows = micro_batch_size(self._config), len(responses.prompt_tokens)
        weight = np.full(num_rows, (num_rows // size) / count, np.float32)
        arrays = {
            "prompt_ids": responses.prompt_tokens,
            "prompt_lengths": responses.prompt_lengths,
            "tokens": responses.tokens,
            "mask": responses.mask,
            "weight": weight,
        }
        for start in range(0, num_rows, size):
            parts = {}
            for name, array in arrays.items():
                each = len(array) // num_rows
                parts[name] = array[start * each : (start + size) * each]
            yield self._objective.complete(ResponseExample(**place_rows(self._mesh, parts)))


def _means(sums: Sequence[Mapping[str, Any]], count: int) -> dict[str, float]:
    return {leaf: float(np.sum([one[leaf] for one in sums], dtype=np.float64) / count) for leaf in sums[0]}


class TargetObjective(Objective):
    """Cross-entropy on the tokens of target texts. Its units are tokens."""

    name = "sft"

    def __init__(self, config: Config, sampler: Sampler) -> None:
        self._config, self._sampler = config, sampler

    def read(self, batch: PromptBatch) -> ResponseBatch:
        """Return the tokens of the targets."""
        sampler = self._sampler
        return make_targets(batch, sampler.tokenizer, self._config, pad_id=sampler.pad_id, eos_id=sampler.eos_ids[0])

    def count(self, mask: np.ndarray) -> int:
        """Return the number of target tokens."""
        return int(mask.sum())

    def loss(self, policy: Decoder, example: ResponseExample) -> tuple[jax.Array, Statistics]:
        """Return the weighted sum of −log π over target tokens. The sums are that, and the likeliest tokens."""
        statistics = completion_statistics(
            policy,
            example.prompt_ids,
            example.prompt_lengths,
            example.tokens,
            temperature=1.0,
            mask_nT=example.mask,
            likeliest=True,
        )
        assert statistics.likeliest is not None
        nll_nT = jnp.where(example.mask, -statistics.logps, 0.0)
        right_nT = (statistics.likeliest == example.tokens) & example.mask
        sums = {"loss": nll_nT.sum(), "token_accuracy": right_nT.sum()}
        return (nll_nT * example.weight[:, None]).sum(), {"sums": sums}
