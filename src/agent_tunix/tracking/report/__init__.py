"""Report of a run: a self-contained HTML page, the same charts as PNG, and their data."""

from agent_tunix.tracking.report.writing import write_analysis, write_report

__all__ = ["write_analysis", "write_report"]
