"""The Hugging Face hub: revisions, downloads and error messages."""

import contextlib
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from agent_tunix.errors import AgentTunixError
from agent_tunix.hubs.request import HubRequest, Unreachable, check_space, describe_size, explaining_disk
from agent_tunix.proxies import describe_proxy, problem_with_proxies

Kind = Literal["model", "dataset"]

_LOGGER = logging.getLogger("agent_tunix.hubs")
_OTHER_DISK = "set HF_HOME to a directory on another disk"
NEW_TOKEN = "make one at https://huggingface.co/settings/tokens and set HF_TOKEN in the environment or in .env"


class Commit(NamedTuple):
    """The commit that a revision refers to."""

    sha: str  # 40 hexadecimal digits
    is_current: bool  # True if the hub has confirmed it now; False if it is the hub's last known answer


def resolve(request: HubRequest, repo_id: str, revision: str | None, kind: Kind = "model") -> Commit:
    """Return the commit that a revision refers to; if the hub is unreachable, the last known one.

    Args:
        request: The request, for error messages.
        repo_id: `owner/name`.
        revision: A branch, tag or commit; None for the main branch.
        kind: Kind of repository.

    Raises:
        AgentTunixError: Of the class `request.error`: there is no such revision, or no answer and no cached copy.
    """
    from huggingface_hub import HfApi

    try:
        with explaining(request, repo_id, revision, kind):
            info = HfApi().repo_info(repo_id, revision=revision, repo_type=kind, timeout=10.0)
    except Unreachable as error:
        exact = revision is not None and re.fullmatch(r"[0-9a-f]{40}", revision) is not None
        commit = revision if exact else cached_commit(repo_id, revision, kind)
        if commit is None:
            raise request.refuse_without_copy(error, f"there is no copy in the cache {cache_directory()}") from error
        _LOGGER.warning("%s %s; using the cached copy of commit %s", request.setting, error, commit)
        return Commit(commit, is_current=False)
    assert info.sha is not None
    if revision != info.sha:
        reference = _reference(repo_id, revision, kind)
        with contextlib.suppress(OSError):  # needed only if the hub is unreachable later
            reference.parent.mkdir(parents=True, exist_ok=True)
            reference.write_text(info.sha, encoding="ascii")
    return Commit(str(info.sha), is_current=True)


def download(
    request: HubRequest,
    repo_id: str,
    commit: str,
    choose: Callable[[Collection[str]], list[str]],
    is_whole: Callable[[Path], bool],
) -> Path:
    """Return a directory with the files of a model's commit, from the cache or the hub.

    Args:
        request: The request, for error messages.
        repo_id: `owner/name`.
        commit: 40 hexadecimal digits.
        choose: Selects the needed files from the names of all files; raises if they do not make a model.
        is_whole: Returns True if a directory of the cache has all of them.

    Returns:
        A directory of the cache, without other large files.
    """
    from huggingface_hub import HfApi, snapshot_download

    cached = cached_snapshot(repo_id, commit)
    if is_whole(cached):
        return cached
    try:
        with explaining(request, repo_id, commit, "model"):
            info = HfApi().model_info(repo_id, revision=commit, files_metadata=True, timeout=10.0)
            sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
            chosen = choose(sizes)
            _prepare(request, repo_id, commit, {name: sizes[name] for name in chosen})
            return Path(snapshot_download(repo_id, revision=commit, allow_patterns=chosen))
    except Unreachable as error:
        copy = f"the copy in {cached} is incomplete" if cached.is_dir() else f"it is not in {cache_directory()}"
        raise request.refuse_without_copy(error, copy) from error


def cached_commit(repo_id: str, revision: str | None, kind: Kind) -> str | None:
    """Return the last known commit of a revision; None if the hub was never asked."""
    reference = _reference(repo_id, revision, kind)
    return reference.read_text(encoding="ascii").strip() if reference.is_file() else None


def cached_snapshot(repo_id: str, commit: str) -> Path:
    """Return the directory for the files of a model's commit, which need not exist."""
    return _storage(repo_id, "model") / "snapshots" / commit


def cache_directory() -> Path:
    """Return the directory for downloads."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def has_token() -> bool:
    """Return True if a token is set: HF_TOKEN, or the token of `hf auth login`."""
    from huggingface_hub import get_token

    return get_token() is not None


def _reference(repo_id: str, revision: str | None, kind: Kind) -> Path:
    """Return the cache's file for a branch or tag, https://huggingface.co/docs/huggingface_hub/guides/manage-cache."""
    return _storage(repo_id, kind) / "refs" / (revision or "main")


