"""Review of a changed source before it is tried, replayed or saved."""

import hashlib
from dataclasses import dataclass

from agent_tunix.service.replaying.differences import SourceDiff, diff_sources
from agent_tunix.store import Format, check_upload


@dataclass(frozen=True, slots=True)
class Review:
    """Difference of a changed source from the saved one, advice for a better reward, and the digest of the change."""

    diff: SourceDiff
    advice: tuple[str, ...]
    sha256: str

    @classmethod
    def of(cls, saved: str, changed: str, format: Format) -> "Review":
        """Check a changed source, raising UploadError if it is not a reward function, and compare the two."""
        checked = check_upload(changed.encode("utf-8", "replace"), format)
        return cls(diff_sources(saved, changed), checked.warnings, sha256_of(changed))


def sha256_of(text: str) -> str:
    """Return the digest that identifies a source that its owner has reviewed."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
