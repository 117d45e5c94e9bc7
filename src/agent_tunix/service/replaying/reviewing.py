"""Review of a changed source before it is tried, replayed or saved."""

import asyncio
import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from agent_tunix.service.problems import Problem
from agent_tunix.service.replaying.differences import SourceDiff, diff_sources
from agent_tunix.store import Format, check_upload

# Separate from uploads: checking a hostile source takes ten seconds, and users without write access must not delay
# uploads.
_AT_ONCE = 2
_MOST_WAITING = 16


@dataclass(frozen=True, slots=True)
class Review:
    """Difference of a changed source from the saved one, advice for a better reward, and the digest of the change."""

    diff: SourceDiff
    advice: tuple[str, ...]
    sha256: str


def sha256_of(text: str) -> str:
    """Return the digest that identifies a reviewed source."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def review_source(saved: str, changed: str, format: Format) -> Review:
    """Check a changed source, raising UploadError if it is not a reward function, and compare it with the saved one."""
    checked = check_upload(changed.encode("utf-8", "replace"), format)
    return Review(diff_sources(saved, changed), checked.warnings, sha256_of(changed))


class Reviews:
    """Runner of reviews, a few at a time."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_AT_ONCE, "reviews")
        self._waiting = 0

    async def run(self, saved: str, changed: str, format: Format) -> Review:
        """Review a changed source; see `review_source`."""
        if self._waiting >= _MOST_WAITING:
            raise Problem(
                503,
                "busy",
                f"the server is busy: {self._waiting} sources are queued for inspection; try again in a moment",
            )
        done = asyncio.get_running_loop().run_in_executor(self._threads, review_source, saved, changed, format)
        self._waiting += 1
        done.add_done_callback(self._count_down)
        return await done

    def _count_down(self, _: object) -> None:
        self._waiting -= 1

    def close(self) -> None:
        """Wait for running reviews; drop those that wait."""
        self._threads.shutdown(cancel_futures=True)
