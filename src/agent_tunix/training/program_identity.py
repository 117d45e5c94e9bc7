"""What the compiled programs of a run follow from, so that another run finds those that are its own, and only those."""

import dataclasses
from pathlib import Path
from typing import Any

from agent_tunix.config.schema import Config
from agent_tunix.policy.foreseen import Foreseen
from agent_tunix.policy.programs import identity, kept_directory

# Of the configuration, what no compiled program follows from; whatever is not named here is taken to matter.
_NOT_COMPILED = (
    *("data", "prompt", "rewards", "reward", "stopping", "evaluation", "tracking", "rollouts"),
    *("seed", "project_name", "wandb_disabled", "profile"),
)
_NOT_COMPILED_OF_TRAINING = (
    *("reward_function", "checkpoint_dir", "log_dir", "resume", "init_checkpoint", "save_interval_steps"),
    *("eval_every_n_steps", "num_test_batches", "log_reward_stats", "log_rewards", "save_reward_analysis", "log_level"),
)


def identify(config: Config, directory: Path, num_steps: int) -> str:
    """What the compiled programs of a run follow from, besides their arguments.

    Args:
        config: The run's, with its prompts settled.
        directory: The model's.
        num_steps: Those that the run is to take.
    """
    architecture = (directory / "config.json").read_text()
    return identity(config=_compiled(config), architecture=architecture, num_steps=num_steps)


def foresee(config: Config) -> Foreseen | None:
    """Begin to load the programs that a run of this configuration asked for last; None where none are kept."""
    directory = kept_directory()
    return None if directory is None else Foreseen(directory, identity(config=_compiled(config)))


def _compiled(config: Config) -> dict[str, Any]:
    """Of the configuration, what programs follow from."""
    compiled = dataclasses.asdict(config)
    for name in _NOT_COMPILED:
        del compiled[name]
    for name in _NOT_COMPILED_OF_TRAINING:
        del compiled["training"][name]
    return compiled
