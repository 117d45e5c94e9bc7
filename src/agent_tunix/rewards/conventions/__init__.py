"""Conventions in which users write rewards, each an adapter to `score(samples) -> list[Score]`.

`plain`: functions of one response; `trl`: functions of a batch; `miles`: async functions of a sample or group;
`environment`: classes with `compute_reward`. `detection` tells them apart, and `classes` has `BaseReward`.
"""

from agent_tunix.rewards.conventions.base import CallSettings, Convention
from agent_tunix.rewards.conventions.classes import BaseReward, RewardConfig
from agent_tunix.rewards.conventions.detection import CONVENTIONS, adapt, detect
from agent_tunix.rewards.conventions.environment import EnvironmentReward
from agent_tunix.rewards.conventions.miles import MilesReward, MilesSample
from agent_tunix.rewards.conventions.plain import PlainReward
from agent_tunix.rewards.conventions.trl import TrainerState, TrlReward

__all__ = [
    "CONVENTIONS",
    "BaseReward",
    "CallSettings",
    "Convention",
    "EnvironmentReward",
    "MilesReward",
    "MilesSample",
    "PlainReward",
    "RewardConfig",
    "TrainerState",
    "TrlReward",
    "adapt",
    "detect",
]
