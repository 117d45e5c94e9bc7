"""A request to a hub, with the wording for its errors."""

import contextlib
import errno
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent_tunix.errors import AgentTunixError


@dataclass(frozen=True)
class HubRequest:
    """A request to a hub."""

    setting: str  # the user's setting, such as `model.path=hf://owner/name`; every error message starts with it
    instead: str  # alternative to the hub, such as `set model.path to a directory on this disk`
    error: type[AgentTunixError]  # class of the errors: ModelError or DataError

    def refuse(self, problem: str, *, code: str) -> AgentTunixError:
        """Return the error for a problem with the request."""
        return self.error(f"{self.setting} {problem}", code=code)

    def unreachable(self, hub: str, reason: object) -> "Unreachable":
        """Return the exception for a hub that does not answer."""
        return Unreachable(
            f"cannot be downloaded from {hub} ({reason})",
            f"check that this machine has network access and try again, or {self.instead}",
            "hub_unreachable",
        )

    def refuse_without_copy(self, error: "Unreachable", copy: str) -> AgentTunixError:
        """Return the error for a hub that does not answer while the cache cannot help, as `copy` says."""
        return self.refuse(f"{error}, and {copy}; {error.remedy}", code=error.code)


class Unreachable(Exception):
    """A request that the hub did not answer; a cached copy may help.

    Attributes:
        remedy: The remedy if no copy is cached.
        code: Error code in that case: `hub_unreachable`, `hub_offline` or `unusable_proxy`.
    """

    def __init__(self, problem: str, remedy: str, code: str) -> None:
        super().__init__(problem)
        self.remedy = remedy
        self.code = code


@contextlib.contextmanager
def explaining_disk(request: HubRequest, cache: Path, remedy: str) -> Iterator[None]:
    """Turn the errors of the disk into errors that name the remedy.

    Args:
        request: The request.
        cache: Directory for downloads.
        remedy: A way to choose another directory.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise request.refuse(
                f"does not fit in {cache}: {error.strerror}; free space, or {remedy}", code="disk_full"
            ) from error
        raise request.refuse(f"could not be downloaded into {cache}: {error}; try again", code="hub_failed") from error


@contextlib.contextmanager
def explaining_transfers(request: HubRequest, hub: str, cache: Path, remedy: str) -> Iterator[None]:
    """Turn the exceptions of `requests` and of the disk into errors that name the remedy.

    The arguments are those of `explaining_disk`, and the name of the hub.

    Raises:
        Unreachable: The hub does not answer.
    """
    import requests

    with explaining_disk(request, cache, remedy):
        try:
            yield
        except (requests.ConnectionError, requests.Timeout) as error:
            raise request.unreachable(hub, _innermost(error)) from error
        except requests.exceptions.InvalidSchema as error:  # `requests` says only what it lacks for the proxy
            raise request.refuse(
                f"cannot be downloaded through the proxy of ALL_PROXY or HTTPS_PROXY ({error}); pip install PySocks for"
                " a SOCKS proxy, or unset the variable",
                code="hub_unreachable",
            ) from error
        except requests.RequestException as error:
            raise refuse_incomplete(request, error) from error


def refuse_incomplete(request: HubRequest, error: Exception) -> AgentTunixError:
    """Return the error for a download that was cut off or damaged."""
    return request.refuse(f"arrived incomplete ({_innermost(error)}); try again", code="incomplete_download")


def _innermost(error: BaseException) -> str:
    """Return the root cause of an error on one line: `Connection refused`, `getaddrinfo failed`."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    return " ".join(str(error).split()) or type(error).__name__


def check_space(request: HubRequest, size: int, directory: Path, remedy: str) -> None:
    """Refuse a download that does not fit on the disk, before it starts.

    Args:
        request: The request.
        size: Bytes still to download.
        directory: Target directory; it need not exist.
        remedy: A way to choose another directory.
    """
    existing = next(place for place in (directory, *directory.absolute().parents) if place.exists())
    free = shutil.disk_usage(existing).free
    if size > free:
        raise request.refuse(
            f"requires {describe_size(size)} in {directory}, but {describe_size(free)} are free; free space, or "
            f"{remedy}",
            code="disk_full",
        )


def describe_size(size: int) -> str:
    """Format a number of bytes, for example `1.5 GB`."""
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
