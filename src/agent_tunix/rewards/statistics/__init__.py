"""Statistics of a step's scores, and of the scores of a whole run."""

from agent_tunix.rewards.statistics.analysis import RewardAnalysis
from agent_tunix.rewards.statistics.series import Histogram, Metric
from agent_tunix.rewards.statistics.step import summarise

__all__ = ["Histogram", "Metric", "RewardAnalysis", "summarise"]
