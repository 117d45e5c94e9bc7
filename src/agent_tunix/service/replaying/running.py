"""Replays, and the threads that run them."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, cast

from agent_tunix.errors import RewardError, SandboxUnavailableError
from agent_tunix.rewards import Component, Mixture
from agent_tunix.rewards.advantages import SCALINGS, needs_batch
from agent_tunix.rewards.uploaded import UploadedSource
from agent_tunix.service.pools import WorkThreads
from agent_tunix.service.problems import Problem
from agent_tunix.service.replaying.result import Replayed, Tally
from agent_tunix.service.replaying.scoring import BoundedReward, CalledAs, Deadline, in_workers
from agent_tunix.service.replaying.selection import Selection, StepRange
from agent_tunix.service.replaying.stored_reward import StoredReward, choose_counterpart
from agent_tunix.service.runs.view import RunView
from agent_tunix.service.settings import ReplayLimits
from agent_tunix.store import Format, Key
from agent_tunix.store.uploads import check_upload
from agent_tunix.workbench.replay import RecordedStep, ReplayedStep, Unreplayable, compare, contrast, replay

# Component name of a function that is the whole reward. Its own name may not be a valid component name.
_ALONE = "uploaded"


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


def replay_source(
    run: RunView,
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
    check_upload(request.changed, cast(Format, request.saved.format))
    components = run.reward_components or {}
    counterpart = choose_counterpart(components, request.saved, request.against)
    selection = Selection(run.rollouts, request.steps, max(1, min(request.most, limits.max_completions)))
    settings = selection.first.settings
    if settings.advantage_scaling not in SCALINGS:
        raise Unreplayable(
            f"grpo.advantage_scaling must be a built-in one here, but is {settings.advantage_scaling!r}; use "
            "`agent-tunix rewards replay`, which runs your own estimator",
            code="own_estimator",
        )
    deadline = Deadline(limits.total_timeout_s, ended)
    name = counterpart.name if counterpart.is_component else _ALONE
    called = _called_as(run.config or {}, components.get(name, {}).get("args") if counterpart.is_component else {})
    with contextlib.ExitStack() as stack:

        def place(source: UploadedSource) -> BoundedReward:
            sample = selection.first.samples[0]
            return stack.enter_context(in_workers(source, name, called, sample, limits, deadline, allow_unsandboxed))

        reward = place(replace(request.saved, content=request.changed, origin="the editor"))
        whole = needs_batch(settings.advantage_scaling) or reward.needs_batch
        recorded = _while_there_is_time(selection.steps(whole=whole), deadline)
        # A failure that would end training only leaves a completion unscored here.
        on_failure = "zero" if settings.on_failure == "zero" else "exclude"
        how: _How = {"num_generations": settings.num_generations, "scaling": settings.advantage_scaling}
        if counterpart.is_component:
            replayed = _replay_component(StoredReward(components, name, reward, on_failure), recorded, how)
        elif counterpart.kind == "saved":
            saved = place(request.saved)
            replayed = contrast(_alone(saved, on_failure), _alone(reward, on_failure), recorded, (), **how)
        else:
            replayed = replay(_alone(reward, on_failure), recorded, (), **how)
        tally = Tally(name if counterpart.is_component else None, settings.num_generations)
        totals = compare(tally.pass_on(replayed), settings.num_generations, limits.movers)
        in_time = deadline.left_s > 0
    return Replayed(
        counterpart=counterpart,
        steps=tuple(tally.steps),
        is_all=selection.is_all and in_time,
        in_time=in_time,
        values=tally.values(),
        totals=totals,
        reordered_groups=tally.reordered_groups,
        prompts={mover.rollout_id: tally.prompts[mover.rollout_id] for mover in totals.movers},
        problems=tuple(selection.problems),
        seconds=time.monotonic() - started,
    )


class _How(TypedDict):
    """Settings of advantages."""

    num_generations: int
    scaling: str


def _alone(reward: BoundedReward, on_failure: str) -> Mixture:
    return Mixture([Component(_ALONE, reward)], on_failure=on_failure)


def _replay_component(stored: StoredReward, steps: Iterator[RecordedStep], how: _How) -> Iterator[ReplayedStep]:
    for step in steps:
        yield from replay(stored.at(step), [step], (), **how)


def _while_there_is_time(steps: Iterator[RecordedStep], deadline: Deadline) -> Iterator[RecordedStep]:
    """Yield the first step, and further steps until the deadline."""
    for step in steps:
        yield step
        if not deadline.left_s:
            return


def _called_as(config: dict[str, Any], args: object) -> CalledAs:
    """Return the settings by which the run calls rewards, as far as its configuration is valid."""
    rewards = config.get("rewards")
    rewards = rewards if isinstance(rewards, dict) else {}
    completions, key = rewards.get("completions"), rewards.get("reward_key")
    return CalledAs(
        completions if completions in ("text", "messages") else "auto",
        key if isinstance(key, str) else None,
        args if isinstance(args, dict) else {},
    )


class Replays:
    """Runner of replays, a few at a time."""

    def __init__(self, limits: ReplayLimits, allow_unsandboxed: bool = False) -> None:
        self._limits = limits
        self._allow_unsandboxed = allow_unsandboxed
        self._pool = WorkThreads("replays", limits.at_once, limits.at_once, "replays are running, the most allowed")
        self._ended = threading.Event()

    async def run(self, key: Key, run: RunView, request: ReplayRequest) -> Replayed:
        """Run a replay for a key; see `replay_source`.

        Raises:
            Problem: All places are taken, half of them are by this key, or the request cannot be replayed.
            UploadError: The changed source is not a reward function.
        """
        try:
            return await self._pool.run_for(
                key, replay_source, run, request, self._limits, self._allow_unsandboxed, self._ended
            )
        except SandboxUnavailableError as error:
            raise Problem(503, "sandbox_unavailable", str(error)) from error
        except RewardError as error:
            raise Problem(400, "cannot_be_replayed", str(error)) from error

    def close(self) -> None:
        """End running replays."""
        self._ended.set()
        self._pool.close()
