"""The pictures of a run: a page that needs nothing but a browser, the same charts as PNG, and the data behind them."""

from agent_tunix.tracking.report.writing import write_analysis, write_report

__all__ = ["write_analysis", "write_report"]
