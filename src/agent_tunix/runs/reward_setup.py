"""The reward of a configuration. Importing this module does not load JAX."""

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
    """Return the reward of the group `reward=` if it is chosen, else of `training.reward_function`.

    Args:
        config: The configuration.
        working_directory: Base directory of relative paths and of the user's own modules.
        run: Directory of the run that the configuration belongs to, which holds the uploaded rewards it was trained
            on; None to fetch uploaded rewards from the store.
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
    """Return the components of the reward by name, as the configuration writes them."""
    return read_components(
        reward_spec(config),
        reward_directories=reward_directories(working_directory),
        working_directory=working_directory,
    )


def reward_spec(config: Config) -> Any:
    """Return the value that names the reward: the components of `reward=`, else `training.reward_function`."""
    return config.reward.components or config.training.reward_function


def reward_directories(working_directory: Path) -> list[Path]:
    """Return the directories of component files: that of the working directory, then that of the package."""
    return [working_directory / "conf" / "reward", find_conf_directory() / "reward"]


def begin_verifiers(mixture: Mixture, execution: str) -> None:
    """Start the process that compares difficult answers, if an inline component needs it.

    The process takes a second to start, and the first step would wait for it. Rewards in workers start their own.

    Args:
        mixture: The reward, before it is placed in workers.
        execution: Value of `rewards.execution`.
    """
    given = (getattr(component.reward, "given", None) for component in mixture.components)
    is_inline = execution in ("auto", "inline")
    if is_inline and any(getattr(one, "__module__", None) == correctness.__name__ for one in given):
        VERIFIERS.begin()


def make_reward_runner(mixture: Mixture, rewards: RewardsConfig) -> Runner[Mixture]:
    """Return the runner of a mixture, which holds its workers and applies its limits."""
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
