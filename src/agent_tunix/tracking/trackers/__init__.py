"""Trackers of metrics besides `metrics.jsonl`: TensorBoard, six services by name, and those of other packages."""

from agent_tunix.tracking.trackers.mlflow import attach_files
from agent_tunix.tracking.trackers.opening import chosen_trackers, known_trackers, open_trackers
from agent_tunix.tracking.trackers.protocol import TrackedRun, Tracker

__all__ = [
    "TrackedRun",
    "Tracker",
    "attach_files",
    "chosen_trackers",
    "known_trackers",
    "open_trackers",
]
