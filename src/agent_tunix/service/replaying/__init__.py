"""Comparison of a changed source of an uploaded function with the saved one, by text and by scores.

    replayed = replay_source(run, ReplayRequest(saved, changed, StepRange(10, 20)), ReplayLimits())

The changed source is checked like an upload, and its code runs only in isolated workers.
"""

from agent_tunix.service.replaying.differences import DiffLine, SourceDiff, diff_sources, normalise
from agent_tunix.service.replaying.result import Replayed, ValueChange
from agent_tunix.service.replaying.reviewing import Review, Reviews, review_source, sha256_of
from agent_tunix.service.replaying.running import ReplayRequest, Replays, replay_source
from agent_tunix.service.replaying.selection import StepRange
from agent_tunix.service.replaying.stored_reward import SAVED, TOTAL, Counterpart

__all__ = [
    "SAVED",
    "TOTAL",
    "Counterpart",
    "DiffLine",
    "ReplayRequest",
    "Replayed",
    "Replays",
    "Review",
    "Reviews",
    "SourceDiff",
    "StepRange",
    "ValueChange",
    "diff_sources",
    "normalise",
    "replay_source",
    "review_source",
    "sha256_of",
]
