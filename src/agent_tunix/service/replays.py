"""Replays of a changed source of an uploaded function on the stored completions of a run.

The changed source is checked like an upload, and its code runs only in isolated workers.
"""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from agent_tunix.errors import RewardError, SandboxUnavailableError
from agent_tunix.rewards import Component, Mixture, Outcome, Sample, Score, resolve_reward, settle_completions
from agent_tunix.rewards.advantages import SCALINGS, needs_batch
from agent_tunix.rewards.uploaded import UploadedSource, lines_forgotten
from agent_tunix.runs.stored_rewards import to_recorded
from agent_tunix.service.scoring import BoundedReward, Deadline, in_workers
from agent_tunix.service.settings import ReplayLimits
from agent_tunix.service.threads import WorkThreads
from agent_tunix.store import Format
from agent_tunix.store.uploads import check_upload
from agent_tunix.tracking.live_run import LiveRun
from agent_tunix.tracking.rollouts import RolloutReader, StoredStep
from agent_tunix.web.problems import Problem
from agent_tunix.workbench.replay import (
    Counterpart,
    RecordedStep,
    ReplayComparison,
    ReplayedStep,
    StoredReward,
    Unreplayable,
    choose_counterpart,
    compare,
    contrast,
    replay,
)
from agent_tunix.workbench.replay.comparing import spearman

# Component name of a function that is the whole reward. Its own name may not be a valid component name.
_ALONE = "uploaded"
# Steps of which a replay takes some groups, if it could take only one whole step.
_MOST_PARTS = 4
_SETTLING_S = 10.0
_SHORTEST_SETTLING_S = 0.25


@dataclass(frozen=True, slots=True)
class StepRange:
    """Range of steps of a run, both ends included; None stands for the first or last step of the run."""

    first: int | None = None
    last: int | None = None


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Request to score at most `most` completions with the bytes of a changed source.

    `against` names the counterpart of the comparison; see `choose_counterpart`.
    """

    saved: UploadedSource
    changed: bytes
    steps: StepRange = field(default_factory=StepRange)
    most: int = 500
    against: str | None = None


@dataclass(frozen=True, slots=True)
class ValueChange:
    """Values of the compared component or total, with the saved source (before) and the changed source (after)."""

    mean_before: float | None  # mean over the completions with a value; None if there are none
    mean_after: float | None
    changed: int  # number of completions with another value or outcome
    rank_correlation: float | None  # Spearman's, over completions with a value in both; None if undefined
    # Outcome → number of completions. Completions for which the component was not computed do not count.
    outcomes_before: Mapping[str, int]
    outcomes_after: Mapping[str, int]  # the same for the changed source
    details: Mapping[str, str]  # outcome other than `scored` → detail of the first such completion


@dataclass(frozen=True, slots=True)
class Replayed:
    """Result of a changed source on a run's stored completions."""

    counterpart: Counterpart
    steps: tuple[int, ...]
    is_all: bool  # True if these are all completions of the requested range
    in_time: bool  # True if scoring ended before the deadline
    values: ValueChange
    totals: ReplayComparison
    reordered_groups: int  # number of groups in which two completions swapped their order by total
    prompts: Mapping[str, str]  # rollout id → prompt, of the completions that move most
    problems: tuple[str, ...]
    seconds: float


