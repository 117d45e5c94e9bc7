"""Recipes: plain data from which another process builds the same reward."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FUNCTION_PREFIX = "rf_"
_FUNCTION_ID = re.compile(rf"{FUNCTION_PREFIX}[a-z2-7]{{24}}")


def is_function_id(text: object) -> bool:
    """Return True if a value has the form of an uploaded reward function's id."""
    return isinstance(text, str) and _FUNCTION_ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class UploadedSource:
    """One version of an uploaded reward function."""

    id: str  # `rf_…`
    name: str
    format: str  # its convention
    version: int
    content: bytes
    origin: str  # place that it was fetched from, for a person
    function: str = "reward"  # name of the function in the file

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
    """Plain data from which `execution.worker.build_reward` builds a reward in another process.

    Attributes:
        spec: The user's specification: a name, a dotted path, `file.py:function` or `file.py:Class`.
        working_directory: Base of relative paths and directory of `custom_rewards.py`; absolute.
        convention: Convention for a signature that fits several; `auto` if none is given.
        completions: Form of completions, `text` or `messages`; `auto` until it is determined.
        reward_key: Key of the reward in a dict that the function returns; None for the convention's default.
        uploaded: The uploaded file, which takes precedence over `spec`; None for other rewards. Such a recipe runs
            other people's code, so build it only in workers.
        by_value: The user's object, packed by `loading.pack_by_value`; b"" if `spec` finds it in another process too.
        sources: Texts of the user's modules by path, which a worker compiles whatever the disk holds by then.
    """

    spec: str
    name: str
    args: Mapping[str, Any] = field(default_factory=dict)  # arguments from configuration, by parameter
    working_directory: Path = Path()
    reward_directories: tuple[Path, ...] = ()
    modules: tuple[str, ...] = ()  # modules or files to import first
    convention: str = "auto"
    completions: str = "auto"
    reward_key: str | None = None
    uploaded: UploadedSource | None = None
    by_value: bytes = field(default=b"", repr=False)
    sources: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)
