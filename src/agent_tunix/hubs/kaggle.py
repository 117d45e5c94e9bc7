"""Kaggle models and datasets by handle, through `kagglehub` and its cache."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from agent_tunix.hubs.request import HubRequest, Unreachable, explaining_transfers, refuse_incomplete

Kind = Literal["model", "dataset"]

_LOGGER = logging.getLogger("agent_tunix.hubs")
_OTHER_DISK = "set KAGGLEHUB_CACHE to a directory on another disk"
_NEW_TOKEN = (
    "create a token at https://www.kaggle.com/settings, set KAGGLE_USERNAME and KAGGLE_KEY in the environment or in "
    ".env"
)


def download(request: HubRequest, handle: str, kind: Kind) -> Path:
    """Return the directory with all files of a model or dataset, from the cache or from Kaggle.

    Args:
        request: The request, for error messages.
        handle: `owner/model/framework/variation` or `owner/dataset`, optionally with a version. Without one, it means
            the latest version, or the latest in the cache if Kaggle is unreachable.
        kind: Kind of the handle.

    Returns:
        A directory whose last part is the version.
    """
    import kagglehub

    call: Callable[[str], str] = kagglehub.model_download if kind == "model" else kagglehub.dataset_download
    try:
        with _explaining(request, handle, kind):
            return Path(call(handle))
    except Unreachable as error:
        if (copy := _latest_copy(handle, kind)) is None:
            raise request.refuse_without_copy(error, f"there is no copy in {_cache()}") from error
        _LOGGER.warning("%s %s; using the cached copy in %s", request.setting, error, copy)
        return copy


def cached_version(handle: str, kind: Kind) -> Path:
    """Return the directory for the files of a version, which need not exist."""
    name, _, version = handle.rpartition("/")
    return _cache() / f"{kind}s" / name / ("versions" if kind == "dataset" else "") / version


def _cache() -> Path:
    from kagglehub.config import get_cache_folder

    return Path(get_cache_folder())


def _latest_copy(handle: str, kind: Kind) -> Path | None:
    """Return the directory of a handle's latest complete version in the cache; None if there is none."""
    whole = [marker.stem for marker in (_cache() / f"{kind}s" / handle).glob("*.complete")]
    versions = [cached_version(f"{handle}/{version}", kind) for version in whole if version.isdigit()]
    return max((path for path in versions if path.is_dir()), key=lambda path: int(path.name), default=None)


@contextlib.contextmanager
def _explaining(request: HubRequest, handle: str, kind: Kind) -> Iterator[None]:
    """Turn the exceptions of `kagglehub` into errors that name the remedy."""
    import requests
    from kagglehub.exceptions import CredentialError, DataCorruptionError, UnauthenticatedError

    page = f"https://www.kaggle.com/{kind}s/{handle}"
    with explaining_transfers(request, "Kaggle", _cache(), _OTHER_DISK):
        try:
            yield
        except (CredentialError, UnauthenticatedError) as error:
            raise request.refuse(f"requires a login ({error}); {_NEW_TOKEN}", code="access_denied") from error
        except DataCorruptionError as error:
            raise refuse_incomplete(request, error) from error
        except requests.HTTPError as error:
            status = error.response.status_code if error.response is not None else 0
            if status in (401, 403):
                raise request.refuse(
                    f"was refused by Kaggle (status {status}); accept its licence at {page}, {_NEW_TOKEN} of that "
                    "account",
                    code="access_denied",
                ) from error
            if status == 404:
                raise request.refuse(
                    f"is not a {kind} on Kaggle that you can access; correct it, or check {page}", code="not_found"
                ) from error
            raise request.refuse(
                f"failed with status {status} of Kaggle; try again later", code="hub_failed"
            ) from error