def replay_source(
    run: LiveRun,
    request: ReplayRequest,
    limits: ReplayLimits,
    allow_unsandboxed: bool = False,
    ended: threading.Event | None = None,
) -> Replayed:
    """Score a run's stored completions with a changed source, in its own workers, and compare the results.

    Blocks until all are scored or out of time. Setting `ended` ends the replay at once.

    Raises:
        UploadError: The changed source is not a reward function.
        Unreplayable: The stored completions cannot answer the request.
        RewardError: The function cannot be called with these completions.
        SandboxUnavailableError: This machine cannot isolate the function, and it may not run without isolation.
    """
    started = time.monotonic()
    check_upload(request.changed, cast(Format, request.saved.format), request.saved.function)
    components = run.reward_components
    counterpart = choose_counterpart(components, request.saved, request.against)
    most = max(1, min(request.most, limits.max_completions))
    selection = _Selection(run.root / "rollouts", request.steps, most)
    settings = selection.first.settings
    if settings.advantage_scaling not in SCALINGS:
        raise Unreplayable(
            f"grpo.advantage_scaling must be a built-in one here, but is {settings.advantage_scaling!r}; use "
            "`agent-tunix rewards replay`, which runs your own estimator",
            code="own_estimator",
        )
    deadline = Deadline("replay", limits.total_timeout_s, ended)
    name = counterpart.name if counterpart.is_component else _ALONE
    args = components[name].get("args") if counterpart.is_component else None
    # A failure that would end training only leaves a completion unscored here.
    on_failure = "zero" if settings.on_failure == "zero" else "exclude"

    def alone(reward: BoundedReward) -> Mixture:
        return Mixture([Component(_ALONE, reward)], on_failure=on_failure)

    with contextlib.ExitStack() as stack:

        def place(source: UploadedSource) -> BoundedReward:
            sample = selection.first.samples[0]
            resolving = _resolved(source, name, run.config or {}, args, sample, limits, deadline, allow_unsandboxed)
            return stack.enter_context(resolving)

        reward = place(replace(request.saved, content=request.changed, origin="the editor"))
        whole = needs_batch(settings.advantage_scaling) or reward.needs_batch
        steps = _while_there_is_time(selection.steps(whole=whole), deadline)
        group_size = settings.num_generations
        keys: dict[str, Any] = {
            "num_generations": group_size,
            "scaling": settings.advantage_scaling,
            "credit": settings.credit,
        }
        if counterpart.is_component:
            stored = StoredReward(components, name, reward, on_failure)
            results = replay(stored, stored.following(steps), (), **keys)
        elif counterpart.kind == "saved":
            results = contrast(alone(place(request.saved)), alone(reward), steps, (), **keys)
        else:
            results = replay(alone(reward), steps, (), **keys)
        replayed = list(results)
        in_time = deadline.left_s > 0
    totals = compare(replayed, group_size, limits.movers)
    prompts = {sample.rollout_id: sample.prompt for step in replayed for sample in step.recorded.samples}
    return Replayed(
        counterpart=counterpart,
        steps=tuple(step.recorded.step for step in replayed),
        is_all=selection.is_all and in_time,
        in_time=in_time,
        values=_compare_values(replayed, name if counterpart.is_component else None),
        totals=totals,
        reordered_groups=sum(_num_reordered(step, group_size) for step in replayed),
        prompts={mover.rollout_id: prompts[mover.rollout_id] for mover in totals.movers},
        problems=tuple(selection.problems),
        seconds=time.monotonic() - started,
    )


@contextlib.contextmanager
def _resolved(
    source: UploadedSource,
    name: str,
    config: Mapping[str, Any],
    args: object,
    sample: Sample,
    limits: ReplayLimits,
    deadline: Deadline,
    allow_unsandboxed: bool,
) -> Iterator[BoundedReward]:
    """Yield a reward in workers that is called as the run calls its rewards, as far as its configuration is valid.

    Raises:
        RewardError: The reward cannot be called, for example because the completions lack a column that it needs.
        SandboxUnavailableError: This machine cannot isolate the reward, and it may not run without isolation.
    """
    rewards = config.get("rewards")
    rewards = rewards if isinstance(rewards, dict) else {}
    completions, key = rewards.get("completions"), rewards.get("reward_key")
    with lines_forgotten(source):
        (component,) = resolve_reward(
            {name: {"function": source.id, "args": args if isinstance(args, dict) else {}}},
            completions=completions if completions in ("text", "messages") else "auto",
            reward_key=key if isinstance(key, str) else None,
            fetch=lambda _: source,
        ).components
        component.reward.check_parameters(sample.columns)
        settling_s = max(min(_SETTLING_S, deadline.left_s), _SHORTEST_SETTLING_S)
        settle_completions(
            [component.reward],
            sample,
            timeout_s=min(limits.timeout_s, settling_s),
            start_timeout_s=settling_s,
            memory_mb=limits.memory_mb,
            allow_unsandboxed=allow_unsandboxed,
        )
        with in_workers(component.reward, limits, limits.workers, deadline, allow_unsandboxed) as reward:
            yield reward


def _while_there_is_time(steps: Iterator[RecordedStep], deadline: Deadline) -> Iterator[RecordedStep]:
    """Yield the first step, and further steps until the deadline."""
    for step in steps:
        yield step
        if not deadline.left_s:
            return


# --- selection of completions -----------------------------------------------------------------------------------------


