"""The option `--trust`, of commands that run code named by a run."""

import click

trust_option = click.option(
    "--trust",
    is_flag=True,
    help="Run what RUN names, though somebody else made it: its reward's code, judges and files. Remembered.",
)
