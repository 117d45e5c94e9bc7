"""One step of GRPO (https://arxiv.org/abs/2402.03300), from top to bottom.

    sample G completions of each prompt from the policy                (`sampling/`)
    dispatch the passes of reference policy and teacher over them      (`reference.py`, `teacher.py`)
    score them                                                         (the reward mixture)
    with dynamic sampling, replace dead groups by further prompts      (`dynamic_sampling.py`)
    put kept hard groups in the places of groups that are still dead   (`replay_buffer.py`)
    dispatch the pass of a teacher that is shown feedback              (`teacher_prompts.py`)
    take the advantage within each group                               (`rewards/advantages.py`, `rewards/turns.py`)
    μ times, for each micro-batch: gradient of the loss, update        (`loss.py`, `losses/`, `updater.py`)
    now and then, move the reference policy                            (`reference.py`)

Departure from the paper: a step in which no completion has an advantage changes neither weights nor the optimizer's
state (`grpo.skip_dead_steps`). In the paper, the KL penalty still trains there. At the reference policy its gradient is
rounding noise, which AdamW scales up to updates of full size. Such a step trains only if a part of the loss other than
the KL penalty needs no advantage: a teacher, the entropy bonus, or a loss of the user's own.

A step depends only on weights, optimizer state, step number and configuration; with `engine.max_staleness` also on the
completions that were sampled ahead (`ahead.py`), and with `grpo.replay_groups` on the groups that are kept.

The host waits for the device twice a step: for the completions and for the last update. The reference pass needs no
reward, so it is dispatched before scoring, and the device works while rewards are computed. With dynamic sampling or
replay it follows scoring, which decides what trains. So does the pass of a teacher with a prompt of its own, which
scores may be part of.

`losses/`, `dynamic_sampling.py` and `rewards/advantages.py` state departures from the papers. `grpo.mask_truncated`
(DAPO's overlong filtering) takes completions that were cut at the length limit out of the loss. Their rewards stay in
the mean and deviation of their group.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np

from agent_tunix.config.data_sets import pass_rate_key
from agent_tunix.config.schema import Config
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.errors import RewardFailureRateError
from agent_tunix.grpo.ahead import SamplingAhead, sample_round
from agent_tunix.grpo.dynamic_sampling import (
    SamplingTally,
    Scored,
    count_sampled,
    fill_places,
    is_full,
    judge,
    pass_rates,
)
from agent_tunix.grpo.losses.objective import trains_without_advantages
from agent_tunix.grpo.micro_batches import (
    MicroBatch,
    judge_shown,
    make_loss_inputs,
    place_micro_batches,
    step_settings,
)
from agent_tunix.grpo.reference import ReferencePolicy
from agent_tunix.grpo.replay_buffer import KeptGroup, ReplayBuffer
from agent_tunix.grpo.teacher import Teacher
from agent_tunix.grpo.teacher_prompts import TeacherPrompts
from agent_tunix.grpo.training_rows import training_rows
from agent_tunix.grpo.turn_advantages import has_advantage, row_advantages
from agent_tunix.grpo.update_metrics import describe_updates
from agent_tunix.grpo.updater import PolicyUpdater
from agent_tunix.rewards import Mixture, Outcome, Sample, Score
from agent_tunix.rewards.sample import ScoringFunction
from agent_tunix.rewards.statistics.reasons import group_reasons
from agent_tunix.rewards.turns import Credit
from agent_tunix.sampling.sampler import BatchSampler, Completions, Sampler
from agent_tunix.sampling.samples import make_samples

# Names a phase in a profiler's trace.
phase = jax.profiler.TraceAnnotation

# Takes the number of a further round of dynamic sampling, from 1; returns its prompts.
MorePrompts = Callable[[int], PromptBatch]


@dataclass(frozen=True)
class StepResult:
    """The result of one step.

    Attributes:
        samples: The N = B × G completions that trained, as rewards saw them.
        scores: The score of each.
        totals: [N] rewards that trained; NaN for unscored completions.
        advantages: [N]; with credit by turn, the means over the turns of each completion.
        completions: Tokens and lengths.
        policy: Loss, KL and similar metrics, as means over the step's updates; None for one that does not apply.
        finite: True if every update was finite. An update that is not finite ends the step.
        updates_applied: Optimizer updates that changed the weights.
        updates_skipped: Updates that did not happen because no completion has an advantage.
        seconds: Wall time of rollout, reward and update.
        sampled: With dynamic sampling or replay, everything that was sampled.
        pass_rates: If the rows of later steps depend on it, the share of completions that passed, by training row.
        num_waiting: With sampling ahead, the later steps that were sampled already when this one began.
        num_kept: With replay, the groups kept after the step. Replayed samples have the `step` that sampled them.
        turn_advantages: [N, K] float32 with credit by turn, NaN after the last turn of each completion; else None.
    """

    samples: Sequence[Sample]
    scores: Sequence[Score]
    totals: np.ndarray
    advantages: np.ndarray
    completions: Completions
    policy: dict[str, float | None]
    finite: bool
    updates_applied: int
    updates_skipped: int
    seconds: dict[str, float]
    sampled: SamplingTally | None = None
    pass_rates: Mapping[int, float] | None = None
    num_waiting: int | None = None
    num_kept: int | None = None
    turn_advantages: np.ndarray | None = None


class GrpoTrainer:
    """Trainer that takes steps of GRPO.

    Args:
        config: Configuration of the run.
        sampler: Sampler of the policy.
        updater: Updater of the policy.
        reference: The reference policy; None without a KL penalty.
        mixture: The reward.
        score: Function that scores samples: `mixture.score` unless the processes of a run share the work.
        max_steps: Number of steps of the run, for rewards that ask for it.
        episodes: Sampler of episodes, if the policy acts over several turns.
        teacher: The teacher of on-policy distillation.
        ahead: Completions that are sampled ahead; None if each step samples its own.
        buffer: Groups that may train again; None without replay.
        teacher_prompts: Writer of the teacher's prompts; None if the teacher sees those of the policy.
    """

    def __init__(
        self,
        config: Config,
        sampler: Sampler,
        updater: PolicyUpdater,
        reference: ReferencePolicy | None,
        mixture: Mixture,
        score: ScoringFunction | None = None,
        max_steps: int = 0,
        episodes: BatchSampler | None = None,
        teacher: Teacher | None = None,
        ahead: SamplingAhead | None = None,
        buffer: ReplayBuffer | None = None,
        teacher_prompts: TeacherPrompts | None = None,
    ) -> None:
        self.config = config
        self.sampler = sampler
        self._batch_sampler: BatchSampler = episodes or sampler
        self.updater = updater
        self.reference = reference
        self._teacher = teacher
        self._ahead = ahead
        self._buffer = buffer
        self._teacher_prompts = teacher_prompts
        self._mixture = mixture
        self._score = score or mixture.score
        self._max_steps = max_steps

    def take_step(self, step: int, batch: PromptBatch, more_prompts: MorePrompts | None = None) -> StepResult:
        """Sample, score and update.

        Args:
            step: Number of the step, from 1. With the seed it determines the sampling noise.
            batch: Prompts of the step.
            more_prompts: Prompts of further rounds; required with dynamic sampling.

        Raises:
            RewardFailureRateError: Too many completions went unscored; nothing was updated.
        """
        grpo, timer = self.config.grpo, _PhaseTimer()
        completions = self._ahead.take(step) if self._ahead else self.sample(step, 0, batch)
        chooses = grpo.dynamic_sampling_rounds > 0 or self._buffer is not None
        micro_batches = None if chooses else self.place(completions)
        timer.lap("rollout")
        rounds = [self.score(step, 0, batch, completions)]
        _check_failure_rate(rounds, self.config.rewards.max_failure_rate, step)
        timer.lap("reward")
        while len(rounds) <= grpo.dynamic_sampling_rounds and not is_full(rounds, grpo.num_generations):
            assert more_prompts is not None
            number = len(rounds)
            batch = more_prompts(number)
            completions = self.sample(step, number, batch)
            timer.lap("rollout")
            rounds.append(self.score(step, number, batch, completions))
            _check_failure_rate(rounds, self.config.rewards.max_failure_rate, step)
            timer.lap("reward")
        trained = fill_places(rounds, grpo.num_generations)
        trained, kept = self._replay(step, rounds, trained)
        with phase("advantages"):
            advantages, of_turns = self._mixture.credited(
                trained.samples, trained.scores, grpo.num_generations, grpo.advantage_scaling, Credit.of(grpo)
            )
        timer.lap("reward")
        with phase("update"):
            micro_batches = micro_batches or self.place(trained.completions)
            micro_batches, of_teacher = self.teach(trained, micro_batches)
            policy, finite, applied = self.update(
                trained.completions, advantages if of_turns is None else of_turns, micro_batches
            )
            policy |= of_teacher
            if applied and self.reference and grpo.reference_sync_steps and step % grpo.reference_sync_steps == 0:
                self.reference.sync(self.updater.policy, grpo.reference_sync_mix)
            if self._buffer and (finite or applied):  # otherwise the step is taken again
                self._buffer.groups = kept
        timer.lap("update")
        return StepResult(
            samples=trained.samples,
            scores=trained.scores,
            totals=trained.totals,
            advantages=advantages,
            completions=trained.completions,
            policy=policy,
            finite=finite,
            updates_applied=applied,
            updates_skipped=grpo.num_iterations if finite and not applied else 0,
            seconds=timer.seconds,
            sampled=count_sampled(rounds, grpo.num_generations) if chooses else None,
            pass_rates=(
                pass_rates(rounds, grpo.num_generations, self.config.data.pass_at)
                if pass_rate_key(self.config.data)
                else None
            ),
            num_waiting=self._ahead.num_waiting if self._ahead else None,
            num_kept=len(kept) if self._buffer else None,
            turn_advantages=of_turns,
        )

    def sample(self, step: int, number: int, batch: PromptBatch) -> Completions:
        """Sample G completions of each prompt of a round."""
        with phase("rollout"):
            return sample_round(self._batch_sampler, self.config, batch, step, number)

    def score(self, step: int, number: int, batch: PromptBatch, completions: Completions) -> Scored:
        """Score the completions of a round."""
        samples = make_samples(
            batch,
            completions,
            format=self.config.prompt.format,
            num_generations=self.config.grpo.num_generations,
            step=step,
            max_steps=self._max_steps,
            first_group=number * len(batch.prompts),
        )
        with phase("reward"):
            scores = self._score(samples)
            totals = self._mixture.totals(scores)
            judged = judge(scores, totals, self.config.grpo.filter_by)
            return Scored(completions, samples, scores, totals, judged, batch.rows)

    def _replay(self, step: int, rounds: Sequence[Scored], trained: Scored) -> tuple[Scored, tuple[KeptGroup, ...]]:
        """Return the batch with kept groups in the places of dead ones, and the groups that are kept after the step."""
        if self._buffer is None:
            return trained, ()
        batch, replayed, kept = self._buffer.fill_places(step, rounds, trained)
        if not replayed:
            return batch, kept
        scores = list(batch.scores)
        again = self._mixture.reweigh([scores[row] for row in replayed], [batch.samples[row] for row in replayed], step)
        for row, score in zip(replayed, again, strict=True):
            scores[row] = score
        return replace(batch, scores=scores, totals=self._mixture.totals(scores)), kept

    def place(self, completions: Completions) -> list[MicroBatch]:
        """Bring completions to the device and dispatch the passes of reference policy and teacher over them."""
        with phase("reference"):
            return place_micro_batches(
                completions,
                self.config,
                self.sampler.mesh,
                self.reference.logps if self.reference else None,
                self._teacher.judge if self._teacher and not self._teacher_prompts else None,
            )

    def teach(
        self, trained: Scored, micro_batches: list[MicroBatch]
    ) -> tuple[list[MicroBatch], dict[str, float | None]]:
        """Dispatch the pass of a teacher with prompts of its own; return its `policy/` metrics too, {} without one."""
        if self._teacher is None or self._teacher_prompts is None:
            return micro_batches, {}
        shown = self._teacher_prompts.write(trained.samples, trained.scores, trained.totals, trained.completions)
        judged = judge_shown(micro_batches, trained.completions, shown, self.sampler.mesh, self._teacher.judge)
        return judged, {"taught_share": float(shown.taught.mean()), "teacher_prompts_cut": shown.num_cut}

    def update(
        self, completions: Completions, advantages: np.ndarray, micro_batches: Sequence[MicroBatch]
    ) -> tuple[dict[str, float | None], bool, int]:
        """Pass μ times over the micro-batches; or measure them, if no completion has an advantage.

        Args:
            completions: The N completions of the step.
            advantages: [N] float32 of the completions, or [N, K] of their turns.
            micro_batches: The completions on the device.

        Returns:
            The `policy/` metrics; True if every update was finite; and how many updates changed the weights.
        """
        inputs, total_weight = make_loss_inputs(micro_batches, completions, advantages, self.config, self.sampler.mesh)
        rows, num_passes = training_rows(completions, self.config, self.sampler.mesh), self.config.grpo.num_iterations
        tokens = rows.mask.sum(axis=1)
        skipped = (
            self.config.grpo.skip_dead_steps
            and (
                self.config.grpo.loss == "none"
                or not has_advantage(row_advantages(advantages, rows, completions), rows)
            )
            and not trains_without_advantages(step_settings(rows, self.config), self._teaches(micro_batches, tokens))
        )
        records = self.updater.measure(inputs) if skipped else self.updater.apply(inputs, num_passes)
        policy = describe_updates(
            records,
            np.resize([int(tokens[part.rows].sum()) for part in micro_batches], len(records)),
            self.updater.accumulation,
            total_weight=total_weight,
        )
        finite = bool(records[-1]["finite"])
        if skipped:
            if finite:  # an error about a norm that is not finite names it
                policy |= {name: None for name in policy if name.startswith(("grad_norm", "update_"))}
            return policy, finite, 0
        return policy, finite, (len(records) - (not finite)) // self.updater.accumulation

    def _teaches(self, micro_batches: Sequence[MicroBatch], tokens: np.ndarray) -> bool:
        """Return True if the teacher judges a token; `tokens` are the numbers of tokens of rows that take part."""
        if self._teacher is None:
            return False
        return any(part.taught is None or bool(tokens[part.rows][part.taught].any()) for part in micro_batches)


def _check_failure_rate(rounds: Sequence[Scored], allowed: float, step: int) -> None:
    scores = [score for scored in rounds for score in scored.scores]
    failures = [score for score in scores if score.outcome not in (Outcome.SCORED, Outcome.NOT_APPLICABLE)]
    if len(failures) > allowed * len(scores):
        reasons = group_reasons(f"{score.outcome}: {score.detail}" for score in failures)
        raise RewardFailureRateError(
            f"step {step}: the reward fails on {len(failures)} of {len(scores)} completions, above the limit "
            f"rewards.max_failure_rate={allowed}. Most frequent reasons:\n  "
            + "\n  ".join(f"{count} × {reason}" for reason, count in reasons[:3])
            + "\nCorrect the reward or the data, or raise rewards.max_failure_rate."
        )


class _PhaseTimer:
    """Wall time by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Add the time since the last lap to a phase."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now
