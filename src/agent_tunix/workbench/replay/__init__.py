"""Replay: scoring the stored completions of a run with another reward.

`replaying` scores stored steps with the same reward or another one. `comparing` shows how totals and advantages differ.
"""

from agent_tunix.workbench.replay.comparing import Mover, ReplayComparison, compare
from agent_tunix.workbench.replay.replaying import RecordedStep, ReplayedStep, Unreplayable, contrast, replay

__all__ = [
    "Mover",
    "RecordedStep",
    "ReplayComparison",
    "ReplayedStep",
    "Unreplayable",
    "compare",
    "contrast",
    "replay",
]
