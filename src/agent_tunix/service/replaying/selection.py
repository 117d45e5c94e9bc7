"""Selection of a run's stored completions for a replay: whole groups, from steps spread over the requested range."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from agent_tunix.rewards.mixture import totals_that_train
from agent_tunix.service.runs.rollouts import StoredRollouts
from agent_tunix.service.runs.selection import Reading
from agent_tunix.tracking.rollouts import StoredStep
from agent_tunix.workbench.replay import RecordedStep, Unreplayable


@dataclass(frozen=True, slots=True)
class StepRange:
    """Range of steps of a run, both ends included; None stands for the first or last step of the run."""

    first: int | None = None
    last: int | None = None


# Steps of which a replay takes some groups, if it could take only one whole step.
_MOST_PARTS = 4


class Selection:
    """Stored steps of a range with at most `most` completions, spread evenly over the range if not all steps fit.

    Attributes:
        first: The first step of the range, as much of it as fits.
        is_all: True if nothing of the range has been left out so far.
    """

    def __init__(self, rollouts: StoredRollouts, wanted: StepRange, most: int) -> None:
        self._rollouts = rollouts
        self._most = most
        self._reading = Reading()
        self.is_all = True
        span = rollouts.span()
        if span is None:
            raise Unreplayable(
                "the run has no stored completions; a running run writes them with each checkpoint",
                code="missing_completions",
            )
        low = span[0] if wanted.first is None else max(wanted.first, span[0])
        self._last = span[1] if wanted.last is None else min(wanted.last, span[1])
        found = self._read(low, most) if low <= self._last else None
        if found is None or found[0].step > self._last:
            told = f"; unreadable: {'; '.join(self.problems)}" if self.problems else ""
            raise Unreplayable(
                f"no completions of these steps are stored; choose steps from {span[0]} to {span[1]}{told}",
                code="missing_steps",
            )
        self.first, self._size = found
        if len(self.first.samples) > most:
            raise Unreplayable(
                f"a replay accepts groups of at most {most} completions, not {len(self.first.samples)}",
                code="exceeded_limit",
            )

    @property
    def problems(self) -> list[str]:
        """Descriptions of what could not be read so far."""
        return self._reading.problems

    def steps(self, *, whole: bool) -> Iterator[RecordedStep]:
        """Yield the steps, in order; with `whole`, only complete ones.

        Raises:
            Unreplayable: `whole` is true, and a step does not fit.
        """
        if whole and self._size > self._most:
            raise Unreplayable(
                f"this reward requires all {self._size} completions of a step, but a replay accepts at most "
                f"{self._most}",
                code="exceeded_limit",
            )
        done, room = -1, self._most
        steps = self._spread(whole)
        share = self._most // len(steps)
        for step in steps:
            if room < self.first.settings.num_generations:
                self.is_all = False
                return
            if step <= done:
                continue
            found = self._read(step, room if whole else min(room, share))
            if found is None or found[0].step > self._last:
                return
            taken, size = found
            if len(taken.samples) > room or (whole and len(taken.samples) < size):
                self.is_all = False
                return
            self.is_all = self.is_all and len(taken.samples) == size
            done, room = taken.step, room - len(taken.samples)
            yield _recorded(taken)

    def _spread(self, whole: bool) -> list[int]:
        """Return evenly spread steps. For each, the first stored step from it on is taken."""
        count = max(self._most // self._size, 1)
        if count == 1 and not whole:  # of large steps, parts of several
            count = max(1, min(_MOST_PARTS, self._most // max(self.first.settings.num_generations, 1)))
        there = self._last - self.first.step + 1
        self.is_all = count >= there
        return sorted({round(step) for step in np.linspace(self.first.step, self._last, min(count, there))})

    def _read(self, first: int, most: int) -> tuple[StoredStep, int] | None:
        return self._rollouts.scored_step(first, most, self._reading)


def _recorded(stored: StoredStep) -> RecordedStep:
    totals = totals_that_train(stored.scores, stored.settings.on_failure)
    return RecordedStep(stored.step, stored.samples, stored.scores, totals, stored.advantages, stored.is_whole)
