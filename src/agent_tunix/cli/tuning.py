"""`agent-tunix tune`: a search for settings with Optuna."""

import logging
import sys
from pathlib import Path

import click

from agent_tunix.cli.printing import echo

_CONTEXT = {"ignore_unknown_options": True}


@click.command(context_settings=_CONTEXT)
@click.option(
    "--directory",
    required=True,
    type=click.Path(path_type=Path),
    help="Directory of the trials; an existing search is continued.",
)
@click.option("--trials", default=20, type=click.IntRange(min=1), help="Total number of trials.")
@click.option(
    "--metric",
    help=(
        "Metric whose last value is the result of a trial; default: eval/accuracy, otherwise eval/rewards/total/mean."
    ),
)
@click.option(
    "--direction",
    type=click.Choice(["max", "min"]),
    default="max",
    help="Whether higher or lower is better.",
)
@click.option(
    "--storage", default=None, help="Optuna's storage, an SQLAlchemy URL; default: study.db in the directory."
)
@click.option("--prune", is_flag=True, help="Stop trials early that are below the median of earlier ones.")
@click.option("--random-seed", default=0, help="Seed of the search.")
@click.argument("overrides", nargs=-1, type=click.UNPROCESSED)
def tune(
    directory: Path,
    trials: int,
    metric: str | None,
    direction: str,
    storage: str | None,
    prune: bool,
    random_seed: int,
    overrides: tuple[str, ...],
) -> None:
    """Search for the settings that make a metric best: `agent-tunix tune --directory D 'grpo.beta=0,0.02'`.

    OVERRIDES are those of `train`; those with several values are searched: KEY=a,b, KEY=interval(0,1),
    KEY=int(interval(1,9)), KEY=tag(log,interval(1e-5,1e-3)), KEY=range(4,17,step=4). Each trial is a run in
    DIRECTORY/trial_NNNN. Needs the extra `sweep`.

    Exit status: 0; 1 no trial was completed; 2 the search cannot start.
    """
    from agent_tunix.cli.comparing import describe_sweep
    from agent_tunix.cli.search_space import read_space
    from agent_tunix.config.working_directory import find_own_conf
    from agent_tunix.training import tuning

    find_own_conf()
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("agent_tunix.tune").setLevel(logging.INFO)
    try:
        fixed, space = read_space(overrides)
        best = tuning.tune(
            tuning.Search(fixed, space, metric, direction, trials, directory, storage, prune, random_seed)
        )
    except KeyboardInterrupt:
        echo("Interrupted; run the same command again to continue the search", err=True)
        sys.exit(130)
    if table := describe_sweep(directory, metric, direction):
        echo(table)
    if best is None:
        echo(f"no trial was completed; see the output of each trial in {directory}/trial_*/output.txt", err=True)
        sys.exit(1)
    settings = " ".join(f"{key}={value}" for key, value in best.overrides.items())
    value = f"{metric} {best.value:.4g}" if metric else f"{best.value:.4g}"
    echo(f"\nthe best is trial_{best.number:04d}, {value}: {settings}")
