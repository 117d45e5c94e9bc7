"""`agent-tunix store …` and `keys …`: reward functions here or on a server, and the keys of the store of this machine.

Importing this loads only Click; each command loads what it needs.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from agent_tunix.cli.options import ErrorGroup, json_option
from agent_tunix.cli.printing import echo, echo_json
from agent_tunix.errors import AccessDeniedError, AgentTunixError, StoreRequestError

if TYPE_CHECKING:
    from agent_tunix.store import RewardFunctionRecord
    from agent_tunix.store.access import StoreAccess


Command = TypeVar("Command", bound=Callable[..., Any])

_PAGE = 100
_FORMATS = ["auto", "trl", "miles", "plain", "environment", "verl", "openrlhf", "verifiers", "benchmax"]


class StoreGroup(ErrorGroup):
    """Command group that exits with status 1 if the store refused, and with 2 if it was not usable."""

    def conclude(self, error: AgentTunixError, ctx: click.Context) -> int:
        """Return the exit status."""
        return 1 if isinstance(error, StoreRequestError) and not isinstance(error, AccessDeniedError) else 2


@click.group(cls=StoreGroup)
def store() -> None:
    """Upload, list, read and delete reward functions.

    Works on the store of this machine (AGENT_TUNIX_HOME, AGENT_TUNIX_DATABASE_URL) without a server, or on that of a
    server: --url and --key, or AGENT_TUNIX_URL and AGENT_TUNIX_KEY.

    Exit status of every command: 0 done; 1 refused: the file is no reward function, the name belongs to another, there
    is no such id; 2 the command cannot be used, the store cannot be reached, or the key does not allow it.
    """


def _place_options(command: Command) -> Command:
    command = click.option(
        "--key", default=None, metavar="vk_…", help="API key; default: AGENT_TUNIX_KEY. A server requires one."
    )(command)
    return click.option(
        "--url", default=None, help="URL of a server; default: AGENT_TUNIX_URL, otherwise the store of this machine."
    )(command)


@store.command()
@click.argument("file")
@click.option(
    "--name",
    default=None,
    help="Name of the function; default: the name in the file, or the file name without .py if that is `reward`.",
)
@click.option(
    "--format",
    "given_format",
    type=click.Choice(_FORMATS),
    default="auto",
    help="Calling convention of the function; auto: the one that its parameters fit.",
)
@click.option(
    "--if-changed",
    is_flag=True,
    help="If the newest version of the name is identical to this file, print its id and upload nothing.",
)
@_place_options
@json_option
def upload(
    file: str, name: str | None, given_format: str, if_changed: bool, url: str | None, key: str | None, as_json: bool
) -> None:
    """Upload FILE, FILE:FUNCTION or a mixture, and print its id (rf_…).

    FILE has a function `reward`, or one function of another name, in any convention. The file is stored as it is; it is
    checked but never run. A name that is your own gets its next version. Advice for a better reward is printed on
    standard error. With --if-changed the command is safe to repeat, for example if it is not known whether it
    completed.

    A mixture is a file of conf/reward (.yaml). The files that it names are uploaded as MIXTURE.COMPONENT, and the
    mixture with their ids is printed, to be kept as another file of conf/reward.
    """
    from agent_tunix.store.local_files import read_mixture

    path, function = _split(file)
    if path.suffix in (".yaml", ".yml"):
        components, parts = read_mixture(path)
        uploads = {
            component: _check(part, of_part, f"{name or path.stem}.{component}", "auto")
            for component, (part, of_part) in parts.items()
        }
        with _opened(url, key) as access:
            for component, upload in uploads.items():
                components[component]["function"] = access.create(**upload, if_changed=if_changed).id
        _print_mixture(components, as_json)
        return
    upload = _check(path, function, name, given_format)
    with _opened(url, key) as access:
        made = access.create(**upload, if_changed=if_changed)
    if as_json:
        echo_json(made.to_data())
        return
    echo(made.id)
    echo(f"{made.name}, version {made.version}; train with training.reward_function={made.id}", err=True)


def _split(file: str) -> tuple[Path, str | None]:
    """Return the path and the function of FILE or FILE:FUNCTION."""
    path, colon, function = file.rpartition(":")
    found = Path(path) if colon and path.endswith(".py") else Path(file)
    if not found.is_file():
        raise click.BadParameter(f"there is no file {found}", param_hint="FILE")
    return found, function if str(found) != file else None


def _check(path: Path, function: str | None, name: str | None, given_format: str) -> dict[str, Any]:
    """Check a file, print advice, and return the arguments of its upload."""
    from agent_tunix.store.local_files import choose_function, hidden_files
    from agent_tunix.store.uploads import HIDDEN_FILES, MAX_BYTES, check_upload, detect_format

    with path.open("rb") as opened:
        source = opened.read(MAX_BYTES + 1)  # one byte too many is enough to refuse it
    function, suggested = choose_function(source, function)
    format: Any = detect_format(source, function) if given_format == "auto" else given_format
    hidden = [f"it uses {file}, but {HIDDEN_FILES}" for file in hidden_files(source, [path.parent, Path()])]
    for advice in (*hidden, *check_upload(source, format, function).warnings):
        echo(f"advice: {advice}", err=True)
    return {"name": name or suggested or path.stem, "source": source, "format": format, "function": function}


def _print_mixture(components: dict[str, dict[str, Any]], as_json: bool) -> None:
    import yaml

    if as_json:
        echo_json({"components": components})
        return
    echo(yaml.safe_dump({"components": components}, sort_keys=False, allow_unicode=True), nl=False)


@store.command("list")
@click.option("--name", default=None, help="List only the versions of this name.")
@click.option("--limit", type=click.IntRange(min=1), default=20, help="Most functions to list.")
@click.option("--after", default=None, metavar="rf_…", help="List only functions older than this id.")
@_place_options
@json_option
def list_functions(
    name: str | None, limit: int, after: str | None, url: str | None, key: str | None, as_json: bool
) -> None:
    """List reward functions, newest first."""
    found: list[RewardFunctionRecord] = []
    has_more = True
    with _opened(url, key) as access:
        while has_more and len(found) < limit:
            page = access.list(min(limit - len(found), _PAGE), found[-1].id if found else after, name)
            found += page.data
            has_more = page.has_more and bool(page.data)
    if as_json:
        echo_json({"object": "list", "data": [one.to_data() for one in found], "has_more": has_more})
        return
    for one in found:
        echo(f"{one.id}  {one.created_at:%Y-%m-%d %H:%M:%S}Z  {one.format:<5}  {one.name} version {one.version}")
    if has_more:
        echo(f"more: --after {found[-1].id}", err=True)


@store.command()
@click.argument("id")
@click.option("--source", "with_source", is_flag=True, help="Print only the file, byte for byte.")
@_place_options
@json_option
def get(id: str, with_source: bool, url: str | None, key: str | None, as_json: bool) -> None:
    """Show the reward function of an ID, rf_…, or the newest version of a name."""
    with _opened(url, key) as access:
        found = access.get(id) if id.startswith("rf_") else access.latest(id)
        if with_source:
            echo(access.source(found.id), nl=False)
            return
    if as_json:
        echo_json(found.to_data())
        return
    shown = {**found.to_data(), "created": f"{found.created_at:%Y-%m-%d %H:%M:%S}Z"}
    for label in ("id", "name", "version", "format", "created", "owner", "size", "sha256"):
        echo(f"{label:<8} {shown[label]}")


@store.command()
@click.argument("id")
@_place_options
def delete(id: str, url: str | None, key: str | None) -> None:
    """Delete the version with an ID (rf_…).

    Runs that were trained with it keep their own copy. Its name stays yours, and its id is not used again.
    """
    with _opened(url, key) as access:
        access.delete(id)


def _opened(url: str | None, key: str | None) -> "AbstractContextManager[StoreAccess]":
    from agent_tunix.store.access import open_access

    return open_access(url, key)


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
