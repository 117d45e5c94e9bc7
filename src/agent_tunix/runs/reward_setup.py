"""From a configuration to the reward that scores; loads no JAX."""

from pathlib import Path
from typing import Any

from agent_tunix.config.compose import find_conf_directory
from agent_tunix.config.schema import Config, RewardsConfig
from agent_tunix.rewards import Mixture, resolve_reward
from agent_tunix.rewards.answers.verifiers import VERIFIERS
from agent_tunix.rewards.builtin import correctness
from agent_tunix.rewards.execution import Runner, make_runner
from agent_tunix.rewards.resolve import read_components
from agent_tunix.runs.uploaded_rewards import make_fetch


def resolve_from_config(config: Config, working_directory: Path, run: Path | None = None) -> Mixture:
    """The reward of `reward=` where that group is chosen, else of `training.reward_function`.

    Args:
        config: Whose reward.
        working_directory: Where relative paths and the user's own modules are looked up.
        run: The directory of the run whose configuration it is, where the uploaded rewards that it was trained on are
            kept; None: uploaded rewards come from the store.
    """
    return resolve_reward(
        reward_spec(config),
        modules=config.rewards.modules,
        args=config.rewards.args,
        reward_directories=reward_directories(working_directory),
        working_directory=working_directory,
        on_failure=config.rewards.on_failure,
        convention=config.rewards.convention,
        completions=config.rewards.completions,
        reward_key=config.rewards.reward_key,
        fetch=make_fetch(run),
    )


def components_as_written(config: Config, working_directory: Path) -> dict[str, dict[str, Any]]:
    """The components of that reward as mappings of the configuration, by name."""
    return read_components(
        reward_spec(config),
        reward_directories=reward_directories(working_directory),
        working_directory=working_directory,
    )


def reward_spec(config: Config) -> Any:
    """Return what names the reward: the components of `reward=`, else `training.reward_function`."""
    return config.reward.components or config.training.reward_function


def reward_directories(working_directory: Path) -> list[Path]:
    """Return where files of components lie: in the working directory, then in the package."""
    return [working_directory / "conf" / "reward", find_conf_directory() / "reward"]


def begin_verifiers(mixture: Mixture, execution: str) -> None:
    """Start the process that difficult answers are compared in, where a component compares answers.

    It takes a second, in which the first step would wait. Rewards that run elsewhere have such processes there.

    Args:
        mixture: The reward, before it is placed in workers.
        execution: Where rewards run: `rewards.execution`.
    """
    given = (getattr(component.reward, "given", None) for component in mixture.components)
    is_inline = execution in ("auto", "inline")
    if is_inline and any(getattr(one, "__module__", None) == correctness.__name__ for one in given):
        VERIFIERS.begin()


def make_reward_runner(mixture: Mixture, rewards: RewardsConfig) -> Runner[Mixture]:
    """Where and within which limits the components of a mixture run."""
    return make_runner(
        mixture,
        rewards.execution,
        timeout_s=rewards.timeout_s,
        memory_mb=rewards.memory_mb,
        num_workers=rewards.num_workers,
        max_concurrency=rewards.max_concurrency,
        recycle_after=rewards.recycle_after,
        start_timeout_s=rewards.start_timeout_s,
        allow_unsandboxed=rewards.allow_unsandboxed,
    )
