"""Options that several commands have, and the group that prints their errors."""

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

import click

from agent_tunix.cli.printing import echo
from agent_tunix.errors import AgentTunixError
from agent_tunix.visible_text import SafeFormatter

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class ErrorGroup(click.Group):
    """Command group that prints the package's errors as messages and exits with status 2."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except AgentTunixError as error:
            echo(f"{type(error).__name__}: {error}", err=True)
            ctx.exit(self.conclude(error, ctx))

    def conclude(self, error: AgentTunixError, ctx: click.Context) -> int:
        """Print further advice after an error's message, and return the exit status."""
        return 2


def grouped(parameter: str, make: Callable[..., Any], *options: Decorator) -> Decorator:
    """Return a decorator that adds options, calls `make` with their values, and passes the result as one parameter."""
    names = inspect.signature(make).parameters

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def run(**values: Any) -> Any:
            mine = {name: values.pop(name) for name in names if name in values}
            return command(**values, **{parameter: make(**mine)})

        decorated: Callable[..., Any] = run
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


trust_option = click.option(
    "--trust",
    is_flag=True,
    help="Trust RUN, which this installation did not start, and use the code, commands and endpoints that it names.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
modules_option = click.option("--module", "modules", multiple=True, help="Module or file to import first; repeatable.")
place_option = click.option(
    "--execution",
    "place",
    type=click.Choice(["auto", "inline", "process"]),
    default="auto",
    help="Where it runs; auto: built-ins in this process, your code in worker processes with limits.",
)
timeout_option = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    metavar="SECONDS",
    help="Time limit for a call of your code.",
)
show_option = click.option(
    "--show", "num_shown", type=click.IntRange(min=0), default=10, help="Number of completions to print."
)


class _StepType(click.ParamType[int | str]):
    """Parameter type: the step of a checkpoint, `best` or `latest`."""

    name = "step"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the step as an integer, or the word."""
        text = str(value)
        if text in ("best", "latest"):
            return text
        if not text.isdecimal():
            self.fail(f"{text!r} must be a step, best or latest", param, ctx)
        return int(text)


step_option = click.option(
    "--step",
    type=_StepType(),
    metavar="N|best|latest",
    default=None,
    help="Step of the checkpoint of a run; 0: before training.  [latest]",
)


host_option = click.option("--host", default="127.0.0.1", help="Address to listen on.")
allowed_hosts_option = click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    help="Further host name to accept, for example behind a proxy; repeatable; *: any.",
)


def log_to_terminal(level: int) -> None:
    """Log to standard error, as a server does."""
    handler = logging.StreamHandler()
    handler.setFormatter(SafeFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it warns about every invalid request of a stranger
