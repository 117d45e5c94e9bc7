"""One step of the algorithm.

    for each batch of prompts (`run.py`):
        sample G completions of each prompt from the policy            (`rollout.py`)
        begin the reference policy's pass over them, which needs no reward (`logps.py`)
        score them                                                     (`bridge.py`)
        with dynamic sampling: as long as groups are dead, sample and score others in their place (`collecting.py`)
        take the advantage within each group                           (`rewards/advantages.py`)
        μ times, for each micro-batch: gradient of the loss; update    (`losses/`, `policy_loss.py`)
        now and then: move the reference policy                        (`reference.py`)

Departures from Tunix 0.1.7's `GRPOLearner`, whose cluster and trainer this uses: its loop, thread and queue are left
out, because they skip data when μ > 1, overshoot `max_steps`, and lose the data position and the sampling key on
resuming; here a step is a function of (weights, optimiser, step number, configuration) and of nothing else. Masks come
from completion lengths rather than from comparing ids with the padding id, so that the end-of-sequence token is trained
even where it is the padding token. Losses are ours, and weighed over the whole batch, so that micro-batches change
nothing but rounding. The reference policy's pass is begun before the rewards are, and nothing waits for it before
the update does, so that the device works while rewards are computed; with dynamic sampling it is not known before them
what is trained on. The updates of a step are all begun before any is looked at, and the device itself refuses those
that come after one that was not finite: the host waits twice a step, for the completions and for the last update.
The reference policy's pass stays one of its own where an adapter shares its base: one pass over both was measured to
take a third longer, since the backward pass then runs over both (docs/speed.md).

Departures from the papers stand in `losses/`, `collecting.py` and `rewards/advantages.py`. Of completions that were cut
at the length limit, `grpo.mask_truncated` takes the tokens out of the loss (DAPO's overlong filtering); their rewards
stay in the mean and deviation of their group, so that they are what the others are compared with.
"""

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import numpy as np
from tunix.rl import rl_cluster as rl_cluster_lib
from tunix.rl.grpo import grpo_learner

from agent_tunix.config.schema import Config
from agent_tunix.errors import RewardFailureRateError
from agent_tunix.policy import compat
from agent_tunix.policy.mesh import fetch, place_rows
from agent_tunix.policy.programs import Call, Programs
from agent_tunix.policy.variables import Parts
from agent_tunix.rewards import Outcome, Sample, Score
from agent_tunix.training import bridge
from agent_tunix.training.ahead import Ahead
from agent_tunix.training.collecting import SamplingTally, Scored, count_sampled, fill_places, is_full
from agent_tunix.training.keys import Use, derive_key
from agent_tunix.training.logps import bucket, reference_call
from agent_tunix.training.losses import completion_weights
from agent_tunix.training.policy_loss import WeighedExample
from agent_tunix.training.profiling import phase
from agent_tunix.training.reference import sync_reference
from agent_tunix.training.rollout import Completions, Rollout
from agent_tunix.training.sampling import Sampling
from agent_tunix.training.update_metrics import describe_updates, up_to_failure

_T = TypeVar("_T")

