"""Diagnosis of a run: the faults that its metrics show, the evidence, and the changes that may help.

A detector watches the rows of `metrics.jsonl` for one kind of trouble, in constant memory. Its thresholds are constants
beside it, each with a reason. `Watch` runs all detectors live, `diagnose` runs them on a recorded run.
"""

from agent_tunix.workbench.diagnosis.context import ComponentContext, RunContext
from agent_tunix.workbench.diagnosis.findings import Finding, Severity
from agent_tunix.workbench.diagnosis.views import RolloutView
from agent_tunix.workbench.diagnosis.watch import NAMES, Watch, diagnose

__all__ = ["NAMES", "ComponentContext", "Finding", "RolloutView", "RunContext", "Severity", "Watch", "diagnose"]
