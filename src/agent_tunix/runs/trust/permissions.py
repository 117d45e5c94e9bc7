"""Permissions for runs that are not the user's own: the question, and the stored answer."""

import json
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from agent_tunix.errors import StoreError, UntrustedRunError
from agent_tunix.rewards.code_parts import CodePart
from agent_tunix.runs.directory import write_json
from agent_tunix.runs.trust.key import canonical, read_private, sha256
from agent_tunix.runs.trust.signing import digest_part, file_of
from agent_tunix.store.home import home, make_home
from agent_tunix.visible_text import escape_hidden, one_line

_LOGGER = logging.getLogger("agent_tunix.run")
_TRUSTED = "trusted_runs"
_LONGEST_LINE = 1000


def ask_user(root: Path, reason: str, parts: Iterable[CodePart]) -> bool:
    """Ask the user and return True if they allow it; return False without a terminal."""
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(escape_hidden(_told(root, reason, parts)), file=sys.stderr)
    print("Allow this, until the run changes? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _told(root: Path, reason: str, parts: Iterable[CodePart]) -> str:
    # A line feed in a text of the run would look like a line of ours.
    return "\n".join([f"{one_line(str(root))} {reason}, and would", *(_line_of(part) for part in parts)])


def _line_of(part: CodePart) -> str:
    text = one_line(part.describe())
    return f"  - {text if len(text) <= _LONGEST_LINE else text[:_LONGEST_LINE] + ' …'}"


def refusal(root: Path, reason: str, parts: Iterable[CodePart]) -> UntrustedRunError:
    """Return the error that lists what the run would use and says how to allow it."""
    return UntrustedRunError(
        f"{_told(root, reason, parts)}\nCheck the listed items. Then allow them with --trust (evaluate.py: "
        "trust=true), which is remembered until the run changes, or name your own reward, if the command accepts one"
    )


def digest_permission(root: Path, content: bytes, parts: Sequence[CodePart]) -> str:
    """Return a digest of everything that a permission covers: directory, configuration and parts."""
    named = [[part.kind, part.component, part.text, file_of(part), digest_part(part, root)] for part in parts]
    return sha256(canonical([os.path.realpath(root), sha256(content), sorted(named, key=str)]))


def _remembered_path(root: Path) -> Path:
    return home() / _TRUSTED / f"{sha256(os.fsencode(os.path.realpath(root)))[:32]}.json"


def is_remembered(root: Path, content: bytes, parts: Sequence[CodePart]) -> bool:
    """Return True if the user allowed this before, and nothing has changed since."""
    try:
        return bool(
            json.loads(read_private(_remembered_path(root)))["state"] == digest_permission(root, content, parts)
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def remember(root: Path, content: bytes, parts: Sequence[CodePart], state: str | None) -> None:
    """Store the permission; `state` is the digest that was taken before the question, if there was one."""
    try:
        make_home()
        path = _remembered_path(root)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_json(path, {"root": os.path.realpath(root), "state": state or digest_permission(root, content, parts)})
        path.chmod(0o600)
    except (OSError, StoreError) as error:
        _LOGGER.warning("the trust in the run could not be stored: %s", error)