class _Selection:
    """Whole groups of stored steps, at most `most` completions, spread evenly over the range if not all of them fit.

    Attributes:
        first: The first step of the range, as much of it as fits.
        is_all: True if nothing of the range has been left out so far.
    """

    def __init__(self, directory: Path, wanted: StepRange, most: int) -> None:
        self._reader = RolloutReader(directory, skips_damaged=True)
        self._most = most
        stored = list(self._reader.places())
        damaged = f"; unreadable: {'; '.join(self.problems)}" if self._reader.damaged else ""
        if not stored:
            raise Unreplayable(
                f"the run has no stored completions; a running run writes them with each checkpoint{damaged}",
                code="missing_completions",
            )
        first, last = (wanted.first or 0, stored[-1].step if wanted.last is None else wanted.last)
        self._places = [place for place in stored if first <= place.step <= last]
        if not self._places:
            raise Unreplayable(
                f"no completions of these steps are stored; choose steps from {stored[0].step} to {stored[-1].step}"
                f"{damaged}",
                code="missing_steps",
            )
        group_size = self._places[0].settings.num_generations
        if group_size > most:
            raise Unreplayable(
                f"a replay accepts groups of at most {most} completions, not {group_size}", code="exceeded_limit"
            )
        self._group_size = group_size
        self.first: StoredStep = self._places[0].read_step(self._fitting(most))
        self.is_all = True

    @property
    def problems(self) -> list[str]:
        """Descriptions of what could not be read so far."""
        return [f"parts of {path.name} cannot be read and are skipped" for path in self._reader.damaged]

    def steps(self, *, whole: bool) -> Iterator[RecordedStep]:
        """Yield the steps, in order; with `whole`, only complete ones.

        Raises:
            Unreplayable: `whole` is true, and a step does not fit.
        """
        size = self._places[0].num_rows
        if whole and size > self._most:
            raise Unreplayable(
                f"this reward requires all {size} completions of a step, but a replay accepts at most {self._most}",
                code="exceeded_limit",
            )
        count = max(self._most // size, 1)
        if count == 1 and not whole:  # of large steps, parts of several
            count = max(1, min(_MOST_PARTS, self._most // self._group_size))
        numbers = np.linspace(0, len(self._places) - 1, min(count, len(self._places)))
        places = [self._places[number] for number in sorted({round(number) for number in numbers})]
        self.is_all = len(places) == len(self._places)
        room = self._most
        for place in places:
            taken = min(place.num_rows, self._fitting(room if whole else min(room, self._most // len(places))))
            self.is_all = self.is_all and taken == place.num_rows
            if not taken or (whole and taken < place.num_rows):
                return
            with self._reader.skipping(place.path):
                room -= taken
                yield to_recorded(place.read_step(taken))

    def _fitting(self, room: int) -> int:
        """Return the number of completions of whole groups that fit."""
        return room // self._group_size * self._group_size


# --- comparison of values ---------------------------------------------------------------------------------------------


def _compare_values(steps: Sequence[ReplayedStep], component: str | None) -> ValueChange:
    """Compare the values of a component, or of the total for None."""

    def part(score: Score) -> Score | None:
        return score if component is None else score.parts.get(component)

    pairs = [
        (part(old), part(new)) for step in steps for old, new in zip(step.recorded.scores, step.scores, strict=True)
    ]
    before, after = ([pair[side] for pair in pairs] for side in (0, 1))
    before_N, after_N = (
        np.array([np.nan if score is None or score.value is None else score.value for score in scores], np.float64)
        for scores in (before, after)
    )
    counts = [Counter(score.outcome for score in scores if score is not None) for scores in (before, after)]
    failed = [score for score in after if score is not None and score.outcome is not Outcome.SCORED]
    return ValueChange(
        mean_before=_mean(before_N),
        mean_after=_mean(after_N),
        changed=sum(_result(old) != _result(new) for old, new in pairs),
        rank_correlation=spearman(before_N, after_N),
        outcomes_before={outcome.value: counts[0][outcome] for outcome in Outcome},
        outcomes_after={outcome.value: counts[1][outcome] for outcome in Outcome},
        details={score.outcome: score.detail for score in reversed(failed)},
    )


def _result(score: Score | None) -> tuple[float | None, Outcome] | None:
    return None if score is None else (score.value, score.outcome)


def _mean(values_N: "np.ndarray[Any, np.dtype[np.float64]]") -> float | None:
    known = values_N[~np.isnan(values_N)]
    return float(known.mean()) if known.size else None


def _num_reordered(step: ReplayedStep, num_generations: int) -> int:
    """Return the number of groups in which two completions swapped their order; NaN has no order."""
    totals = (totals.reshape(-1, num_generations) for totals in (step.recorded.totals, step.totals))
    before, after = (np.sign(totals_PG[:, :, None] - totals_PG[:, None, :]) for totals_PG in totals)
    return int((before * after < 0).any(axis=(1, 2)).sum())


class Replays:
    """Runner of replays, a few at a time."""

    def __init__(self, limits: ReplayLimits, allow_unsandboxed: bool = False) -> None:
        self._limits = limits
        self._allow_unsandboxed = allow_unsandboxed
        self._pool = WorkThreads("replays", limits.at_once, limits.at_once, "replays are running, the most allowed")
        self._ended = threading.Event()

    async def run(self, run: LiveRun, request: ReplayRequest) -> Replayed:
        """Run a replay; see `replay_source`.

        Raises:
            Problem: All places are taken, or the request cannot be replayed.
            UploadError: The changed source is not a reward function.
        """
        try:
            return await self._pool.run(replay_source, run, request, self._limits, self._allow_unsandboxed, self._ended)
        except SandboxUnavailableError as error:
            raise Problem(503, "sandbox_unavailable", str(error)) from error
        except RewardError as error:
            raise Problem(400, "cannot_be_replayed", str(error)) from error

    def close(self) -> None:
        """End running replays."""
        self._ended.set()
        self._pool.close()
