"""Diagnosis: what a run's metrics show to be wrong, on which evidence, and what to change.

A detector watches the rows of `metrics.jsonl` for one kind of trouble, in memory that does not grow; its thresholds
stand beside it as constants, each with its reason. `Watch` asks all of them, live; `diagnose` does so afterwards.
"""

from agent_tunix.workbench.diagnosis.context import ComponentContext, RunContext
from agent_tunix.workbench.diagnosis.findings import Finding, Severity
from agent_tunix.workbench.diagnosis.views import RolloutView
from agent_tunix.workbench.diagnosis.watch import NAMES, Watch, diagnose

__all__ = ["NAMES", "ComponentContext", "Finding", "RolloutView", "RunContext", "Severity", "Watch", "diagnose"]