# What is compiled ahead; the latter two for a number of slots.
_ROLLOUT, _REFERENCE, _UPDATE = "rollout", "reference", "update"


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
class StepResult:
    """What one step did.

    Attributes:
        samples: The N = B × G completions that trained, as rewards saw them.
        scores: What the mixture said of each.
        totals: [N] rewards that trained; NaN where unscored.
        advantages: [N].
        completions: Tokens and lengths.
        policy: Loss, KL and the like, means over the step's updates; None for what there is none of.
        finite: Whether every update was finite; after one that was not, none follows.
        updates_applied: Optimiser updates that changed the weights.
        seconds: Wall time of rollout, reward and update. What the device does while rewards are computed is in none
            but `reward`.
        sampled: With dynamic sampling, what was sampled besides.
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
    sampled: SamplingTally | None = None


class GrpoLearner(grpo_learner.GRPOLearner):  # type: ignore[misc]
    """Tunix's GRPO learner with a step of our own in place of its loop."""

    def run_step(
        self,
        step: int,
        batch: PromptBatch,
        settings: "StepSettings",
        more_prompts: Callable[[int], PromptBatch] | None = None,
    ) -> StepResult:
        """Sample, score, and update the policy.

        Args:
            step: From 1; with the seed it decides the sampling noise.
            batch: The prompts.
            settings: What does not change from step to step.
            more_prompts: The prompts of a further round of dynamic sampling, from 1; required with it.

        Raises:
            RewardFailureRateError: Too many completions went unscored; nothing was updated.
        """
        clock = _Clock()
        grpo = settings.config.grpo
        completions = self._sample(step, 0, batch, settings)
        parts = None if grpo.dynamic_sampling_rounds else self._begin_parts(completions)
        clock.lap("rollout")
        rounds = [self._score(step, 0, batch, completions, settings)]
        while True:
            _check_failure_rate(rounds, settings.config.rewards.max_failure_rate, step)
            clock.lap("reward")
            number = len(rounds)
            if number > grpo.dynamic_sampling_rounds or is_full(rounds, grpo.num_generations):
                break
            assert more_prompts is not None
            batch = more_prompts(number)
            completions = self._sample(step, number, batch, settings)
            clock.lap("rollout")
            rounds.append(self._score(step, number, batch, completions, settings))
        trained = fill_places(rounds, grpo.num_generations)
        with phase("advantages"):
            # Tunix's estimators see totals only; some scalings need the components behind them.
            advantages = bridge.estimate_from_scores(
                self.reward_manager.mixture, trained.scores, grpo.num_generations, grpo.advantage_scaling
            )
        clock.lap("reward")
        parts = parts or self._begin_parts(trained.completions)
        with compat.entered(self._mesh()), phase("update"):
            policy, finite, applied = self._update(trained.completions, advantages, parts)
            if applied and self.reference_moves and step % self.algo_config.reference_sync_steps == 0:
                sync_reference(self.rl_cluster, self.algo_config.reference_sync_mix)
        clock.lap("update")
        return StepResult(
            samples=trained.samples,
            scores=trained.scores,
            totals=trained.totals,
            advantages=advantages,
            completions=trained.completions,
            policy=policy,
            finite=finite,
            updates_applied=applied,
            seconds=clock.seconds,
            sampled=count_sampled(rounds, grpo.num_generations) if grpo.dynamic_sampling_rounds else None,
        )

    def compile_ahead(self, batch: PromptBatch, settings: "StepSettings") -> None:
        """Begin to compile, in threads, what the first step will run on these prompts; it waits for what it needs.

        Its longest completion is taken to be as long as one may be. With several processes nothing is begun: they
        would have to compile in the same order.
        """
        if jax.process_count() > 1:
            return
        G, T = settings.config.grpo.num_generations, settings.sampling.max_new_tokens
        lengths = np.repeat([len(ids) for ids in batch.token_ids], G).astype(np.int32)
        N = len(lengths)
        expected = Completions(
            prompt_tokens=np.zeros((N, settings.config.generation.max_prompt_length), np.int32),
            prompt_lengths=lengths,
            tokens=np.zeros((N, T), np.int32),
            lengths=np.full(N, T, np.int32),
            ended=np.ones(N, np.bool_),
            texts=[""] * N,
            logps=np.zeros((N, T), np.float32),
        )
        reference, update = (_REFERENCE, *_slots(expected)), (_UPDATE, *_slots(expected))
        if self._mesh().size > 1:
            placed = self.ahead.begin(reference, lambda: self._compile_reference(expected))
            self.ahead.begin(update, lambda: self._compile_update(expected, placed.result()))
            self.ahead.begin(_ROLLOUT, lambda: self._compile_rollout(batch, settings))
            return
        # On one device it is known where the reference pass leaves what it finds. What takes longest to compile is
        # traced first.
        self.ahead.begin_in_turn(
            {
                update: lambda traced: self._compile_update(expected, None, traced),
                _ROLLOUT: lambda traced: self._compile_rollout(batch, settings, traced),
                reference: lambda traced: self._compile_reference(expected, traced),
            }
        )

    def _compile_rollout(
        self, batch: PromptBatch, settings: "StepSettings", traced: Callable[[], None] = lambda: None
    ) -> None:
        """Of the first step."""
        rollout: Rollout = self.rl_cluster.rollout
        call = self._with_prompts(rollout.call, 1, 0, batch, settings)
        with compat.entered(self._mesh()):
            rollout.programs.prepare(call, traced)

    def _compile_reference(self, completions: Completions, traced: Callable[[], None] = lambda: None) -> Any:
        """The log-probabilities of its first micro-batch as a shape on its devices; None without a reference."""
        if self.algo_config.beta == 0.0:
            return None
        with compat.entered(self._mesh()):
            arrays = self._to_device(next(self._micro_rows(completions)), completions)
            return self.programs.prepare(self._reference_call(arrays), traced)

    def _compile_update(self, completions: Completions, logps: Any, traced: Callable[[], None] = lambda: None) -> None:
        """Of the first micro-batch; `logps` are None where they lie as the tokens do, or are not there."""
        rows = next(self._micro_rows(completions))
        mask, weights = self._weigh(completions)
        with compat.entered(self._mesh()):
            arrays = self._to_device(rows, completions)
            if logps is None and self.algo_config.beta != 0.0:
                logps = jax.ShapeDtypeStruct(arrays[2].shape, np.float32, sharding=arrays[2].sharding)  # type: ignore[no-untyped-call]
            part = _Part(rows, *arrays, logps)
            example = self._make_example(part, completions, np.zeros(len(mask), np.float32), mask, weights)
            self.rl_cluster.actor_trainer.compile_step(example, traced)

    @functools.cached_property
    def ahead(self) -> Ahead:
        """What is compiled in threads; to be closed where something was begun."""
        return Ahead()

    @property
    def reference_moves(self) -> bool:
        """Whether there is a reference policy that follows the policy, and so belongs into a checkpoint."""
        return bool(self.algo_config.beta != 0.0 and self.algo_config.reference_sync_steps > 0)

    @property
    def num_updates(self) -> int:
        """Updates that the optimiser has made, those of the run before a resumed one included."""
        return int(self.rl_cluster.actor_trainer.optimizer.step.get_value()) // self.accumulation

    @property
    def accumulation(self) -> int:
        """Micro-batches of an update."""
        return int(self.rl_cluster.actor_trainer.config.get_with_default("gradient_accumulation_steps", 1))

    def _mesh(self) -> jax.sharding.Mesh:
        mesh: jax.sharding.Mesh = self.rl_cluster.r2m[rl_cluster_lib.Role.ACTOR]
        return mesh

    def _sample(self, step: int, number: int, batch: PromptBatch, settings: "StepSettings") -> Completions:
        """G completions of each prompt of a round."""
        self.ahead.wait(_ROLLOUT)
        rollout: Rollout = self.rl_cluster.rollout
        with phase("rollout"):
            return self._with_prompts(rollout.sample, step, number, batch, settings)

    def _with_prompts(
        self, act: Callable[..., _T], step: int, number: int, batch: PromptBatch, settings: "StepSettings"
    ) -> _T:
        """Sample, or make the call that does, for a round of a step."""
        config = settings.config
        key = derive_key(config.seed, Use.TRAINING, step, number)
        with compat.entered(self._mesh()):
            return act(
                batch.token_ids,
                key,
                settings.sampling,
                num_generations=config.grpo.num_generations,
                max_prompt_length=config.generation.max_prompt_length,
            )

    def _score(
        self, step: int, number: int, batch: PromptBatch, completions: Completions, settings: "StepSettings"
    ) -> Scored:
        samples = make_samples(
            step,
            settings.max_steps,
            batch,
            completions,
            settings.config,
            settings.config.grpo.num_generations,
            first_group=number * len(batch.prompts),
        )
        with phase("reward"):
            info = self.reward_manager(
                prompts=[sample.prompt for sample in samples], completions=completions.texts, samples=samples
            )
        return Scored(completions, samples, info["scores"], info["rewards"])

    def _update(
        self, completions: Completions, advantages: np.ndarray, parts: Sequence["_Part"]
    ) -> tuple[dict[str, float | None], bool, int]:
        """μ passes over the micro-batches; none after the first update that is not finite changes anything."""
        trainer = self.rl_cluster.actor_trainer
        self.ahead.wait((_UPDATE, *_slots(completions)))
        train_step, _ = trainer.jit_train_and_eval_step(cache_nnx_graph=True)
        mask, weights = self._weigh(completions)
        micro_batches = [
            self._make_example(part, completions, advantages, mask, weights * len(parts)) for part in parts
        ]
        begun: list[dict[str, Any]] = []
        for number in range(self.algo_config.num_iterations * len(micro_batches)):
            healthy = begun[-1]["healthy"] if begun else None
            loss, aux, _ = train_step(micro_batches[number % len(micro_batches)], healthy)
            begun.append({"loss": loss, **aux})
        records = up_to_failure(fetch(begun))
        finite = bool(records[-1]["finite"])
        if not finite:
            compat.reset_accumulation(trainer.optimizer)
        policy = describe_updates(
            records,
            np.resize([int(mask[part.rows].sum()) for part in parts], len(records)),
            self.accumulation,
            total_weight=float((weights * mask.sum(axis=1)).sum()),
        )
        return policy, finite, (len(records) - (not finite)) // self.accumulation

    def _weigh(self, completions: Completions) -> tuple[np.ndarray, np.ndarray]:
        """[N, T] the tokens that take part in the loss, and [N] what each token of a completion counts for."""
        mask = completions.mask
        if self.algo_config.mask_truncated:
            mask = mask & completions.ended[:, None]
        return mask, completion_weights(mask.sum(axis=1), self.algo_config.loss_agg_mode, mask.shape[1])

    def _micro_rows(self, completions: Completions) -> Iterator[slice]:
        size = self._training_config.train_micro_batch_size * self.algo_config.num_generations
        for start in range(0, len(completions.texts), size):
            yield slice(start, start + size)

    def _begin_parts(self, completions: Completions) -> list["_Part"]:
        """The micro-batches on the device, which begins the reference policy's pass over them; nothing waits for it."""
        self.ahead.wait((_REFERENCE, *_slots(completions)))
        parts = []
        with compat.entered(self._mesh()), phase("reference"):
            for rows in self._micro_rows(completions):
                arrays = self._to_device(rows, completions)
                logps = None
                if self.algo_config.beta != 0.0:
                    logps = self.programs.run(self._reference_call(arrays))
                parts.append(_Part(rows, *arrays, logps))
        return parts

    def _reference_call(self, arrays: tuple[jax.Array, jax.Array, jax.Array]) -> Call:
        return reference_call(self._reference_parts, *arrays, self.algo_config.temperature)

    @property
    def programs(self) -> Programs:
        """The compiled programs of the run."""
        rollout: Rollout = self.rl_cluster.rollout
        return rollout.programs

    @functools.cached_property
    def _reference_parts(self) -> Parts:
        return Parts(self.rl_cluster.inference_worker.get_model("reference"))

    def _to_device(self, rows: slice, completions: Completions) -> tuple[jax.Array, jax.Array, jax.Array]:
        """[b, P] prompts, [b] their lengths and [n, T] completions, without slots that no row of the batch fills."""
        P, T = _slots(completions)
        prompts = slice(rows.start, rows.stop, self.algo_config.num_generations)
        return (
            self._put(completions.prompt_tokens[prompts, -P:]),
            self._put(completions.prompt_lengths[prompts]),
            self._put(completions.tokens[rows, :T]),
        )

    def _make_example(
        self,
        part: "_Part",
        completions: Completions,
        advantages: np.ndarray,
        mask: np.ndarray,
        weights: np.ndarray,
    ) -> WeighedExample:
        """What the loss reads of one micro-batch."""
        rows, T = part.rows, part.tokens.shape[1]
        # Only the first update is on the policy that sampled.
        several = self.algo_config.num_iterations > 1
        return WeighedExample(
            prompt_ids=part.prompts,
            prompt_mask=None,
            prompt_lengths=part.prompt_lengths,
            completion_ids=part.tokens,
            completion_mask=self._put(mask[rows, :T]),
            advantages=self._put(advantages[rows]),
            ref_per_token_logps=part.reference_logps,
            old_per_token_logps=self._put(completions.logps[rows, :T]) if several else None,
            weights=self._put(weights[rows].astype(np.float32)),
        )

    def _put(self, array: np.ndarray) -> jax.Array:
        """On the mesh, rows divided."""
        placed: jax.Array = place_rows(self._mesh(), array)
        return placed


