"""What a batch of scores looks like, and what a run's scores have shown."""

from agent_tunix.rewards.statistics.analysis import RewardAnalysis
from agent_tunix.rewards.statistics.series import Histogram, Metric
from agent_tunix.rewards.statistics.step import summarise

__all__ = ["Histogram", "Metric", "RewardAnalysis", "summarise"]
