"""`agent-tunix keys …`: API keys of this machine's store. Importing this loads only Click."""

import click

from agent_tunix.cli.printing import echo
from agent_tunix.cli.store import StoreGroup

_SCOPES = ["read", "write", "try"]


@click.group(cls=StoreGroup)
def keys() -> None:
    """Make, list and revoke the keys of the store of this machine (AGENT_TUNIX_HOME, AGENT_TUNIX_DATABASE_URL).

    Exit status of every command: 0 done; 1 refused: the name is taken or cannot be used, there is no such key; 2 the
    command or the store cannot be used.
    """


@keys.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(_SCOPES),
    multiple=True,
    help="What the key may do; repeatable. read: list and get; write: upload and delete; try: have functions score"
    " completions. Default: all.",
)
def create(name: str, scopes: tuple[str, ...]) -> None:
    """Make a key for NAME and print it. It is shown only once, because it is not stored.

    The name of a revoked key may be used again: its owner keeps everything that belongs to it, and gets a new key.
    """
    from agent_tunix.store import open_store

    with open_store() as store:
        _, secret = store.keys.create(name, scopes or _SCOPES)
    echo(secret)
    echo(f"This is the key of {name}; it is not shown again.", err=True)


@keys.command("list")
def list_keys() -> None:
    """List all keys, revoked ones included, oldest first."""
    from agent_tunix.store import open_store

    with open_store() as store:
        found = store.keys.list()
    for key in found:
        revoked = "" if key.revoked_at is None else f"  revoked {key.revoked_at:%Y-%m-%d %H:%M:%S}Z"
        scopes = ",".join(scope for scope in _SCOPES if scope in key.scopes)
        echo(f"{key.id}  {key.created_at:%Y-%m-%d %H:%M:%S}Z  {scopes:<14}  {key.name}{revoked}")


@keys.command()
@click.argument("key", metavar="NAME_OR_ID")
def revoke(key: str) -> None:
    """Revoke the key of NAME_OR_ID; it stops working at once."""
    from agent_tunix.store import open_store

    with open_store() as store:
        store.keys.revoke(key)
