"""One step of the algorithm.

    for each batch of prompts (`run.py`):
        sample G completions of each prompt from the policy            (`rollout.py`)
        begin the passes over them that need no reward: reference policy, and the policy as it is
        score them, and take the advantage within each group           (`bridge.py`)
        μ times, for each micro-batch: gradient of the clipped loss + β KL; update

Departures from Tunix 0.1.7's `GRPOLearner`, whose cluster, trainer and loss this uses: its loop, thread and queue are
left out, because they skip data when μ > 1, overshoot `max_steps`, and lose the data position and the sampling key on
resuming; here a step is a function of (weights, optimiser, step number, configuration) and of nothing else. Masks come
from completion lengths rather than from comparing ids with the padding id, so that the end-of-sequence token is trained
even where it is the padding token. The passes that need no reward are begun before the rewards are, and nothing waits
for them before the update does, so that the device works while rewards are computed.

Departures from the paper (https://arxiv.org/abs/2402.03300): the reference policy is never renewed; the KL penalty is
the estimator of `grpo.kl_estimator`.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tunix.rl import common
from tunix.rl import rl_cluster as rl_cluster_lib
from tunix.rl.grpo import grpo_learner
from tunix.sft import sharding_utils

from agent_tunix.config.schema import Config
from agent_tunix.errors import RewardFailureRateError
from agent_tunix.policy import compat
from agent_tunix.rewards import Outcome, Sample, Score
from agent_tunix.training import bridge
from agent_tunix.training.rollout import Completions, Rollout, Sampling


@dataclass(frozen=True)
class PromptBatch:
    """B prompts of one step.

    Attributes:
        prompts: Problem texts, for people and rewards.
        messages: Chat messages of each prompt.
        token_ids: What the model sees, each at most `generation.max_prompt_length` long.
        columns: The dataset's columns of each row.
    """

    prompts: Sequence[str]
    messages: Sequence[Sequence[Mapping[str, Any]]]
    token_ids: Sequence[Sequence[int]]
    columns: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class FixedLogps:
    """[n, T] log-probabilities of a micro-batch's completions that the updates of the step do not change.

    Attributes:
        reference: Under the reference policy; None without a KL penalty.
        old: Under the policy that sampled; None where the first update is the only one.
    """

    reference: jax.Array | None
    old: jax.Array | None


@dataclass(frozen=True)
class StepResult:
    """What one step did.

    Attributes:
        samples: The N = B × G completions as rewards saw them.
        scores: What the mixture said of each.
        totals: [N] rewards that trained; NaN where unscored.
        advantages: [N].
        completions: Tokens and lengths.
        policy: Loss, KL and the like, means over the step's updates; None for what there is none of.
        finite: Whether every update was finite; after one that was not, none follows.
        updates_applied: Optimiser updates that changed the weights.
        seconds: Wall time of rollout, reward and update. What the device does while rewards are computed is in none
            but `reward`.
    """

    samples: Sequence[Sample]
    scores: Sequence[Score]
    totals: np.ndarray
    advantages: np.ndarray
    completions: Completions
    policy: dict[str, float | None]
    finite: bool
    updates_applied: int
    seconds: dict[str, float]


class GrpoLearner(grpo_learner.GRPOLearner):  # type: ignore[misc]
    """Tunix's GRPO learner with a step of our own in place of its loop."""

    def run_step(self, step: int, batch: PromptBatch, settings: "StepSettings") -> StepResult:
        """Sample, score, and update the policy.

        Args:
            step: From 1; with the seed it decides the sampling noise.
            batch: The prompts.
            settings: What does not change from step to step.

        Raises:
            RewardFailureRateError: Too many completions went unscored; nothing was updated.
        """
        started = time.perf_counter()
        rollout: Rollout = self.rl_cluster.rollout
        config = settings.config
        with compat.entered(self._mesh()):
            completions = rollout.sample(
                batch.token_ids,
                jax.random.fold_in(jax.random.key(config.seed), step),
                settings.sampling,
                num_generations=config.grpo.num_generations,
                max_prompt_length=config.generation.max_prompt_length,
            )
            fixed = self._begin_fixed_logps(completions)
        sampled = time.perf_counter()
        samples = make_samples(step, settings.max_steps, batch, completions, config, config.grpo.num_generations)
        info = self.reward_manager(
            prompts=[sample.prompt for sample in samples], completions=completions.texts, samples=samples
        )
        totals, scores = info["rewards"], info["scores"]
        # Tunix's estimators see totals only; some scalings need the components behind them.
        advantages = bridge.estimate_from_scores(
            self.reward_manager.mixture, scores, config.grpo.num_generations, config.grpo.advantage_scaling
        )
        _check_failure_rate(scores, config.rewards.max_failure_rate, step)
        scored = time.perf_counter()
        with compat.entered(self._mesh()):
            policy, finite, applied = self._update(completions, advantages, fixed)
        return StepResult(
            samples=samples,
            scores=scores,
            totals=totals,
            advantages=advantages,
            completions=completions,
            policy=policy,
            finite=finite,
            updates_applied=applied,
            seconds={
                "rollout": sampled - started,
                "reward": scored - sampled,
                "update": time.perf_counter() - scored,
            },
        )

    @property
    def num_updates(self) -> int:
        """Updates that the optimiser has made, those of the run before a resumed one included."""
        trainer = self.rl_cluster.actor_trainer
        accumulation = trainer.config.get_with_default("gradient_accumulation_steps", 1)
        return int(trainer.optimizer.step.get_value()) // int(accumulation)

    def _mesh(self) -> jax.sharding.Mesh:
        mesh: jax.sharding.Mesh = self.rl_cluster.r2m[rl_cluster_lib.Role.ACTOR]
        return mesh

    def _update(
        self, completions: Completions, advantages: np.ndarray, fixed: Sequence[FixedLogps]
    ) -> tuple[dict[str, float | None], bool, int]:
        """μ passes over the micro-batches; stops at the first update that is not finite."""
        trainer = self.rl_cluster.actor_trainer
        train_step, _ = trainer.jit_train_and_eval_step(cache_nnx_graph=True)
        accumulation = trainer.config.get_with_default("gradient_accumulation_steps", 1)
        micro_batches = [
            self._make_example(rows, completions, advantages, logps)
            for rows, logps in zip(self._micro_rows(completions), fixed, strict=True)
        ]
        records: list[dict[str, Any]] = []
        for number in range(self.algo_config.num_iterations * len(micro_batches)):
            example = micro_batches[number % len(micro_batches)]
            loss, aux, _ = train_step(example)
            records.append(jax.device_get({"loss": loss, **aux}))
            if not records[-1]["finite"]:
                compat.reset_accumulation(trainer.optimizer)
                break
        finite = bool(records[-1]["finite"])
        tokens = [int(np.asarray(example.completion_mask).sum()) for example in micro_batches]
        policy = self._describe_updates(records, np.resize(tokens, len(records)), accumulation)
        return policy, finite, (len(records) - (not finite)) // accumulation

    def _describe_updates(
        self, records: Sequence[Mapping[str, Any]], tokens: np.ndarray, accumulation: int
    ) -> dict[str, float | None]:
        """Means over the micro-batches of a step, each weighed as it was in the updates.

        An update is the plain mean of its micro-batches' gradients, so that loss, KL and entropy, which are means over
        a micro-batch as `grpo.loss_agg_mode` has it, are plain means too. The share of tokens that are clipped counts
        tokens, and the gradient's norm is that of the whole update, before clipping.

        Args:
            records: What each micro-batch gave; the last one may not be finite.
            tokens: Tokens that count in each.
            accumulation: Micro-batches an update.
        """
        names = ("loss", "kl_loss", "pg_clipfrac", "entropy", "grad_norm")
        found = {name: np.array([record[name] for record in records], np.float64) for name in names}
        ends = [n for n, record in enumerate(records, 1) if n % accumulation == 0 or not record["finite"]]
        return {
            "loss": float(found["loss"].mean()),
            # Tunix's own `kl` counts tokens, whatever the loss does; this is what β weighs.
            "kl": float(found["kl_loss"].mean()) if self.algo_config.beta != 0.0 else None,
            "clip_share": float(np.average(found["pg_clipfrac"], weights=tokens)),
            "entropy": float(found["entropy"].mean()),
            "grad_norm": float(found["grad_norm"][np.array(ends) - 1].mean()),
            **describe_norms([records[end - 1] for end in ends]),
        }

    def _micro_rows(self, completions: Completions) -> Iterator[slice]:
        size = self._training_config.train_micro_batch_size * self.algo_config.num_generations
        for start in range(0, len(completions.texts), size):
            yield slice(start, start + size)

    def _begin_fixed_logps(self, completions: Completions) -> list[FixedLogps]:
        """Have the device begin the passes that need no reward, without waiting for them: one result a micro-batch."""
        pad, eos = self.rl_cluster.rollout.pad_id(), self.rl_cluster.rollout.eos_id()
        fixed = []
        for rows in self._micro_rows(completions):
            prompt_NP, tokens_NT = jnp.asarray(completions.prompt_tokens[rows]), jnp.asarray(completions.tokens[rows])
            reference = old = None
            if self.algo_config.beta != 0.0:
                reference = self.rl_cluster.get_ref_per_token_logps(prompt_NP, tokens_NT, pad, eos)
            if self.algo_config.num_iterations > 1:
                old = self.rl_cluster.get_old_per_token_logps(prompt_NP, tokens_NT)
            fixed.append(FixedLogps(reference, old))
        return fixed

    def _make_example(
        self, rows: slice, completions: Completions, advantages: np.ndarray, logps: FixedLogps
    ) -> common.TrainExample:
        """What Tunix's loss reads of one micro-batch."""
        prompt_NP = jnp.asarray(completions.prompt_tokens[rows])
        example = grpo_learner.TrainExample(
            prompt_ids=prompt_NP,
            prompt_mask=prompt_NP != self.rl_cluster.rollout.pad_id(),
            completion_ids=jnp.asarray(completions.tokens[rows]),
            completion_mask=jnp.asarray(completions.mask[rows]),
            advantages=jnp.asarray(advantages[rows]),
            ref_per_token_logps=logps.reference,
            old_per_token_logps=logps.old,
        )
        return sharding_utils.shard_input(example, self._training_config.data_sharding_axis)


