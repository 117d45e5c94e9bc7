"""What somebody asked a hub for, in the words in which its failure is told."""

import errno
import shutil
from dataclasses import dataclass
from pathlib import Path

from agent_tunix.errors import AgentTunixError


@dataclass(frozen=True)
class HubRequest:
    """A thing that is wanted from a hub.

    Attributes:
        setting: What the user wrote, as `model.path=hf://owner/name`; begins the message of every error.
        instead: What to do where the hub cannot be used at all, as `set model.path to a directory on this disk`.
        error: The class of its errors: ModelError, DataError.
    """

    setting: str
    instead: str
    error: type[AgentTunixError]

    def refuse(self, problem: str, *, code: str) -> AgentTunixError:
        """Make the error that tells a problem with it, and its code."""
        return self.error(f"{self.setting} {problem}", code=code)


def check_space(request: HubRequest, size: int, directory: Path, remedy: str) -> None:
    """Refuse a download that does not fit on the disk, before it begins.

    Args:
        request: What is wanted.
        size: Bytes that are still to come.
        directory: Where they will lie; it need not exist yet.
        remedy: How to choose another place.
    """
    existing = next(place for place in (directory, *directory.absolute().parents) if place.exists())
    free = shutil.disk_usage(existing).free
    if size > free:
        raise request.refuse(
            f"takes {describe_size(size)} in {directory}, where {describe_size(free)} are free; make room, or {remedy}",
            code="disk_full",
        )


def explain_full_disk(request: HubRequest, error: OSError, directory: Path, remedy: str) -> AgentTunixError | None:
    """The error for a disk that became full; None where the reason is another one."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return request.refuse(f"does not fit in {directory}: {error.strerror}; make room, or {remedy}", code="disk_full")


def describe_size(size: int) -> str:
    """`1.5 GB`."""
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
