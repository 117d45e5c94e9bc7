"""`agent-tunix serve-policy`. Importing this loads only Click."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from agent_tunix.cli.options import allowed_hosts_option, host_option, log_to_terminal, step_option
from agent_tunix.cli.printing import echo


class _AdapterType(click.ParamType[tuple[str, Path]]):
    """Parameter type: the name and the directory of an adapter."""

    name = "adapter"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Path]:
        """Return the name and the directory."""
        name, _, directory = str(value).partition("=")
        if not name or not directory or not Path(directory).is_dir():
            self.fail(f"{value!r} must be NAME=DIR with an existing directory", param, ctx)
        return name, Path(directory)


@click.command("serve-policy")
@click.argument("source", metavar="RUN_OR_MODEL")
@step_option
@host_option
@click.option("--port", type=click.IntRange(0, 65535), default=8000, help="Port to listen on; 0: any free port.")
@allowed_hosts_option
@click.option(
    "--api-key",
    "api_keys",
    multiple=True,
    envvar="AGENT_TUNIX_API_KEY",
    help="Key that requests must carry; repeatable. Other programs of this machine can see it: prefer the environment "
    "variable AGENT_TUNIX_API_KEY.",
)
@click.option(
    "--adapter",
    "adapters",
    metavar="NAME=DIR",
    type=_AdapterType(),
    multiple=True,
    help="Adapter in PEFT's format, which requests name as their model; repeatable.",
)
@click.option(
    "--adapter-directory",
    "adapter_directories",
    type=click.Path(exists=True, file_okay=False),
    multiple=True,
    help="Directory below which clients with a key may load adapters (/v1/load_lora_adapter); repeatable.",
)
@click.option(
    "--load-weights",
    is_flag=True,
    help="Let clients with a key replace the policy's weights by those of a directory below --adapter-directory "
    "(/v1/load_weights), as a trainer does whose rollouts this server samples.",
)
@click.option("--model-name", default="policy", help="Name of the policy in requests.")
@click.option(
    "--max-context",
    type=click.IntRange(min=2),
    default=None,
    help="Maximum tokens of a prompt and its reply.  [that of the model, at most 4096]",
)
@click.option(
    "--places",
    type=click.IntRange(1, 1024),
    default=16,
    help="Requests that are answered at a time, as far as the memory allows.",
)
@click.option(
    "--dtype",
    type=click.Choice(["auto", "float32", "bfloat16"]),
    default=None,
    help="Type that a model computes in, as model.dtype; a run has its own.  [auto]",
)
@click.option(
    "--max-waiting", type=click.IntRange(min=0), default=1024, help="Requests that may wait; more are refused (429)."
)
def serve_policy(
    source: str,
    step: Any,
    host: str,
    port: int,
    allowed_hosts: tuple[str, ...],
    api_keys: tuple[str, ...],
    adapters: tuple[tuple[str, Path], ...],
    adapter_directories: tuple[str, ...],
    load_weights: bool,
    model_name: str,
    max_context: int | None,
    places: int,
    dtype: str | None,
    max_waiting: int,
) -> None:
    """Serve a policy by OpenAI's API, with continuous batching.

    RUN_OR_MODEL is the directory of a run or a model, a name of conf/model, or a model on a hub, as in model.path.
    Prompts are made with the chat template and the prompt settings of the run. An address that other machines can
    reach is refused without a key.

    Routes: /v1/chat/completions, /v1/completions, /v1/models, /v1/load_lora_adapter,
    /v1/unload_lora_adapter, /v1/load_weights, /health and /metrics;
    /openapi.json describes them.

    Exit status: 0 ended by SIGTERM or SIGINT; 2 it cannot be served: the port is in use, there is no key, the policy
    cannot be loaded.
    """
    from agent_tunix.serving.policy_server import serve
    from agent_tunix.serving.settings import PolicySettings
    from agent_tunix.training.generation import find_source

    log_to_terminal(logging.WARNING)
    settings = PolicySettings(
        host=host,
        port=port,
        allowed_hosts=allowed_hosts,
        api_keys=api_keys,
        adapter_directories=adapter_directories,
        loads_weights=load_weights,
        model=model_name,
    )
    settings.check_exposure()
    if len(dict(adapters)) < len(adapters):
        raise click.UsageError("--adapter must give each name once; remove one of the adapters with equal names")
    found = find_source(source, None if step == "latest" else step)
    run = found.run
    if dtype is not None:
        run = replace(run, config=replace(run.config, model=replace(run.config.model, dtype=dtype)))
    serve(
        run,
        found.step,
        settings,
        lambda url: echo(f"agent-tunix serves the policy at {url} (OPENAI_BASE_URL={url}/v1)"),
        max_context=max_context,
        num_places=places,
        max_waiting=max_waiting,
        adapters=dict(adapters),
    )
