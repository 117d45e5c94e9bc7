"""`agent-tunix environments …`: commands that show, try and check environments and tools, without JAX.

Importing this loads only Click; each command loads what it needs.
"""

import contextlib
import inspect
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent_tunix.cli.options import ErrorGroup, grouped, json_option, modules_option, place_option, timeout_option
from agent_tunix.cli.printing import echo, echo_json, print_table

if TYPE_CHECKING:
    from agent_tunix.environments import EnvironmentAdapter
    from agent_tunix.environments.checks import EnvironmentReport
    from agent_tunix.environments.environment import EpisodeSource
    from agent_tunix.environments.tool_calls import ToolCall

_EPISODE_ERROR = 1


@click.group(cls=ErrorGroup)
def environments() -> None:
    """Look at, try and check environments and tools for multi-turn episodes, offline and without JAX.

    NAME is a registered name, a dotted path or file.py:NAME: a function that is a tool, a class whose public methods
    are tools (as in TRL), a benchmax BaseEnv, or a class with reset and step(action). Train on it with
    environment.name=NAME, or environment.tools=[NAME] for a tool. With --mcp, NAME is the command or URL of an MCP
    server, for environment.mcp.
    """


@dataclass(frozen=True, slots=True)
class EnvironmentOptions:
    """Options that decide what a NAME is and where it runs."""

    modules: tuple[str, ...]
    args: tuple[str, ...]
    is_mcp: bool = False
    place: str = "inline"
    timeout_s: float = 10.0


_shown = (
    modules_option,
    click.option("--arg", "args", multiple=True, metavar="PARAM=VALUE", help="Argument of the constructor; YAML."),
    click.option("--mcp", "is_mcp", is_flag=True, help="NAME is an MCP server: its command, or its URL."),
)
_shown_options = grouped("options", EnvironmentOptions, *_shown)
_run_options = grouped("options", EnvironmentOptions, place_option, timeout_option, *_shown)
_row = click.option("--row", default="{}", metavar="JSON", help="Row of the dataset, a JSON object.")
_seed = click.option("--seed", default=0, help="Seed of the environment's own chance.")


@environments.command("list")
@modules_option
@json_option
def list_environments(modules: tuple[str, ...], as_json: bool) -> None:
    """List environments and tools: built-in, and registered by your modules.

    Exit status: 0; 2 a module cannot be imported.
    """
    from agent_tunix.environments.registry import get_registered, list_registered
    from agent_tunix.environments.resolve import import_module

    for module in modules:
        import_module(module, Path.cwd())
    entries = [(name, get_registered(name)) for name in list_registered()]
    rows: list[tuple[str, ...]] = [
        (name, entry.kind, (inspect.getdoc(entry.definition) or "").partition("\n")[0]) for name, entry in entries
    ]
    if as_json:
        echo_json([dict(zip(("name", "kind", "summary"), row, strict=True)) for row in rows])
    else:
        print_table(("NAME", "KIND", ""), rows)


@environments.command()
@click.argument("name")
@_shown_options
@json_option
def show(name: str, options: EnvironmentOptions, as_json: bool) -> None:
    """Show an environment: its form, source, columns, documentation, and tools with the schema that a model gets.

    Exit status: 0; 2 there is no such environment, or its tools cannot be described.
    """
    from agent_tunix.cli.environments.pages import describe_environment, environment_page

    with _resolve(name, options) as adapter:
        if as_json:
            echo_json(describe_environment(name, adapter))
        else:
            echo(environment_page(name, adapter))


@environments.command("try")
@click.argument("name")
@click.argument("calls", nargs=-1)
@_row
@_seed
@click.option("--answer", default="", show_default=False, help="Text of the last turn, which makes no call.")
@_run_options
@json_option
def try_environment(
    name: str, calls: tuple[str, ...], row: str, seed: int, answer: str, options: EnvironmentOptions, as_json: bool
) -> None:
    """Make tool calls in a new episode, one a turn, and print the conversation and the score.

    CALLS are names of tools. A JSON object of arguments may follow each: guess '{"number": 10}' guess '{"number": 15}'.
    A text environment has no tools; there, each of CALLS is the text of a turn.

    Exit status: 0; 1 the environment failed; 2 the command or the environment cannot be used.
    """
    from agent_tunix.cli.environments.pages import episode_data, episode_page
    from agent_tunix.environments import ToolCallFormat, render_calls, run_episode

    adapter = _resolve(name, options)
    columns = _read_object(row, "--row")
    if adapter.traits.replies:
        turns = [*calls, *([answer] if answer else [])]
    else:
        turns = [render_calls([call], ToolCallFormat.HERMES) for call in _read_calls(calls)] + [answer]
    script = iter(turns)
    with _placed(name, adapter, options) as source:
        result = run_episode(source.open(), lambda _: next(script), columns, seed=seed, max_turns=len(turns))
    if as_json:
        echo_json(episode_data(result))
    else:
        echo(episode_page(result))
    sys.exit(_EPISODE_ERROR if result.error else 0)


