"""Recording and reading of runs: metrics.jsonl, rollouts, trackers, the terminal and the run's log."""

from agent_tunix.tracking.findings_file import FindingsFile, read_findings
from agent_tunix.tracking.logs import RunLog
from agent_tunix.tracking.metrics_file import missing_steps, read_rows
from agent_tunix.tracking.recorder import Recorder
from agent_tunix.tracking.stored_run import StoredRun
from agent_tunix.tracking.summary import compare_ends, summary_table

__all__ = [
    "FindingsFile",
    "Recorder",
    "RunLog",
    "StoredRun",
    "compare_ends",
    "missing_steps",
    "read_findings",
    "read_rows",
    "summary_table",
]
