"""Google Cloud Storage: files of a directory in a bucket, with our own cache.

A bucket has no revisions, so a digest of the names, sizes and checksums of its files identifies a directory's state. A
run records the digest, to check later that the files are still the same.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from agent_tunix.hubs.request import (
    HubRequest,
    Unreachable,
    check_space,
    describe_size,
    explaining_transfers,
    refuse_incomplete,
)

_LOGGER = logging.getLogger("agent_tunix.hubs")
_HUB = "Google Cloud Storage"
_DIGITS = 16
_TIMEOUT_S = 60.0
RETRY_S = 20.0  # total time of retries; the library's default of two minutes looks like a stall
_OTHER_DISK = "set AGENT_TUNIX_HOME to a directory on another disk"
_LOG_IN = (
    "log in with `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to the key of a "
    "service account that can read the bucket"
)


def resolve(request: HubRequest, name: str, choose: Callable[[Collection[str]], list[str]]) -> str:
    """Return the digest of a directory's current state; if the bucket is unreachable, that of the latest copy.

    Args:
        request: The request, for error messages.
        name: `bucket/directory`.
        choose: Selects the needed files from the names of all files.
    """
    try:
        with _explaining(request):
            return _digest(_list(request, name, choose))
    except Unreachable as error:
        copies = sorted(
            (path for path in cache_directory(name).glob("*") if len(path.name) == _DIGITS),
            key=lambda path: path.stat().st_mtime,
        )
        if not copies:
            raise request.refuse_without_copy(error, f"there is no copy in {cache_directory(name)}") from error
        _LOGGER.warning("%s %s; using the cached copy in %s", request.setting, error, copies[-1])
        return copies[-1].name


def download(request: HubRequest, name: str, digest: str, choose: Callable[[Collection[str]], list[str]]) -> Path:
    """Return a directory with the needed files in a given state, from the cache or the bucket.

    Args:
        request: The request, for error messages.
        name: `bucket/directory`.
        digest: The state, from `resolve`.
        choose: Selects the needed files from the names of all files; raises if they do not make a model.
    """
    cached = cache_directory(name) / digest
    if cached.is_dir():
        return cached
    try:
        with _explaining(request):
            files = _list(request, name, choose)
            if _digest(files) != digest:
                raise request.refuse(
                    f"must have the files of digest {digest}, but they have changed, and there is no copy in "
                    f"{cached.parent}; restore them, or remove the digest to use the current files",
                    code="not_found",
                )
            return _download(request, files, cached)
    except Unreachable as error:
        raise request.refuse_without_copy(error, f"there is no copy in {cached.parent}") from error


def cache_directory(name: str) -> Path:
    """Return the directory for copies, in AGENT_TUNIX_HOME, by default `~/.agent_tunix`."""
    home = os.environ.get("AGENT_TUNIX_HOME")
    return (Path(home) if home else Path.home() / ".agent_tunix").absolute() / "models" / "gs" / name


def _list(request: HubRequest, name: str, choose: Callable[[Collection[str]], list[str]]) -> dict[str, Any]:
    """Return the needed files by name, as the library's blobs."""
    bucket, _, directory = name.partition("/")
    prefix = f"{directory}/"
    blobs = _client().list_blobs(bucket, prefix=prefix, delimiter="/", timeout=_TIMEOUT_S, retry=_retry())
    files = {blob.name.removeprefix(prefix): blob for blob in blobs if not blob.name.endswith("/")}
    if not files:
        raise request.refuse("contains no files; correct the bucket and the directory", code="not_found")
    return {name: files[name] for name in choose(files)}


def _client() -> Any:
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import DefaultCredentialsError
    from google.cloud import storage

    try:
        return storage.Client()
    except DefaultCredentialsError:  # a public bucket needs no credentials
        return storage.Client(project="none", credentials=AnonymousCredentials())


def _retry() -> Any:
    from google.cloud.storage.retry import DEFAULT_RETRY

    return DEFAULT_RETRY.with_timeout(RETRY_S)


def _digest(files: Mapping[str, Any]) -> str:
    state = "\n".join(f"{name} {blob.size} {blob.crc32c}" for name, blob in sorted(files.items()))
    return hashlib.sha256(state.encode()).hexdigest()[:_DIGITS]


def _download(request: HubRequest, files: Mapping[str, Any], target: Path) -> Path:
    """Download all files, then give the directory its final name; an interrupted download continues."""
    partial = target.with_name(f"{target.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of a run may download the same files
        if target.is_dir():
            return target
        to_come = {name: blob for name, blob in files.items() if not (partial / name).is_file()}
        size = sum(blob.size for blob in to_come.values())
        check_space(request, size, partial, _OTHER_DISK)
        _LOGGER.info(
            "%s: downloading %d files (%s) into %s", request.setting, len(to_come), describe_size(size), target
        )
        for name, blob in to_come.items():
            arriving = partial / f".{name}"
            blob.download_to_filename(str(arriving), checksum="crc32c", timeout=_TIMEOUT_S, retry=_retry())
            arriving.replace(partial / name)
        for arriving in partial.glob(".*"):
            arriving.unlink()
        partial.replace(target)
    return target


@contextlib.contextmanager
def _explaining(request: HubRequest) -> Iterator[None]:
    """Turn the library's exceptions into errors that name the remedy."""
    try:
        from google.api_core.exceptions import Forbidden, GoogleAPICallError, NotFound, RetryError, Unauthorized
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.cloud.storage.exceptions import DataCorruption
    except ImportError as error:
        raise request.refuse(
            "requires the package google-cloud-storage, which is not installed; pip install 'agent_tunix[gcs]'",
            code="missing_package",
        ) from error
    with explaining_transfers(request, _HUB, cache_directory(""), _OTHER_DISK):
        try:
            yield
        except (Unauthorized, Forbidden) as error:
            raise request.refuse(f"was refused ({error.message}); {_LOG_IN}", code="access_denied") from error
        except NotFound as error:
            raise request.refuse(
                f"was not found ({error.message}); correct the bucket and the directory", code="not_found"
            ) from error
        except (RetryError, TransportError) as error:
            raise request.unreachable(_HUB, " ".join(str(error).split())) from error
        except GoogleAuthError as error:
            raise request.refuse(f"was refused ({error}); {_LOG_IN}", code="access_denied") from error
        except DataCorruption as error:
            raise refuse_incomplete(request, error) from error
        except GoogleAPICallError as error:
            raise request.refuse(f"was refused ({error.message}); try again later", code="hub_failed") from error
