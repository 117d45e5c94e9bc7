"""Stored steps through a reward, as training would have taken them.

What training did at a step followed from its completions, from the weights at that step, and, where a weight follows a
metric, from the metrics of the steps before. A replay gives the mixture the same things in the same order, so that the
unchanged reward gives every total and advantage again, to the last bit. Metrics that the reward itself decides
(`rewards/…`) are those of the replay, not of the run: a changed reward would have moved its own schedules.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent_tunix.errors import RewardError
from agent_tunix.rewards.advantages import SCALINGS
from agent_tunix.rewards.measuring import RewardMetrics
from agent_tunix.rewards.mixture import Mixture
from agent_tunix.rewards.sample import Sample, Score


class Unreplayable(RewardError):
    """What is asked of stored completions, they cannot honestly answer."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """What a run stored of one step.

    Attributes:
        step: From 1.
        samples: The N stored completions, whole groups, the members of a group side by side.
        scores: What the run's reward said of each.
        totals: [N] float64, what trained; NaN where unscored.
        advantages: [N] float32, what trained.
        whole: Whether every completion of the step is stored.
    """

    step: int
    samples: Sequence[Sample]
    scores: Sequence[Score]
    totals: NDArray[np.float64]
    advantages: NDArray[np.float32]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """A stored step, and what the replayed reward makes of it.

    Attributes:
        recorded: As it was stored.
        scores: What the reward says now.
        totals: [N] float64; NaN where unscored.
        advantages: [N] float32.
    """

    recorded: RecordedStep
    scores: Sequence[Score]
    totals: NDArray[np.float64]
    advantages: NDArray[np.float32]


def replay(
    mixture: Mixture,
    steps: Iterable[RecordedStep],
    rows: Sequence[Mapping[str, Any]],
    *,
    num_generations: int,
    scaling: str = "group",
    reuse: Collection[str] = (),
) -> Iterator[ReplayedStep]:
    """Score stored steps, in order.

    Args:
        mixture: The reward; its schedules are moved along, so it serves for one replay.
        steps: What was stored, in order.
        rows: The run's rows of metrics, which weights may follow.
        num_generations: G.
        scaling: `grpo.advantage_scaling`.
        reuse: Components whose stored scores are taken instead of asking them again; one that was not computed then,
            and now counts, is asked.

    Raises:
        Unreplayable: The stored completions lack what this reward or scaling needs.
        RewardError: A weighted component failed, under `on_failure="raise"`.
    """
    if scaling not in SCALINGS:
        raise RewardError(
            f"grpo.advantage_scaling must be one of {', '.join(SCALINGS)}, not {scaling!r}",
            code="invalid_advantage_scaling",
        )
    waiting = sorted(rows, key=lambda row: row["step"])
    of_rewards: dict[int, dict[str, Any]] = {}
    metrics = RewardMetrics(mixture, num_generations=num_generations, scaling=scaling)
    for recorded in steps:
        while waiting and waiting[0]["step"] < recorded.step:
            row = waiting.pop(0)
            mixture.observe(row["step"], {**row, **of_rewards.pop(row["step"], {})})
        check_step(mixture, recorded, num_generations, scaling)
        scores = _score(mixture, recorded, reuse)
        totals = mixture.totals(scores)
        advantages = mixture.advantages(scores, num_generations, scaling).astype(np.float32)
        if any(metric.startswith("rewards/") for metric in mixture.followed_metrics):
            of_rewards[recorded.step] = metrics.measure(recorded.step, recorded.samples, scores, totals, advantages)
        yield ReplayedStep(recorded, scores, totals, advantages)


def contrast(
    first: Mixture,
    second: Mixture,
    steps: Iterable[RecordedStep],
    rows: Sequence[Mapping[str, Any]],
    *,
    num_generations: int,
    scaling: str = "group",
) -> Iterator[ReplayedStep]:
    """Score stored steps with two rewards; what the first says stands as recorded. Takes what `replay` takes."""
    replays = [
        replay(mixture, copy, rows, num_generations=num_generations, scaling=scaling)
        for mixture, copy in zip((first, second), itertools.tee(steps), strict=True)
    ]
    for before, after in zip(*replays, strict=True):
        recorded = replace(before.recorded, scores=before.scores, totals=before.totals, advantages=before.advantages)
        yield replace(after, recorded=recorded)


def check_step(mixture: Mixture, recorded: RecordedStep, num_generations: int, scaling: str) -> None:
    """Refuse a step of which too little is stored.

    Raises:
        Unreplayable: With what is missing.
    """
    if len(recorded.samples) % num_generations:
        raise Unreplayable(
            f"step {recorded.step} has {len(recorded.samples)} stored completions, which are no whole groups of"
            f" {num_generations}; the run's rollouts are damaged",
            code="damaged_rollouts",
        )
    if recorded.whole:
        return
    if scaling in ("batch", "component"):
        raise Unreplayable(
            f"grpo.advantage_scaling={scaling} divides by a deviation over the whole batch, of which step"
            f" {recorded.step} has only a share stored; replay with grpo.advantage_scaling=group, or train with"
            " rollouts.share=1",
            code="partial_batch",
        )
    whole_batch = [c.name for c in mixture.components if getattr(c.reward, "needs_batch", False)]
    if whole_batch:
        raise Unreplayable(
            f"component {whole_batch[0]!r} looks at the whole batch, of which step {recorded.step} has only a share"
            " stored; train with rollouts.share=1",
            code="partial_batch",
        )


def _score(mixture: Mixture, recorded: RecordedStep, reuse: Collection[str]) -> list[Score]:
    stored = {
        component.name: [score.parts.get(component.name) for score in recorded.scores]
        for component in mixture.components
        if component.name in reuse
    }
    return mixture.score(recorded.samples, known=stored)
