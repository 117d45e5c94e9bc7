"""`agent-tunix engines …`. Importing this loads only Click; JAX is loaded for `--model` alone."""

import asyncio
import dataclasses
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent_tunix.cli.options import ErrorGroup, json_option
from agent_tunix.cli.printing import echo, echo_json, print_table
from agent_tunix.errors import ConfigError

if TYPE_CHECKING:
    from agent_tunix.engines.conformance import EngineFinding, KnownModel

_KINDS = ("vllm", "sglang", "agent_tunix")


@click.group(cls=ErrorGroup)
def engines() -> None:
    """Try inference engines before a run samples with them."""


@engines.command()
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option("--kind", type=click.Choice(_KINDS), default=None, help="Kind of the engines.  [found by their routes]")
@click.option(
    "--model",
    metavar="DIR",
    default=None,
    help="The model that they serve, as in model.path. It is loaded here, in float32, and compared.",
)
@click.option(
    "--adapter-directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=None,
    help="Directory that the engines see under the same path, for an adapter of --model.  [a temporary one]",
)
@click.option("--reload", "reloads", is_flag=True, help="Let the engines read all weights of --model again.")
@click.option(
    "--api-key-env", "variable", metavar="NAME", default=None, help="Environment variable with the engines' key."
)
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=1), default=60.0, help="Seconds for each request.")
@json_option
def check(
    urls: tuple[str, ...],
    kind: str | None,
    model: str | None,
    adapter_directory: Path | None,
    reloads: bool,
    variable: str | None,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Check that live engines sample and score as training requires, and print what was sent and what came.

    Each URL is that of an engine, such as http://127.0.0.1:8000. It gets about 40 short requests: ids in and out,
    limits, stop tokens, log-probabilities at several temperatures, seeds, a model that is not loaded. With --model,
    its scores are compared with those of our forward pass, and a random adapter is loaded, used and unloaded.

    Exit status: 0 nothing failed; 1 a check failed, or an engine is not ready; 2 the command cannot be used.
    """
    if reloads and model is None:
        raise click.UsageError("--reload requires --model")
    key = None if variable is None else os.environ.get(variable, "").strip()
    if key == "":
        raise ConfigError(f"the environment variable {variable} must hold the engines' key, but is not set")
    with tempfile.TemporaryDirectory(prefix="check-", dir=adapter_directory) as directory:
        known = None if model is None else _load(model, Path(directory))
        found = {
            url: asyncio.run(_check(url, kind, known, reloads=reloads, key=key, timeout_s=timeout_s)) for url in urls
        }
    if as_json:
        echo_json({url: [dataclasses.asdict(one) for one in findings] for url, findings in found.items()})
    else:
        for url, findings in found.items():
            echo(url)
            print_table(
                ("CHECK", "STATUS", "SENT", "CAME"), [(one.check, one.status, one.sent, one.came) for one in findings]
            )
    sys.exit(1 if any(one.status == "failed" for findings in found.values() for one in findings) else 0)


def _load(model: str, directory: Path) -> "KnownModel":
    from agent_tunix.engines.known_model import LoadedModel

    directory.chmod(0o755)  # the engine may be another user's
    return LoadedModel(model, directory)


async def _check(
    url: str, kind: str | None, model: "KnownModel | None", *, reloads: bool, key: str | None, timeout_s: float
) -> list["EngineFinding"]:
    from agent_tunix.engines.conformance import check_engine
    from agent_tunix.engines.http import open_client
    from agent_tunix.engines.own import OwnWire
    from agent_tunix.engines.sglang import SglangWire
    from agent_tunix.engines.vllm import VllmWire

    # The last one has the fewest routes of its own.
    wires = [make() for make in (VllmWire, SglangWire, OwnWire) if kind in (None, make.kind)]
    async with open_client(url, key, timeout_s) as client:
        return await check_engine(wires, client, model, reloads=reloads)
