"""Replays of a run with a changed reward, for `agent-tunix rewards replay` and `Run.replay`; loads no JAX."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_tunix.config.schema import Config
from agent_tunix.runs import stored_rewards
from agent_tunix.runs.algorithm_setup import algorithm_parts, register_own_algorithm
from agent_tunix.runs.trust import require_trust, reward_parts
from agent_tunix.tracking.stored_run import StoredRun
from agent_tunix.workbench import replay as replays


@dataclass(frozen=True)
class RewardChange:
    """A change of a run's reward."""

    reward: Any = None  # a value of `training.reward_function` that replaces the reward; None to keep it
    overrides: Sequence[str] = ()  # KEY=VALUE of settings that decide totals and advantages


def replay_run(
    stored: StoredRun,
    change: RewardChange,
    *,
    steps: str | None = None,
    num_shown: int = 10,
    reuse: bool = False,
    trust: bool = False,
) -> tuple[replays.ReplayComparison, list[str]]:
    """Score the stored completions of a run again, and compare totals and advantages with those that trained.

    Args:
        stored: The run.
        change: Changes of its reward.
        steps: Range `FIRST:LAST`; None for all steps.
        num_shown: Number of completions to show, those whose advantage moves most.
        reuse: True to reuse stored scores of unchanged components.
        trust: True to use the code of a run of others.

    Returns:
        The comparison, and one line for each difference between the two rewards.

    Raises:
        Unreplayable: The change, or what is stored, does not allow a replay.
        UntrustedRunError, RewardError, RunDirectoryError: The run or its reward cannot be used.
    """
    config = _prepare(stored, change, trust)
    group_size, scaling = config.grpo.num_generations, config.grpo.advantage_scaling
    mixture = stored_rewards.resolve_for_replay(config, stored, is_own=change.reward is None)
    kept = stored_rewards.unchanged_components(stored, mixture) if reuse else []
    recorded, rows = stored_rewards.recorded_steps(stored, steps), stored.rows
    with stored_rewards.placed([mixture], config) as (ready,):
        replayed = replays.replay(ready, recorded, rows, num_generations=group_size, scaling=scaling, reuse=kept)
        comparison = replays.compare(replayed, group_size, num_shown)
    return comparison, stored_rewards.changed_since_run(stored, mixture)


def repeat_run(
    stored: StoredRun, change: RewardChange, repeats: int, *, steps: str | None = None, trust: bool = False
) -> replays.Repeats:
    """Score the stored completions several times, without the cache of judges; the arguments are of `replay_run`."""
    config = _prepare(stored, change, trust)
    mixtures = [
        stored_rewards.without_cache(stored_rewards.resolve_for_replay(config, stored, is_own=change.reward is None))
        for _ in range(repeats)
    ]
    recorded, rows = stored_rewards.recorded_steps(stored, steps), stored.rows
    group_size, scaling = config.grpo.num_generations, config.grpo.advantage_scaling
    with stored_rewards.placed(mixtures, config) as placed:
        return replays.repeat(placed, recorded, rows, num_generations=group_size, scaling=scaling)


def _prepare(stored: StoredRun, change: RewardChange, trust: bool) -> Config:
    """Return the changed configuration of a run whose code may be used."""
    own = stored.config
    config = stored_rewards.change_reward(own, change.reward, change.overrides)
    own_parts = stored_rewards.own_parts(own, change.reward, change.overrides)
    parts = reward_parts(config, Path.cwd()) + algorithm_parts(config, Path.cwd(), with_loss=False)
    require_trust(stored.root, parts, trust=trust, own_parts=own_parts)
    register_own_algorithm(config, Path.cwd(), with_loss=False)
    stored_rewards.check_tokenizer(stored)
    return config
