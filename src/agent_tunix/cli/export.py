"""`agent-tunix export RUN --to DIR` and `--push OWNER/NAME`."""

from pathlib import Path

import click

from agent_tunix.cli.printing import echo
from agent_tunix.errors import ConfigError


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--to", "directory", metavar="DIR", type=click.Path(path_type=Path), help="Directory to write.")
@click.option(
    "--push", "repository", metavar="OWNER/NAME", help="Upload to this model repository on the Hugging Face hub."
)
@click.option("--public", is_flag=True, help="Make a new repository public; default: private.")
@click.option(
    "--step",
    metavar="N|best|latest",
    default="latest",
    help="Step of the checkpoint; 0: the model before training.",
)
@click.option("--adapter", is_flag=True, help="Export only the LoRA adapter, in PEFT's format.")
@click.option(
    "--dtype",
    type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
    default="auto",
    help="Type of the merged weights; auto: the compute type of the run.",
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier export; other files are never replaced.")
def export(
    run: Path,
    directory: Path | None,
    repository: str | None,
    public: bool,
    step: str,
    adapter: bool,
    dtype: str,
    overwrite: bool,
) -> None:
    """Export a trained model as a directory that transformers, vLLM or PEFT load, or to the Hugging Face hub.

    RUN is the directory of a run. A LoRA adapter is merged into the weights, unless --adapter exports it alone. The
    directory appears complete or not at all. --push uploads it in one commit, with HF_TOKEN or the token of `hf auth
    login`; without --to, nothing stays on this machine. Exit status: 0; 2 it could not be written or uploaded.
    """
    from agent_tunix.training.exporting import export_and_push

    if not (step.isdecimal() or step in ("best", "latest")):
        raise ConfigError(
            f"--step must be the step of a checkpoint, 0, best or latest, not {step}", code="invalid_request"
        )
    exported, page = export_and_push(
        run,
        directory,
        repository=repository,
        public=public,
        step=None if step == "latest" else int(step) if step.isdecimal() else step,  # type: ignore[arg-type]
        adapter=adapter,
        dtype=dtype,  # type: ignore[arg-type]
        overwrite=overwrite,
    )
    kind = "adapter" if adapter else "model"
    for where in filter(None, (directory, page)):
        echo(f"{where}: the {kind} after step {exported.step}, {exported.num_bytes / 1e6:,.1f} MB")
