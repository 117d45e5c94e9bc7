"""`agent-tunix report RUN`."""

import sys
from pathlib import Path

import click

from agent_tunix.cli.printing import echo
from agent_tunix.errors import AgentTunixError


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

    try:
        stored = StoredRun(run)
        echo(str(write_report(stored, directory or run)))
        if with_data:
            echo(str(write_analysis(stored, directory or run)))
    except AgentTunixError as error:
        echo(str(error), err=True)
        sys.exit(2)
