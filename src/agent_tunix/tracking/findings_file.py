"""`findings.jsonl`: one JSON object a finding, there at once, as rows are in `metrics.jsonl`.

A run that resumes cuts the findings past its checkpoint, which the steps done again will find again.
"""

from pathlib import Path

from agent_tunix.closing import Closing
from agent_tunix.errors import RunDirectoryError
from agent_tunix.tracking.metrics_file import MetricsFile, cut_after, read_rows
from agent_tunix.workbench.diagnosis import Finding


class FindingsFile(Closing):
    """Appends findings to a `findings.jsonl`.

    Args:
        path: The file; made with the first finding, if there is none.
        kept_step: The last step whose findings are kept, later ones being cut; None for a new run.

    Raises:
        RunDirectoryError: It cannot be read or replaced.
    """

    def __init__(self, path: Path, kept_step: int | None) -> None:
        cut_after(path, -1 if kept_step is None else kept_step)
        self._path = path
        self._file: MetricsFile | None = None

    def write(self, finding: Finding) -> None:
        """Append a finding.

        Raises:
            RunDirectoryError: The disk is full, or the file cannot be written for another reason.
        """
        if self._file is None:
            self._file = MetricsFile(self._path)
        self._file.write(finding.step, finding.to_data())

    def close(self) -> None:
        """Close the file; another call does nothing."""
        if self._file is not None:
            self._file.close()


def read_findings(path: Path) -> list[Finding]:
    """The findings of a run, in the order in which they were made; none where there is no file.

    Raises:
        RunDirectoryError: The file cannot be read, or a line is no finding.
    """
    try:
        return [Finding.from_data(row) for row in read_rows(path)] if path.exists() else []
    except ValueError as error:
        raise RunDirectoryError(f"{path} should hold findings, but {error}; remove the line") from error
