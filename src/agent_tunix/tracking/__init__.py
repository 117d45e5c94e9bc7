"""Numbers out: metrics.jsonl, TensorBoard, Weights & Biases, the terminal, the run's log."""

from agent_tunix.tracking.logs import RunLog
from agent_tunix.tracking.metrics_file import missing_steps, read_rows
from agent_tunix.tracking.recorder import Recorder
from agent_tunix.tracking.summary import compare_ends, summary_table

__all__ = [
    "Recorder",
    "RunLog",
    "compare_ends",
    "missing_steps",
    "read_rows",
    "summary_table",
]
