"""`agent-tunix export RUN --to DIR`."""

import sys
from pathlib import Path

import click

from agent_tunix.cli.printing import echo
from agent_tunix.cli.trusting import trust_option
from agent_tunix.errors import AgentTunixError, ConfigError


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--to", "directory", metavar="DIR", required=True, type=click.Path(path_type=Path), help="Where to.")
@click.option("--step", metavar="N|best|latest", default="latest", show_default=True, help="Which checkpoint; 0: none.")
@click.option("--adapter", is_flag=True, help="The LoRA adapter alone, as PEFT loads it.")
@click.option(
    "--dtype",
    type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
    default="auto",
    show_default=True,
    help="What merged weights are stored in; auto: what the run computed in.",
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier export; never anything else.")
@trust_option
def export(run: Path, directory: Path, step: str, adapter: bool, dtype: str, overwrite: bool, trust: bool) -> None:
    """Export a trained model as a directory that transformers, vLLM or PEFT load.

    RUN is the directory of a run. A LoRA adapter is merged into the weights, unless --adapter exports it alone. The
    directory appears complete or not at all. Exit status: 0; 2 it could not be written.
    """
    from agent_tunix.runs.found_run import check_step, find_run
    from agent_tunix.startup import devices
    from agent_tunix.training.exporting import export_run

    try:
        if not (step.isdecimal() or step in ("best", "latest")):
            raise ConfigError(
                f"--step must be the step of a checkpoint, 0, best or latest, not {step}", code="invalid_step"
            )
        chosen = check_step(None if step == "latest" else int(step) if step.isdecimal() else step)
        found = find_run(run, "RUN")
        devices.prepare(found.config.distributed)
        exported = export_run(
            found,
            directory,
            step=chosen,
            adapter=adapter,
            dtype=dtype,  # type: ignore[arg-type]
            overwrite=overwrite,
            trust=trust,
        )
    except AgentTunixError as error:
        echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(2)
    kind = "adapter" if adapter else "model"
    echo(f"{exported.directory}: the {kind} after step {exported.step}, {exported.num_bytes / 1e6:,.1f} MB")
