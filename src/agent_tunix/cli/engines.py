"""`agent-tunix engines …`. Importing this loads only Click."""

import asyncio
import dataclasses
import os
import sys
from typing import TYPE_CHECKING

import click

from agent_tunix.cli.options import ErrorGroup, json_option
from agent_tunix.cli.printing import echo, echo_json, print_table
from agent_tunix.errors import ConfigError

if TYPE_CHECKING:
    from agent_tunix.engines.conformance import EngineFinding

_KINDS = ("vllm", "sglang", "agent_tunix")


@click.group(cls=ErrorGroup)
def engines() -> None:
    """Try inference engines before a run samples with them."""


@engines.command()
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option("--kind", type=click.Choice(_KINDS), default=None, help="Kind of the engines.  [found by their routes]")
@click.option(
    "--api-key-env", "variable", metavar="NAME", default=None, help="Environment variable with the engines' key."
)
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=1), default=60.0, help="Seconds for each request.")
@json_option
def check(
    urls: tuple[str, ...],
    kind: str | None,
    variable: str | None,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Check that live engines sample and score as training requires, and print what was sent and what came.

    Each URL is that of an engine, such as http://127.0.0.1:8000. It gets about 40 short requests: ids in and out,
    limits, stop tokens, log-probabilities at several temperatures, seeds, a model that is not loaded.

    Exit status: 0 nothing failed; 1 a check failed, or an engine is not ready; 2 the command cannot be used.
    """
    key = None if variable is None else os.environ.get(variable, "").strip()
    if key == "":
        raise ConfigError(f"the environment variable {variable} must hold the engines' key, but is not set")
    found = {url: asyncio.run(_check(url, kind, key, timeout_s)) for url in urls}
    if as_json:
        echo_json({url: [dataclasses.asdict(one) for one in findings] for url, findings in found.items()})
    else:
        for url, findings in found.items():
            echo(url)
            print_table(
                ("CHECK", "STATUS", "SENT", "CAME"), [(one.check, one.status, one.sent, one.came) for one in findings]
            )
    sys.exit(1 if any(one.status == "failed" for findings in found.values() for one in findings) else 0)


async def _check(url: str, kind: str | None, key: str | None, timeout_s: float) -> list["EngineFinding"]:
    from agent_tunix.engines.conformance import check_engine
    from agent_tunix.engines.http import open_client
    from agent_tunix.engines.own import OwnWire
    from agent_tunix.engines.sglang import SglangWire
    from agent_tunix.engines.vllm import VllmWire

    # The last one has the fewest routes of its own.
    wires = [make() for make in (VllmWire, SglangWire, OwnWire) if kind in (None, make.kind)]
    async with open_client(url, key, timeout_s) as client:
        return await check_engine(wires, client)
