"""Replay of a run: its reward, original or changed, and its stored completions.

Importing this module does not load JAX.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_tunix.config.compose import with_overrides
from agent_tunix.config.schema import Config, RewardGroupConfig, RewardsConfig
from agent_tunix.errors import ConfigError, ModelError, RewardError
from agent_tunix.policy.files.directory import find_cached_directory, fingerprint_tokenizer
from agent_tunix.rewards import Component, Mixture, fingerprint, settle_completions
from agent_tunix.rewards.fingerprint import changes
from agent_tunix.rewards.judges.base import Judge
from agent_tunix.rewards.mixture import totals_that_train
from agent_tunix.rewards.turns import Credit
from agent_tunix.runs.algorithm_setup import algorithm_parts, register_own_algorithm
from agent_tunix.runs.code_parts import CodePart
from agent_tunix.runs.reward_setup import components_without_code, is_change, make_reward_runner, resolve_from_config
from agent_tunix.runs.trust import require_trust, reward_parts
from agent_tunix.tracking.rollouts import StoredStep
from agent_tunix.tracking.stored_run import StoredRun
from agent_tunix.workbench import replay as replays
from agent_tunix.workbench.replay import RecordedStep, Unreplayable

# Keys that determine the total and the advantage of a given completion. All other keys determine which completions are
# sampled, or what training does with the advantages.
_REPLAYABLE = (
    *("training.reward_function", "reward", "rewards", "grpo.advantage_scaling"),
    *("grpo.credit", "grpo.discount", "grpo.step_advantage_weight", "grpo.anchor_state", "grpo.history_turns"),
)


def change_reward(config: Config, reward: Any, overrides: Sequence[str]) -> Config:
    """Return a run's configuration with another reward.

    Args:
        config: The run's.
        reward: Replaces `training.reward_function` and the components of `reward=`; None to keep them.
        overrides: Further overrides, KEY=VALUE. `reward=NAME` names a file of `conf/reward/`.

    Raises:
        Unreplayable: An override changes something that a replay cannot show.
        ConfigError: An override cannot be parsed, or its key is unknown.
    """
    kept = []
    for override in overrides:
        # `+` and `++` add keys when Hydra composes a configuration. Here all keys exist.
        key, _, value = override.lstrip("+").partition("=")
        if key == "reward":
            reward = value
        elif any(key == allowed or key.startswith(f"{allowed}.") for allowed in _REPLAYABLE):
            kept.append(override)
        elif not key.lstrip("~").replace(".", "").isidentifier():
            raise Unreplayable(
                f"{override} must be an override KEY=VALUE, for example reward.components.NAME.weight=0.5"
            )
        else:
            raise Unreplayable(
                f"{override}: {key.lstrip('~')} cannot be changed in a replay, because it affects sampling or the "
                "use of the advantages; change only training.reward_function, reward, rewards.*, "
                "grpo.advantage_scaling and grpo.credit with its settings, or start a new run"
            )
    if reward is not None:
        config = dataclasses.replace(
            config,
            training=dataclasses.replace(config.training, reward_function=reward),
            reward=dataclasses.replace(config.reward, components={}),
        )
    return with_overrides(config, kept)


def own_parts(config: Config, reward: Any, overrides: Sequence[str]) -> list[CodePart]:
    """Return the code parts that a reward uses because of the user's changes alone; they need no trust in the run.

    Args:
        config: The run's.
        reward: Reward of `change_reward`.
        overrides: Overrides of `change_reward`.
    """
    own = change_reward(Config(), reward, overrides)
    added = {name: one for name, one in own.reward.components.items() if not is_change(one)}
    own = dataclasses.replace(own, reward=RewardGroupConfig(added))
    parts = reward_parts(own, Path.cwd()) + algorithm_parts(own, Path.cwd())
    # The user may change arguments of a judge that the run names. So the judge is resolved with the user's arguments
    # and without the run's.
    functions = {
        name: {"function": one["function"]} for name, one in components_without_code(config, Path.cwd()).items()
    }
    named = dataclasses.replace(config, rewards=RewardsConfig(), reward=RewardGroupConfig(functions))
    changed = reward_parts(change_reward(named, reward, overrides), Path.cwd(), with_defaults=False)
    return [*parts, *(part for part in changed if part.kind == "judge")]


def check_tokenizer(stored: StoredRun) -> None:
    """Refuse a run whose tokenizer has changed since its completions were sampled.

    Rewards receive the token counts and ids of stored completions, which come from the old tokenizer. If the model is
    not on this machine, no comparison is possible and the run is accepted.

    Raises:
        Unreplayable: The tokenizer has changed; the message names its directory.
    """
    before = stored.environment.get("tokenizer_fingerprint")
    directory = None
    with contextlib.suppress(ModelError):
        directory = find_cached_directory(stored.config.model)
    now = fingerprint_tokenizer(directory) if directory is not None else None
    if before is not None and now is not None and now != before:
        raise Unreplayable(
            f"the tokenizer of {directory} has changed since the run ({before} then, {now} now): the stored token "
            "counts and ids no longer match it; restore it, or train again"
        )


def recorded_steps(stored: StoredRun, steps: str | None = None) -> Iterator[RecordedStep]:
    """Return the stored steps of a run; they are read as they are asked for.

    Args:
        stored: The run.
        steps: Range `FIRST:LAST`, which includes both ends and may omit either; None for all steps.

    Raises:
        ConfigError: `steps` is not a range, or a range without a stored step.
        RewardError: No completion is stored.
        RunDirectoryError: A file is damaged.
    """
    first, last = _range(steps)
    available = stored.rollouts.steps()
    if not available:
        raise RewardError(
            f"{stored.rollouts.directory} contains no completions: the run ended before it saved any, it is a "
            "supervised start, or rollouts.share was 0",
            code="missing_completions",
        )
    wanted = [step for step in available if first <= step and (last is None or step <= last)]
    if not wanted:
        raise ConfigError(
            f"no step of {steps} is stored in {stored.rollouts.directory}; steps {available[0]} to {available[-1]} are",
            code="invalid_request",
        )
    return map(to_recorded, stored.rollouts.iterate(steps=wanted))


def to_recorded(stored: StoredStep) -> RecordedStep:
    """Return a stored step as a replay takes it."""
    totals = totals_that_train(stored.scores, stored.settings.on_failure)
    return RecordedStep(
        stored.step, stored.samples, stored.scores, totals, stored.advantages, stored.is_whole, stored.turn_advantages
    )


def _range(steps: str | None) -> tuple[int, int | None]:
    if steps is None:
        return 0, None
    first, colon, last = steps.partition(":")
    if not all(end.isdecimal() or not end for end in (first, last)) or not (first or last):
        raise ConfigError(
            f"steps must be FIRST:LAST, for example 10:20, 10: or :20, not {steps!r}", code="invalid_request"
        )
    low = int(first) if first else 0
    return low, (int(last) if last else None) if colon else low


def resolve_for_replay(config: Config, stored: StoredRun, *, is_own: bool = True) -> Mixture:
    """Return the reward of a configuration, ready to score a run's stored completions.

    Args:
        config: The configuration.
        stored: The run.
        is_own: True if the configuration names the run's own reward. An uploaded reward is then the version that the
            run was trained on, not the latest one.

    Raises:
        RewardError: The reward cannot be found.
        Unreplayable: The reward requires a column that the completions do not have.
    """
    mixture = resolve_from_config(config, Path.cwd(), stored.root if is_own else None)
    sample = next((step.samples[0] for step in stored.rollouts.iterate(steps=stored.rollouts.steps()[:1])), None)
    if sample is not None:
        try:
            mixture.check_parameters(sample.columns)
        except RewardError as error:
            raise Unreplayable(f"the stored completions cannot be scored with this reward: {error}") from error
        rewards = [component.reward for component in mixture.components]
        settings = config.rewards
        settle_completions(
            rewards,
            sample,
            timeout_s=settings.timeout_s,
            start_timeout_s=settings.start_timeout_s,
            memory_mb=settings.memory_mb,
            allow_unsandboxed=settings.allow_unsandboxed,
        )
    return mixture


@contextlib.contextmanager
def placed(mixtures: Sequence[Mixture], config: Config) -> Iterator[list[Mixture]]:
    """Place mixtures in workers as the configuration says, for as long as the context is open."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(make_reward_runner(mixture, config.rewards)).reward for mixture in mixtures]


