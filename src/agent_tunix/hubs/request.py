"""A request to a hub, with the wording for its errors."""

import errno
import shutil
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


def explain_full_disk(request: HubRequest, error: OSError, directory: Path, remedy: str) -> AgentTunixError | None:
    """Return the error for a full disk; None if the error has another cause."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return request.refuse(f"does not fit in {directory}: {error.strerror}; free space, or {remedy}", code="disk_full")


def describe_size(size: int) -> str:
    """Format a number of bytes, for example `1.5 GB`."""
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
