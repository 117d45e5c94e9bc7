"""Execution of rewards, in this process or in isolated workers, within enforced limits.

with make_runner(mixture, "process", timeout_s=1.0) as runner:
    scores = runner.reward.score(samples)
"""

from agent_tunix.rewards.execution.calls import Executor, Job
from agent_tunix.rewards.execution.runner import Runner, make_runner
from agent_tunix.rewards.execution.settings import ExecutionSettings

__all__ = ["ExecutionSettings", "Executor", "Job", "Runner", "make_runner"]