def without_cache(mixture: Mixture) -> Mixture:
    """Return the reward with judges that do not use their cache."""
    return Mixture(
        [_without_cache(component) for component in mixture.components],
        on_failure=mixture.on_failure,
        name=mixture.name,
    )


def _without_cache(component: Component) -> Component:
    reward = component.reward
    if not isinstance(reward, Judge):
        return component
    return dataclasses.replace(component, reward=reward.bind(reward.name, {**reward.args, "cache": False}))


def unchanged_components(stored: StoredRun, mixture: Mixture) -> list[str]:
    """Return the components that have not changed since the run.

    Their source, files, arguments and way of being called are the same, and so are the versions of the packages. If a
    version differs, the list is empty.
    """
    before, now = stored.fingerprint, fingerprint(mixture).to_data()
    if before.get("versions") != now["versions"]:
        return []
    deciding = ("function", "source", "files", "called", "args")
    old = before.get("components", {})
    return [
        name
        for name, component in now["components"].items()
        if name in old and all(old[name].get(key) == component[key] for key in deciding)
    ]


def changed_since_run(stored: StoredRun, mixture: Mixture) -> list[str]:
    """Return one line for each difference between a reward and that of the run."""
    return changes(stored.fingerprint, fingerprint(mixture).to_data())


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
    mixture = resolve_for_replay(config, stored, is_own=change.reward is None)
    kept = unchanged_components(stored, mixture) if reuse else []
    with placed([mixture], config) as (ready,):
        replayed = replays.replay(
            *(ready, recorded_steps(stored, steps)),
            num_generations=group_size,
            scaling=scaling,
            reuse=kept,
            credit=Credit.of(config.grpo),
        )
        comparison = replays.compare(replayed, group_size, num_shown)
    return comparison, changed_since_run(stored, mixture)


