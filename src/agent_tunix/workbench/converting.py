"""A file with a registered plain reward that calls a reward of another convention."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_tunix.errors import RewardError
from agent_tunix.rewards import Mixture
from agent_tunix.rewards.conventions import Convention, TrlReward

_FILE = '''\
"""`{function}` of {file} ({convention}) as a registered plain reward."""

from pathlib import Path

from agent_tunix.rewards import register_reward_function, resolve_reward

HERE = Path(__file__).parent
GIVEN = resolve_reward({spec!r}, working_directory=HERE{settings}).components[0].reward


@register_reward_function({name!r})
def {name}(response, prompt="", step=0, max_steps=0, num_tokens=0, metadata=None):
    """Call `{function}` with one completion and its row."""
    return GIVEN(
        response, prompt=prompt, step=step, max_steps=max_steps, num_tokens=num_tokens, metadata=metadata or {{}}
    )
'''


def convert_reward(mixture: Mixture, spec: str, target: Path, settings: Mapping[str, Any]) -> str:
    """Return a Python file that registers a reward of any convention as a plain one.

    Args:
        mixture: The reward, made of `spec` alone.
        spec: `path/to/file.py:function`.
        target: Where the file will lie; the path of the reward is written relative to its directory.
        settings: Arguments of `resolve_reward` other than its defaults.

    Raises:
        RewardError: `spec` is no function of a file, or the reward compares completions of a group.
    """
    reward = mixture.components[0].reward
    path, _, function = spec.rpartition(":")
    if not path.endswith(".py") or not isinstance(reward, Convention):
        raise RewardError(f"{spec} must name a function of a file; write FILE.py:FUNCTION")
    if reward.needs_batch or (reward.needs_group and not isinstance(reward, TrlReward)):
        raise RewardError(
            f"{spec} scores several completions together, but a plain reward scores one; use it as it is:"
            f" training.reward_function={spec}"
        )
    return _FILE.format(
        function=function,
        file=Path(path).name,
        convention=reward.convention,
        spec=f"{Path(os.path.relpath(path, target.parent)).as_posix()}:{function}",
        settings="".join(f", {key}={value!r}" for key, value in settings.items()),
        name=reward.name,
    )