def _storage(repo_id: str, kind: Kind) -> Path:
    return cache_directory() / f"{kind}s--{repo_id.replace('/', '--')}"


def _prepare(request: HubRequest, repo_id: str, commit: str, sizes: Mapping[str, int]) -> None:
    """Check that the files still to download fit on the disk, and log the download."""
    present = cached_snapshot(repo_id, commit)
    to_come = {name: size for name, size in sizes.items() if not (present / name).exists()}
    size = sum(to_come.values())
    check_space(request, size, cache_directory(), _OTHER_DISK)
    _LOGGER.info(
        "downloading %d files (%s) of hf://%s@%s into %s",
        len(to_come),
        describe_size(size),
        repo_id,
        commit,
        cache_directory(),
    )


@contextlib.contextmanager
def explaining(request: HubRequest, repo_id: str, revision: str | None, kind: Kind) -> Iterator[None]:
    """Turn the exceptions of `huggingface_hub` into errors that name the remedy.

    Raises:
        Unreachable: The hub did not answer; the caller may have a copy.
    """
    import httpx
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    if problem := problem_with_proxies(constants.ENDPOINT):
        raise Unreachable(f"cannot be downloaded, because {problem}", f"or {request.instead}", "hub_unreachable")
    with explaining_disk(request, cache_directory(), _OTHER_DISK):
        try:
            yield
        except HFValidationError as error:
            raise request.refuse(f"must name a repository as owner/name: {error}", code="invalid_address") from error
        except OfflineModeIsEnabled as error:
            remedy = f"unset HF_HUB_OFFLINE, or {request.instead}"
            raise Unreachable("is not requested, because HF_HUB_OFFLINE is set", remedy, "hub_unreachable") from error
        except HfHubHTTPError as error:
            raise _explain_answer(request, repo_id, revision, kind, error) from error
        except (httpx.TransportError, LocalEntryNotFoundError, ConnectionError) as error:
            reason = error.__cause__ if isinstance(error, LocalEntryNotFoundError) and error.__cause__ else error
            hub = f"{constants.ENDPOINT}{describe_proxy(constants.ENDPOINT)}"
            raise request.unreachable(hub, f"{type(reason).__name__}: {reason}") from error


def _explain_answer(
    request: HubRequest, repo_id: str, revision: str | None, kind: Kind, error: Exception
) -> AgentTunixError:
    """Return the error for an unsuccessful answer, most specific first."""
    from huggingface_hub import constants
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    assert isinstance(error, HfHubHTTPError)
    page = _page(repo_id, kind)
    status = error.response.status_code if error.response is not None else 0
    if isinstance(error, GatedRepoError):
        return refuse_gated(request, repo_id, kind)
    if isinstance(error, RepositoryNotFoundError):
        if has_token():
            return request.refuse(
                f"is not a {kind} that the current token can see on the hub; correct the name, or check that the "
                f"token may read it ({page})",
                code="not_found",
            )
        return request.refuse(
            f"is not a public {kind} on the hub, and no token for a private one is set; correct the name, or "
            f"{NEW_TOKEN}",
            code="not_found",
        )
    if isinstance(error, RevisionNotFoundError):
        return request.refuse(
            f"has no revision {revision!r}; omit it for the latest, or use one of {page}/commits/main", code="not_found"
        )
    if status == 401:
        return request.refuse(
            f"was refused, because the current token is not valid (any more); {NEW_TOKEN}", code="access_denied"
        )
    if status == 403:
        return request.refuse(
            f"was refused: {words_of(error)}; check the permissions of the token", code="access_denied"
        )
    if status == 429 or status >= 500:
        return request.refuse(
            f"failed with status {status} of {constants.ENDPOINT}; try again later", code="hub_failed"
        )
    return request.refuse(f"was refused by {constants.ENDPOINT}: {words_of(error)}", code="download_refused")


def refuse_gated(request: HubRequest, repo_id: str, kind: Kind) -> AgentTunixError:
    """Return the error for a repository whose licence must be accepted first."""
    page = _page(repo_id, kind)
    if has_token():
        return request.refuse(
            f"is gated, and the account of the current token has no access; accept its licence at {page} with that "
            "account (or set the HF_TOKEN of another), and try again",
            code="access_denied",
        )
    return request.refuse(
        f"is gated, and no token is set; accept its licence at {page}, then {NEW_TOKEN}", code="access_denied"
    )


def _page(repo_id: str, kind: Kind) -> str:
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/{'datasets/' if kind == 'dataset' else ''}{repo_id}"


def words_of(error: Exception) -> str:
    """Return the server's message on one line."""
    message = getattr(error, "server_message", None) or str(error)
    return " ".join(str(message).split())
