"""The option `--trust`, of commands that run code named by a run."""

import click

trust_option = click.option(
    "--trust",
    is_flag=True,
    help=(
        "Trust RUN, which somebody else made, and use its reward's code, judges and files. The decision is remembered."
    ),
)
