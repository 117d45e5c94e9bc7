"""`agent-tunix report` and `agent-tunix rewards diagnose`: the analysis of a recorded run, without JAX.

Importing this loads only Click; each command loads what it needs.
"""

import sys
from pathlib import Path

import click

from agent_tunix.cli.options import json_option
from agent_tunix.cli.printing import echo, echo_json


@click.command()
@click.argument("run", type=click.Path())
@json_option
def diagnose(run: str, as_json: bool) -> None:
    """Report problems of a run, with evidence and changes to try.

    RUN is the directory of a run that has ended, was killed, or is still going. The most severe finding comes first.
    Each has its figures, some completions that show it, and overrides to try. The page Diagnosis of the docs explains
    all of them.

    A run that an error ended begins with that error.

    Exit status: 0 nothing is worse than info; 1 something is, or an error ended the run; 2 RUN is not a run, or its
    record is incomplete.
    """
    from agent_tunix.tracking.findings_file import diagnose_run
    from agent_tunix.tracking.outcome import RunStatus, read_outcome
    from agent_tunix.tracking.stored_run import StoredRun
    from agent_tunix.workbench.diagnosis import Severity

    stored = StoredRun(run)
    findings, outcome = diagnose_run(stored), read_outcome(stored.root)
    has_failed = outcome.status is RunStatus.FAILED
    if as_json:
        echo_json([finding.to_data() for finding in findings])
    else:
        failure = [f"the run failed: {outcome.detail}"] if has_failed else []
        echo("\n\n".join([*failure, *(f"{f.severity}: {f.describe()}" for f in findings)]) or "no findings")
    sys.exit(int(has_failed or any(finding.severity is not Severity.INFO for finding in findings)))


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--to", "directory", metavar="DIR", type=click.Path(path_type=Path), help="Directory to write to; default: RUN."
)
@click.option("--data", "with_data", is_flag=True, help="Also write reward_analysis.json and curves.csv.")
def report(run: Path, directory: Path | None, with_data: bool) -> None:
    """Draw a run: report.html, which needs only a browser, and plots/*.png.

    RUN is the directory of a run that has ended, was killed, or is still going; the report covers its steps so far.
    Exit status: 0; 2 RUN is not the directory of a run, or DIR cannot be written.
    """
    from agent_tunix.tracking.report import write_analysis, write_report
    from agent_tunix.tracking.stored_run import StoredRun

    stored = StoredRun(run)
    echo(str(write_report(stored, directory or run)))
    if with_data:
        echo(str(write_analysis(stored, directory or run)))