@environments.command()
@click.argument("name")
@_row
@_seed
@click.option("--agent", "is_agent", is_flag=True, help="NAME is an agent: a function or class, for environment.agent.")
@click.option("--command", "is_command", is_flag=True, help="NAME is an agent: a command.")
@click.option(
    "--reply", "replies", multiple=True, help="Text that the policy says to an agent; repeatable, the last one repeats."
)
@_run_options
@json_option
def check(
    name: str,
    row: str,
    seed: int,
    is_agent: bool,
    is_command: bool,
    replies: tuple[str, ...],
    options: EnvironmentOptions,
    as_json: bool,
) -> None:
    """Check, with made-up calls, that an environment meets the conditions for a policy to learn in it.

    An episode begins. Every tool and argument is described. Equal rows, seeds and calls give equal observations, also
    beside another episode. Wrong arguments are refused. Extreme values break nothing. The score is a number. Episodes
    are released. A call that hangs or ends its process fails its check. Notes never make the check fail.

    An agent is run twice against a policy that says --reply: its signature, its calls, whether they continue one
    another or fork and where, and its result. So is verifiers:NAME, an installed environment of verifiers, with its
    first row unless --row gives another.

    Exit status: 0 nothing failed; 1 a check failed; 2 the command or the environment cannot be used.
    """
    from agent_tunix.config.episodes import VERIFIERS
    from agent_tunix.environments.checks import check_environment

    if is_agent or is_command or name.startswith(VERIFIERS):
        report = _check_agent(name, is_command, _read_object(row, "--row"), replies or ("1",), options)
    else:
        adapter = _resolve(name, options)
        with _placed(name, adapter, options) as source:
            report = check_environment(source, _read_object(row, "--row"), seed=seed)
    if row == "{}" and report.findings[-1].check == "reset":
        echo("The row had no columns; give them with --row JSON.", err=True)
    if as_json:
        findings = [{"check": one.check, "status": one.status, "detail": one.detail} for one in report.findings]
        echo_json({"passed": report.passed, "findings": findings})
    else:
        echo(report.text)
    sys.exit(0 if report.passed else 1)


def _check_agent(
    name: str, is_command: bool, row: dict[str, Any], replies: tuple[str, ...], options: EnvironmentOptions
) -> "EnvironmentReport":
    from agent_tunix.cli.environments.agent_checks import check_with_script
    from agent_tunix.config.episodes import VERIFIERS
    from agent_tunix.environments.agents import AgentRecipe
    from agent_tunix.environments.agents.recipe import read_command

    if name.startswith(VERIFIERS):
        from agent_tunix.environments.verifiers import agent_of, read_rows

        own, args, directory = name.removeprefix(VERIFIERS), _read_args(options.args), Path.cwd()
        row = row or next(row for part in read_rows(own, args, directory, 1) for row in part)
        return check_with_script(agent_of(own, args, directory), row, replies, options.timeout_s)
    recipe = AgentRecipe(
        None if is_command else name,
        _read_args(options.args),
        options.modules,
        command=read_command(name) if is_command else (),
    )
    return check_with_script(recipe, row, replies, options.timeout_s)


def _resolve(name: str, options: EnvironmentOptions) -> "EnvironmentAdapter":
    from agent_tunix.environments import resolve_environment
    from agent_tunix.environments.conventions.mcp import McpAdapter
    from agent_tunix.environments.conventions.mcp_server import McpServer

    if options.is_mcp:
        key = "url" if name.startswith(("http://", "https://")) else "command"
        return McpAdapter(McpServer.read({key: name}, Path.cwd()), options.timeout_s)
    return resolve_environment(name, args=_read_args(options.args), modules=options.modules)


@contextlib.contextmanager
def _placed(name: str, adapter: "EnvironmentAdapter", options: EnvironmentOptions) -> "Iterator[EpisodeSource]":
    """Yield the environment, in this process or in a worker as the options say."""
    if options.is_mcp or options.place == "inline" or (options.place == "auto" and adapter.is_builtin):
        with adapter:
            yield adapter
        return
    from agent_tunix.environments import EnvironmentRecipe
    from agent_tunix.environments.hosting import HostedEnvironment

    recipe = EnvironmentRecipe(name, _read_args(options.args), options.modules, working_directory=Path.cwd())
    with HostedEnvironment(recipe, adapter.traits, timeout_s=options.timeout_s) as hosted:
        yield hosted


def _read_calls(calls: tuple[str, ...]) -> "list[ToolCall]":
    """Return the calls that are written as names and JSON objects."""
    from agent_tunix.environments import ToolCall

    tool_calls: list[ToolCall] = []
    for text in calls:
        if text.lstrip().startswith("{"):
            if not tool_calls or tool_calls[-1].arguments:
                raise click.UsageError(f"CALLS: {text[:80]} must follow the name of a tool")
            tool_calls[-1] = ToolCall(tool_calls[-1].name, _read_object(text, "CALLS"))
        else:
            tool_calls.append(ToolCall(text, {}))
    return tool_calls


def _read_args(args: tuple[str, ...]) -> dict[str, Any]:
    import yaml

    values: dict[str, Any] = {}
    for arg in args:
        name, sign, value = arg.partition("=")
        if not sign or not name:
            raise click.UsageError(f"--arg must have the form PARAM=VALUE, not {arg!r}")
        try:
            values[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise click.UsageError(f"--arg {name}: {value!r} is not YAML: {error}") from error
    return values


def _read_object(text: str, option: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: {text[:80]!r} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise click.UsageError(f"{option} must be a JSON object, not {text[:80]!r}")
    return value
