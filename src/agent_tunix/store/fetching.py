"""Fetching of uploaded rewards by name or id, for training."""

from collections.abc import Callable
from pathlib import Path

from agent_tunix.errors import NotStoredError, RewardError, StoreError, UnknownRewardError
from agent_tunix.rewards.uploaded import UploadedSource, is_function_id
from agent_tunix.store.access import StoreAccess, describe_place, open_access, server_url
from agent_tunix.store.home import database_url
from agent_tunix.store.records import is_name


def fetch_uploaded(spec: str) -> UploadedSource | None:
    """Fetch the uploaded reward of an id, or the newest version of a name.

    It comes from the server of `AGENT_TUNIX_URL`, with the key of `AGENT_TUNIX_KEY`, or else from this machine's store.

    Args:
        spec: An id `rf_…`, or a possible name.

    Returns:
        The reward; None if `spec` is neither an id nor a name in the store.

    Raises:
        UnknownRewardError: The store does not have the id.
        RewardError: `spec` is an id, and the store cannot be used.
        StoreError: `spec` may be a name, and the store cannot be used.
    """
    if is_function_id(spec):
        try:
            with open_access() as access:
                return _fetch(access, spec)
        except NotStoredError as error:
            raise UnknownRewardError(
                f"there is no reward function {spec} in the store at {describe_place()}; list them with `agent-tunix "
                "store list`, or set AGENT_TUNIX_URL to another store"
            ) from error
        except StoreError as error:
            raise RewardError(f"the reward function {spec} cannot be downloaded: {error}") from error
    if not is_name(spec) or not _may_hold_something():
        return None
    try:
        with open_access() as access:
            return _fetch(access, access.latest(spec).id)
    except NotStoredError:
        return None


def remembering(fetch: Callable[[str], UploadedSource | None]) -> Callable[[str], UploadedSource | None]:
    """Wrap a function to fetch each name or id only once, so that a run uses a single version of it."""
    found: dict[str, UploadedSource | None] = {}

    def fetch_once(spec: str) -> UploadedSource | None:
        if spec not in found:
            found[spec] = fetch(spec)
        return found[spec]

    return fetch_once


def _may_hold_something() -> bool:
    """Return True if a store exists or a server is set; looking up a mistyped name must not create a store."""
    local = database_url()
    file = local.removeprefix("sqlite:///")
    return server_url() is not None or file == local or Path(file).expanduser().is_file()


def _fetch(access: StoreAccess, id: str) -> UploadedSource:
    record, content = access.get(id), access.source(id)
    if record.id != id:
        raise StoreError(f"{describe_place()} answers for {id} with another reward function, {record.id}")
    source = record.to_uploaded(content, describe_place())
    if source.sha256 != record.sha256:
        raise StoreError(f"the source of {id} at {describe_place()} differs from the uploaded one; upload it again")
    return source
