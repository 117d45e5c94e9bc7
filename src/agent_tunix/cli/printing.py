"""Output of all commands, with control characters from foreign text escaped."""

import json
import shutil
import sys
from typing import Any

import click

from agent_tunix.visible_text import align, escape_hidden, escape_hidden_in_json


def echo(message: Any = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a message with hidden characters escaped; bytes are escaped only on a terminal."""
    if isinstance(message, bytes):
        if not sys.stdout.isatty():
            click.echo(message, err=err, nl=nl)
            return
        message = message.decode("utf-8", "replace")
    click.echo(escape_hidden(str(message)), err=err, nl=nl)


def echo_json(data: Any, *, indent: int | None = 2) -> None:
    """Print a value as JSON, with hidden characters as JSON escapes."""
    click.echo(escape_hidden_in_json(json.dumps(data, ensure_ascii=False, indent=indent, default=str)))


def print_table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print rows below a header, in columns."""
    for line in align([header, *rows]):
        echo(line)


def terminal_width() -> int | None:
    """Return the width of the terminal in characters; None if the output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
