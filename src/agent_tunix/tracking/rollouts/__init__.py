"""Storage of completions in Parquet files, written in the background and restored bit for bit."""

from agent_tunix.tracking.rollouts.encoding import Opaque
from agent_tunix.tracking.rollouts.reader import RolloutReader
from agent_tunix.tracking.rollouts.schema import ScoringSettings, StoredStep
from agent_tunix.tracking.rollouts.writer import RolloutWriter

__all__ = ["Opaque", "RolloutReader", "RolloutWriter", "ScoringSettings", "StoredStep"]
