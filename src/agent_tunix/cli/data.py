"""`agent-tunix data …`: rows and prompts as a run uses them, offline and without JAX."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from agent_tunix.cli.options import ErrorGroup, json_option
from agent_tunix.cli.printing import echo, echo_json

if TYPE_CHECKING:
    from agent_tunix.runs.shown_prompts import ShownPrompt

_LONGEST_VALUE = 200


@click.group(cls=ErrorGroup)
def data() -> None:
    """Look at the rows of the data and at their prompts, offline and without JAX."""


@data.command(context_settings={"ignore_unknown_options": True})
@click.option("--rows", "count", type=click.IntRange(min=1), default=1, help="Rows to show, of each set of a mixture.")
@click.option("--split", type=click.Choice(["train", "test"]), default="train", help="Rows of training, or test rows.")
@json_option
@click.argument("overrides", nargs=-1, type=click.UNPROCESSED)
def show(count: int, split: Literal["train", "test"], as_json: bool, overrides: tuple[str, ...]) -> None:
    """Show the first rows, and the prompts that the model sees, as text and as tokens with their ids.

    Tools are included. If the run has an environment, `reset` is called for each row that is shown. OVERRIDES are those
    of `agent-tunix train`: KEY=VALUE.

    Exit status: 0; 1 a row has no prompt; 2 the command, the data or the model cannot be used.
    """
    from agent_tunix.config.checks import check
    from agent_tunix.config.working_directory import find_own_conf
    from agent_tunix.runs.algorithm_setup import register_own_algorithm
    from agent_tunix.runs.shown_prompts import show_prompts
    from agent_tunix.runs.weights.starting_run import compose_start

    find_own_conf()
    config = compose_start(overrides)
    check(config)
    register_own_algorithm(config, Path.cwd())
    prompts = list(show_prompts(config, Path.cwd(), split, count))
    if as_json:
        echo_json([prompt.to_data() for prompt in prompts])
    else:
        for prompt in prompts:
            _print(prompt)
    raise SystemExit(1 if any(prompt.problem for prompt in prompts) else 0)


def _print(prompt: "ShownPrompt") -> None:
    echo(f"row {prompt.row}")
    for name, value in prompt.columns.items():
        text = value if isinstance(value, str) else repr(value)
        echo(f"  {name:<16}{text[:_LONGEST_VALUE]}{'…' if len(text) > _LONGEST_VALUE else ''}")
    if prompt.problem:
        echo(f"no prompt: {prompt.problem}")
        return
    echo(f"tools: {', '.join(prompt.tools) or 'none'}")
    echo(f"prompt\n{prompt.text}")
    echo(f"{len(prompt.tokens)} tokens")
    echo(" ".join(f"{number}:{piece!r}" for number, piece in prompt.tokens))