def describe_norms(updates: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How far updates moved the weights that train: means over the updates, for all weights and for each group.

    Args:
        updates: Of each update, `update_norm` and `weight_norm`: name of a group, "" for all → norm.
    """
    described = {}
    for name in updates[0]["update_norm"]:
        sizes = np.array([update["update_norm"][name] for update in updates], np.float64)
        weights = np.array([update["weight_norm"][name] for update in updates], np.float64)
        leaf = f"/{name}" if name else ""
        described[f"update_norm{leaf}"] = float(sizes.mean())
        # Weights that are all 0, as one half of a new adapter is, have no size to compare with.
        ratios = np.divide(sizes, weights, out=np.full_like(sizes, np.nan), where=weights > 0)
        described[f"update_ratio{leaf}"] = float(ratios.mean())
    return described


@dataclass(frozen=True)
class StepSettings:
    """What every step of a run shares."""

    config: Config
    sampling: Sampling
    max_steps: int


def make_samples(
    step: int, max_steps: int, batch: PromptBatch, completions: Completions, config: Config, num_generations: int
) -> list[Sample]:
    """The N completions with everything that is known of them."""
    samples = []
    for row, text in enumerate(completions.texts):
        prompt, generation = divmod(row, num_generations)
        messages = (*batch.messages[prompt], {"role": "assistant", "content": text})
        samples.append(
            Sample(
                response=text,
                prompt=batch.prompts[prompt],
                messages=messages,
                columns=batch.columns[prompt],
                format=config.prompt.format,
                step=step,
                max_steps=max_steps,
                group_id=prompt,
                rollout_id=f"{step}_{prompt}_{generation}",
                num_tokens=int(completions.lengths[row]),
                tokens=tuple(completions.tokens[row, : completions.lengths[row]].tolist()),
                ended=bool(completions.ended[row]),
                index=row,
            )
        )
    return samples


def _check_failure_rate(scores: Sequence[Score], allowed: float, step: int) -> None:
    failed = [score for score in scores if score.outcome not in (Outcome.SCORED, Outcome.NOT_APPLICABLE)]
    if len(failed) > allowed * len(scores):
        reasons = sorted({f"{score.outcome}: {score.detail}" for score in failed})
        raise RewardFailureRateError(
            f"step {step}: {len(failed)} of {len(scores)} completions went unscored, more than"
            f" rewards.max_failure_rate={allowed} allows. First reasons:\n  "
            + "\n  ".join(reasons[:3])
            + "\nMend the reward or the data, or raise rewards.max_failure_rate."
        )
