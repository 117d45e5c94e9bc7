"""A changed source looked at before it is tried, replayed or saved: whether it can be, and how it differs."""

import asyncio
import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from agent_tunix.service.problems import Problem
from agent_tunix.service.replaying.differences import SourceDiff, diff_sources
from agent_tunix.store import Format, check_upload

# Apart from uploads: checking a hostile source takes ten seconds, and who may not write must not hold them up.
_AT_ONCE = 2
_MOST_WAITING = 16


@dataclass(frozen=True, slots=True)
class Review:
    """A changed source beside the saved one.

    Attributes:
        diff: How they differ.
        advice: What would make the changed one a better reward.
        sha256: Of the changed one.
    """

    diff: SourceDiff
    advice: tuple[str, ...]
    sha256: str


def sha256_of(text: str) -> str:
    """By which a source is known that was looked at."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def review_source(saved: str, changed: str, format: Format) -> Review:
    """Look at a changed source.

    Args:
        saved: The saved source.
        changed: The changed one.
        format: How its `reward` is to be called.

    Raises:
        UploadError: The changed source is no reward function.
    """
    checked = check_upload(changed.encode("utf-8", "replace"), format)
    return Review(diff_sources(saved, changed), checked.warnings, sha256_of(changed))


class Reviews:
    """Reviews, a few at a time."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_AT_ONCE, "reviews")
        self._waiting = 0

    async def run(self, saved: str, changed: str, format: Format) -> Review:
        """Look at a changed source; see `review_source`.

        Raises:
            Problem: Too many are waiting.
            UploadError: It is no reward function.
        """
        if self._waiting >= _MOST_WAITING:
            raise Problem(503, "busy", f"{self._waiting} sources are waiting to be looked at; try again in a moment")
        done = asyncio.get_running_loop().run_in_executor(self._threads, review_source, saved, changed, format)
        self._waiting += 1
        done.add_done_callback(self._count_down)
        return await done

    def _count_down(self, _: object) -> None:
        self._waiting -= 1

    def close(self) -> None:
        """Wait for those that are running."""
        self._threads.shutdown(cancel_futures=True)
