"""`agent-tunix serve`. Importing this loads only Click."""

import logging
from pathlib import Path

import click

from agent_tunix.cli.options import allowed_hosts_option, host_option, log_to_terminal
from agent_tunix.cli.printing import echo


@click.command()
@host_option
@click.option("--port", type=click.IntRange(0, 65535), default=8400, help="Port to listen on; 0: any free port.")
@allowed_hosts_option
@click.option(
    "--runs",
    "runs",
    type=click.Path(path_type=Path, file_okay=False),
    multiple=True,
    help="Directory of runs; repeatable. Default: outputs, if it exists.",
)
@click.option(
    "--allow-unsandboxed",
    is_flag=True,
    help="Run uploaded code with all permissions of the server's user if this machine cannot isolate it.",
)
@click.option(
    "--requests-per-second",
    type=click.FloatRange(min=0),
    default=200.0,
    help="Most requests per second of one key, on average; 0: no limit.",
)
def serve(
    host: str,
    port: int,
    allowed_hosts: tuple[str, ...],
    runs: tuple[Path, ...],
    allow_unsandboxed: bool,
    requests_per_second: float,
) -> None:
    """Serve the store of this machine to a team: its REST API, and the pages of the inspector.

    Every call of the API needs a key of `agent-tunix keys create`, also on this machine. An address that other machines
    can reach is refused while there is no key.

    Exit status: 0 ended by SIGTERM or SIGINT; 2 it cannot be served: the port is in use, there is no key, the store
    cannot be opened.
    """
    from agent_tunix.service.serving import serve
    from agent_tunix.service.settings import ServiceSettings

    log_to_terminal(logging.INFO)
    settings = ServiceSettings(
        host=host,
        port=port,
        allowed_hosts=allowed_hosts,
        runs=runs or ((Path("outputs"),) if Path("outputs").is_dir() else ()),
        allow_unsandboxed=allow_unsandboxed,
        requests_per_second=requests_per_second,
    )
    serve(settings, lambda url: echo(f"agent-tunix serves at {url} (API: {url}/v1, {url}/openapi.json)"))
