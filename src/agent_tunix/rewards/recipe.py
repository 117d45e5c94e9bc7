"""How a reward is built, as plain data: what another process needs to build the same one."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class UploadedSource:
    """One version of an uploaded reward function.

    Attributes:
        id: `rf_…`.
        name: Its name in the store.
        format: How it is called: `trl` or `miles`.
        version: Of the name.
        content: The file's bytes.
        origin: Where it was fetched from, for a person.
    """

    id: str
    name: str
    format: str
    version: int
    content: bytes
    origin: str

    @property
    def sha256(self) -> str:
        """Hexadecimal digest of the bytes."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def file(self) -> str:
        """File name in tracebacks."""
        return f"{self.id}.py"

    @property
    def text(self) -> str:
        """Decoded text."""
        return self.content.decode("utf-8-sig", errors="replace")


@dataclass(frozen=True, slots=True)
class RewardRecipe:
    """Plain data from which `execution.building` makes a reward in another process.

    Attributes:
        spec: What the user wrote for it: a name, a dotted path, `file.py:function` or `file.py:Class`.
        name: The name under which it is logged.
        args: Arguments from configuration, by parameter.
        working_directory: Where relative paths begin and `custom_rewards.py` may lie; absolute.
        reward_directories: Where files of components lie.
        modules: Modules or files imported first.
        convention: `auto`, or what a signature means that fits several conventions.
        completions: `text` or `messages` for a TRL function; `auto` where that is still to be found out.
        reward_key: The entry of a miles function's dict that is the reward; None for a number.
        uploaded: The uploaded file that it is, whatever `spec` says; None for all else. What is made of it runs code of
            others, so that it may be built in workers alone.
    """

    spec: str
    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    working_directory: Path = Path()
    reward_directories: tuple[Path, ...] = ()
    modules: tuple[str, ...] = ()
    convention: str = "auto"
    completions: str = "auto"
    reward_key: str | None = None
    uploaded: UploadedSource | None = None

    def finish(self, reward: Any) -> Any:
        """Return the reward that was built from this recipe; subclasses may wrap it."""
        return reward
