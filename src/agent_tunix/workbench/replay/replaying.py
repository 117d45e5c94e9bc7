"""Replay of stored steps through a reward, as training would have scored them.

At each step, training depended on the completions and on the weights at that step. A replay gives the mixture the same
inputs, so the unchanged reward reproduces every total and advantage to the last bit.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from agent_tunix.errors import RewardError
from agent_tunix.rewards.advantages import OWN_ESTIMATORS, SCALINGS, needs_batch
from agent_tunix.rewards.mixture import Mixture
from agent_tunix.rewards.sample import Sample, Score
from agent_tunix.rewards.turns import EPISODE, Credit


class Unreplayable(RewardError):
    """The stored completions are not enough for the replay that was asked for."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A stored step of a run."""

    step: int  # number of the step, from 1
    samples: Sequence[Sample]  # the N stored completions in whole groups, the members of a group side by side
    scores: Sequence[Score]
    totals: NDArray[np.float64]  # [N] float64 totals that trained; NaN if unscored
    advantages: NDArray[np.float32]  # [N] float32 advantages that trained
    whole: bool = True  # True if every completion of the step is stored
    turn_advantages: NDArray[np.float32] | None = None  # [N, K] of the turns, with credit by turn


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """A stored step with the replay's scores, [N] float64 totals (NaN if unscored) and [N] float32 advantages."""

    recorded: RecordedStep
    scores: Sequence[Score]
    totals: NDArray[np.float64]
    advantages: NDArray[np.float32]
    turn_advantages: NDArray[np.float32] | None = None  # [N, K] of the turns, with credit by turn


def replay(
    mixture: Mixture,
    steps: Iterable[RecordedStep],
    *,
    num_generations: int,
    scaling: str = "group",
    reuse: Collection[str] = (),
    credit: Credit = EPISODE,
) -> Iterator[ReplayedStep]:
    """Score stored steps, in order.

    Args:
        mixture: The reward.
        steps: Stored steps, in order.
        num_generations: G.
        scaling: `grpo.advantage_scaling`.
        reuse: Components whose stored scores are reused. A component without stored scores that now counts is scored.
        credit: `grpo.credit` and its settings.

    Raises:
        Unreplayable: The stored completions lack data that this reward or scaling needs.
        RewardError: A weighted component failed under `on_failure="raise"`.
        ConfigError: The scaling is unknown.
    """
    if scaling not in SCALINGS:
        OWN_ESTIMATORS.get(scaling)
    for recorded in steps:
        check_step(mixture, recorded, num_generations, scaling)
        scores = _score(mixture, recorded, reuse)
        totals = mixture.totals(scores)
        advantages, of_turns = mixture.credited(recorded.samples, scores, num_generations, scaling, credit)
        yield ReplayedStep(recorded, scores, totals, advantages, of_turns)


def contrast(
    first: Mixture,
    second: Mixture,
    steps: Iterable[RecordedStep],
    *,
    num_generations: int,
    scaling: str = "group",
    credit: Credit = EPISODE,
) -> Iterator[ReplayedStep]:
    """Score stored steps with two rewards, as `replay` does. The result of the first becomes `recorded`."""
    replays = [
        replay(mixture, copy, num_generations=num_generations, scaling=scaling, credit=credit)
        for mixture, copy in zip((first, second), itertools.tee(steps), strict=True)
    ]
    for before, after in zip(*replays, strict=True):
        recorded = replace(
            before.recorded,
            scores=before.scores,
            totals=before.totals,
            advantages=before.advantages,
            turn_advantages=before.turn_advantages,
        )
        yield replace(after, recorded=recorded)


def check_step(mixture: Mixture, recorded: RecordedStep, num_generations: int, scaling: str) -> None:
    """Raise Unreplayable if too little of a step is stored."""
    if len(recorded.samples) % num_generations:
        raise Unreplayable(
            f"step {recorded.step} must have complete groups of {num_generations} completions, but "
            f"{len(recorded.samples)} are stored; the run's rollouts are damaged",
            code="damaged_rollouts",
        )
    if recorded.whole and not has_replayed(recorded):
        return
    if needs_batch(scaling) and not recorded.whole:
        raise Unreplayable(
            f"grpo.advantage_scaling={scaling} requires the whole batch, but step {recorded.step} has only a share "
            "stored; replay with grpo.advantage_scaling=group, or train with rollouts.share=1",
            code="partial_batch",
        )
    whole_batch = [c.name for c in mixture.components if getattr(c.reward, "needs_batch", False)]
    if whole_batch:
        raise Unreplayable(
            f"component {whole_batch[0]!r} requires the whole batch, but step {recorded.step} has only a share of it "
            "stored; train with rollouts.share=1 and grpo.replay_groups=0",
            code="partial_batch",
        )


def _score(mixture: Mixture, recorded: RecordedStep, reuse: Collection[str]) -> list[Score]:
    stored_scores = {
        component.name: [score.parts.get(component.name) for score in recorded.scores]
        for component in mixture.components
        if component.name in reuse
    }
    scores = mixture.score(recorded.samples, known=stored_scores)
    return mixture.reweigh(scores, recorded.samples, recorded.step) if has_replayed(recorded) else scores


def has_replayed(recorded: RecordedStep) -> bool:
    """Return True if the step trained groups of earlier steps, with weights of its own."""
    return any(sample.step not in (0, recorded.step) for sample in recorded.samples)


def show_figure(value: float | None) -> str:
    """Return a figure as text."""
    return "none" if value is None else f"{value:.4g}"
