"""From a name or an id to the uploaded reward that it means, for whoever trains with it."""

from collections.abc import Callable
from pathlib import Path

from agent_tunix.errors import NotStoredError, RewardError, StoreError, UnknownRewardError
from agent_tunix.rewards.uploaded import UploadedSource
from agent_tunix.store.access import StoreAccess, describe_place, open_access, server_url
from agent_tunix.store.home import database_url
from agent_tunix.store.identifiers import is_function_id, is_name


def fetch_uploaded(spec: str) -> UploadedSource | None:
    """The uploaded reward of an id, or the newest version of a name.

    From the server of `AGENT_TUNIX_URL`, with the key of `AGENT_TUNIX_KEY`, or else from the store of this machine.

    Args:
        spec: `rf_…`, or what may be a name.

    Returns:
        None where it is no id, and no name in the store either.

    Raises:
        UnknownRewardError: The store has nothing of that id.
        RewardError: It is an id, and the store cannot be used.
        StoreError: It may be a name, and the store cannot be used.
    """
    if is_function_id(spec):
        try:
            with open_access() as access:
                return _fetch(access, access.get(spec).id)
        except NotStoredError as error:
            raise UnknownRewardError(
                f"there is no reward function {spec} in the store at {describe_place()}; `agent-tunix store list` shows"
                " what there is, and AGENT_TUNIX_URL names another store"
            ) from error
        except StoreError as error:
            raise RewardError(f"the reward function {spec} cannot be fetched: {error}") from error
    if not is_name(spec) or not _may_hold_something():
        return None
    try:
        with open_access() as access:
            return _fetch(access, access.latest(spec).id)
    except NotStoredError:
        return None


def remembering(fetch: Callable[[str], UploadedSource | None]) -> Callable[[str], UploadedSource | None]:
    """The same, which asks for each name or id once, so that one run has one version of it."""
    found: dict[str, UploadedSource | None] = {}

    def fetch_once(spec: str) -> UploadedSource | None:
        if spec not in found:
            found[spec] = fetch(spec)
        return found[spec]

    return fetch_once


def _may_hold_something() -> bool:
    """Whether asking is worth it: a name that was mistyped should not make a store."""
    local = database_url()
    file = local.removeprefix("sqlite:///")
    return server_url() is not None or file == local or Path(file).expanduser().is_file()


def _fetch(access: StoreAccess, id: str) -> UploadedSource:
    record, content = access.get(id), access.source(id)
    source = UploadedSource(record.id, record.name, record.format, record.version, content, describe_place())
    if source.sha256 != record.sha256:
        raise StoreError(
            f"the source of {id} at {describe_place()} is not the one that was uploaded; upload it anew",
            code="damaged_source",
        )
    return source
