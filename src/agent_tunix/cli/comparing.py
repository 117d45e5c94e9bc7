"""`agent-tunix compare`: many runs in one table, without JAX."""

import difflib
import shlex
import sys
from pathlib import Path

import click

from agent_tunix.cli.printing import echo, terminal_width
from agent_tunix.errors import AgentTunixError


@click.command()
@click.argument("directories", metavar="DIR…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--metric",
    help="Metric whose last and best values are shown; default: eval/accuracy, otherwise eval/rewards/total/mean.",
)
@click.option("--mode", type=click.Choice(["max", "min"]), default="max", help="Whether higher or lower is better.")
@click.option("--sort", type=click.Choice(["name", "final", "best", "seconds"]), default="name", help="Order.")
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", help="Form.")
def compare(directories: tuple[Path, ...], metric: str | None, mode: str, sort: str, form: str) -> None:
    """Show the runs in a directory side by side: their differing settings and their results.

    DIR is a directory that --multirun wrote, or any directory with runs in it; several may be
    given. A run that is in progress, was killed, failed, or is damaged has a row too, with its status.

    Exit status: 0; 2 a DIR holds no run, or no run has the metric.
    """
    from agent_tunix.tracking.run_table import (
        default_metric,
        find_runs,
        format_table,
        metric_names,
        read_table,
        sort_table,
    )

    runs = []
    for directory in directories:
        for run in find_runs(directory):
            if len(directories) > 1:
                name = str(run)
            else:
                name = directory.resolve().name if run == directory else str(run.relative_to(directory))
            runs.append((name, run))
    metric = metric or default_metric(runs)
    rows = read_table(runs, metric, mode)
    # Runs without any metric, such as those that have just started, may still get this one.
    if all(row.final is None for row in rows) and (names := metric_names(runs)) and metric not in names:
        near = difflib.get_close_matches(metric, names, n=5, cutoff=0.4)
        advice = f"the closest are {', '.join(near)}" if near else f"the metrics are {', '.join(names)}"
        echo(f"no run has the metric {metric!r}; {advice}", err=True)
        sys.exit(2)
    echo(format_table(sort_table(rows, sort, mode), metric, form, terminal_width()))


def describe_sweep(directory: Path, metric: str | None = None, mode: str = "max") -> str | None:
    """Return the table of a sweep's runs and the command that shows it again; None if there are no runs."""
    from agent_tunix.tracking.run_table import default_metric, find_runs, format_table, read_table, sort_table

    try:
        runs = [(str(run.relative_to(directory)), run) for run in find_runs(directory)]
    except AgentTunixError:
        return None
    metric = metric or default_metric(runs)
    table = format_table(sort_table(read_table(runs, metric, mode), "name"), metric, "table", terminal_width())
    return f"{table}\n\nagent-tunix compare {shlex.quote(str(directory))} --sort best shows this again"