def score_twice(
    stored: StoredRun, change: RewardChange, *, steps: str | None = None, num_shown: int = 10, trust: bool = False
) -> replays.ReplayComparison:
    """Score the stored completions twice, without the cache of judges, and compare; arguments are of `replay_run`."""
    config = _prepare(stored, change, trust)
    mixtures = [without_cache(resolve_for_replay(config, stored, is_own=change.reward is None)) for _ in range(2)]
    with placed(mixtures, config) as (first, second):
        return contrast_on_run(first, second, stored, config, steps=steps, num_shown=num_shown)


def contrast_on_run(
    first: Mixture, second: Mixture, stored: StoredRun, config: Config, *, steps: str | None, num_shown: int
) -> replays.ReplayComparison:
    """Compare the scores of two rewards on the stored completions of a run; the arguments are of `replay_run`."""
    group_size, scaling = config.grpo.num_generations, config.grpo.advantage_scaling
    contrasted = replays.contrast(
        *(first, second, recorded_steps(stored, steps)),
        num_generations=group_size,
        scaling=scaling,
        credit=Credit.of(config.grpo),
    )
    return replays.compare(contrasted, group_size, num_shown)


def _prepare(stored: StoredRun, change: RewardChange, trust: bool) -> Config:
    """Return the changed configuration of a run whose code may be used."""
    own = stored.config
    config = change_reward(own, change.reward, change.overrides)
    named_by_user = own_parts(own, change.reward, change.overrides)
    parts = reward_parts(config, Path.cwd()) + algorithm_parts(config, Path.cwd(), with_loss=False)
    require_trust(stored.root, parts, trust=trust, own_parts=named_by_user)
    register_own_algorithm(config, Path.cwd(), with_loss=False)
    check_tokenizer(stored)
    return config
