"""Findings of a run: its `findings.jsonl`, and the diagnosis of its directory alone, without its reward or a device.

The file has one JSON object per finding, written immediately, as rows of `metrics.jsonl` are.

A resumed run removes the findings after its checkpoint; the repeated steps produce them again.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from agent_tunix.closing import Closing
from agent_tunix.errors import RunDirectoryError
from agent_tunix.tracking.metrics_file import MetricsFile, cut_after, parse_row, read_rows
from agent_tunix.tracking.stored_run import StoredRun
from agent_tunix.workbench.diagnosis import Finding, RolloutView, RunContext, diagnose


class FindingsFile(Closing):
    """A writer that appends findings to a `findings.jsonl`.

    Args:
        path: The file; created with the first finding.
        kept_step: Last step whose findings are kept, for a resumed run; None for a new run, which keeps none.

    Raises:
        RunDirectoryError: The file cannot be read or replaced.
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

    def sync(self) -> None:
        """Flush all findings to the device; raise RunDirectoryError if that fails."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Close the file; another call does nothing."""
        if self._file is not None:
            self._file.sync()
            self._file.close()
            self._file = None


def read_findings(path: Path) -> list[Finding]:
    """Return the findings of a run in order; an empty list if there is no file.

    Raises:
        RunDirectoryError: The file cannot be read, or a line is not a finding.
    """
    try:
        return [Finding.from_data(row) for row in read_rows(path)] if path.exists() else []
    except ValueError as error:
        raise RunDirectoryError(f"{path} must contain one finding per line, but {error}; remove the line") from error


def read_intact_findings(path: Path) -> tuple[list[Finding], int]:
    """Return the findings of a run, which may be in progress, and the number of damaged lines, which are left out."""
    findings: list[Finding] = []
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []  # the last part is not complete yet
    for line in lines:
        with contextlib.suppress(ValueError):
            row = parse_row(line)
            findings.append(Finding.from_data({} if isinstance(row, Exception) else row))
    return findings, len(lines) - len(findings)


def diagnose_run(run: StoredRun) -> list[Finding]:
    """Diagnose a run; the most severe finding comes first.

    Findings refer to example completions if those of the step were stored.

    Raises:
        RunDirectoryError: A file is missing or damaged.
    """
    stored = set(run.rollouts.steps())

    def views(step: int) -> Iterable[RolloutView]:
        if step in stored:
            completions = run.rollouts.read_step(step)
            for sample, score in zip(completions.samples, completions.scores, strict=True):
                yield RolloutView.of(sample, score)

    return diagnose(run.rows, read_context(run), views)


def read_context(run: StoredRun) -> RunContext:
    """Return the facts about a run that a diagnosis needs, from its environment.json.

    Raises:
        RunDirectoryError: environment.json is missing or damaged, or an earlier version wrote it.
    """
    try:
        return RunContext.from_data(run.environment["context"])
    except (KeyError, ValueError) as error:
        raise RunDirectoryError(
            f"{run.root / 'environment.json'} must describe the run under `context`, but does not ({error}); runs of "
            "earlier versions cannot be diagnosed"
        ) from error