@dataclass(frozen=True)
class _Part:
    """A micro-batch on the device.

    Attributes:
        rows: Of the batch's completions.
        prompts: [b, P], padded on the left.
        prompt_lengths: [b], tokens of each.
        tokens: [n, T], its completions, padded on the right.
        reference_logps: [n, T], under the reference policy; None without a KL penalty.
    """

    rows: slice
    prompts: jax.Array
    prompt_lengths: jax.Array
    tokens: jax.Array
    reference_logps: jax.Array | None


def _slots(completions: Completions) -> tuple[int, int]:
    """Slots of a prompt and of a completion that what trains is cut to, since no row fills more."""
    P, T = completions.prompt_tokens.shape[1], completions.tokens.shape[1]
    return bucket(int(completions.prompt_lengths.max()), P), bucket(int(completions.lengths.max()), T)


class _Clock:
    """Wall time by what it was spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """What has passed since the last lap went to this."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now


@dataclass(frozen=True)
class StepSettings:
    """What every step of a run shares."""

    config: Config
    sampling: Sampling
    max_steps: int


def make_samples(
    step: int,
    max_steps: int,
    batch: PromptBatch,
    completions: Completions,
    config: Config,
    num_generations: int,
    *,
    first_group: int = 0,
) -> list[Sample]:
    """The N completions with everything that is known of them; their groups are numbered from `first_group`."""
    samples = []
    for row, text in enumerate(completions.texts):
        prompt, generation = divmod(row, num_generations)
        group = first_group + prompt
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
                group_id=group,
                rollout_id=f"{step}_{group}_{generation}",
                num_tokens=int(completions.lengths[row]),
                tokens=tuple(completions.tokens[row, : completions.lengths[row]].tolist()),
                ended=bool(completions.ended[row]),
                index=first_group * num_generations + row,
            )
        )
    return samples


def _check_failure_rate(rounds: Sequence[Scored], allowed: float, step: int) -> None:
    scores = [score for scored in rounds for score in scored.scores]
    failed = [score for score in scores if score.outcome not in (Outcome.SCORED, Outcome.NOT_APPLICABLE)]
    if len(failed) > allowed * len(scores):
        reasons = sorted({f"{score.outcome}: {score.detail}" for score in failed})
        raise RewardFailureRateError(
            f"step {step}: {len(failed)} of {len(scores)} completions went unscored, more than"
            f" rewards.max_failure_rate={allowed} allows. First reasons:\n  "
            + "\n  ".join(reasons[:3])
            + "\nMend the reward or the data, or raise rewards.max_failure_rate."
        )
