"""Replay: scoring the stored completions of a run with another reward.

`replaying` scores stored steps with the same reward or another one. `comparing` shows how totals and advantages differ.
`stored_reward` replaces one component of a run's reward without the code of the others.
"""

from agent_tunix.workbench.replay.comparing import Mover, ReplayComparison, compare
from agent_tunix.workbench.replay.replaying import RecordedStep, ReplayedStep, Unreplayable, contrast, replay
from agent_tunix.workbench.replay.stored_reward import Counterpart, StoredReward, choose_counterpart

__all__ = [
    "Counterpart",
    "Mover",
    "RecordedStep",
    "ReplayComparison",
    "ReplayedStep",
    "StoredReward",
    "Unreplayable",
    "choose_counterpart",
    "compare",
    "contrast",
    "replay",
]
