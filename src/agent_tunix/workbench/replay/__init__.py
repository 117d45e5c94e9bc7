"""Replay: scoring the stored completions of a run with another reward.

`replaying` scores stored steps with the same reward or another one. `comparing` shows how totals and advantages differ.
`repeating` scores the same completions several times, to measure how far a reward agrees with itself.
"""

from agent_tunix.workbench.replay.comparing import Mover, ReplayComparison, compare
from agent_tunix.workbench.replay.repeating import ComponentSpread, Repeats, repeat
from agent_tunix.workbench.replay.replaying import RecordedStep, ReplayedStep, Unreplayable, contrast, replay

__all__ = [
    "ComponentSpread",
    "Mover",
    "RecordedStep",
    "Repeats",
    "ReplayComparison",
    "ReplayedStep",
    "Unreplayable",
    "compare",
    "contrast",
    "repeat",
    "replay",
]
