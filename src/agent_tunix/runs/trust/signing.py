"""Signatures of what this installation made: of its runs, to find later changes, and of the paths of its files."""

import hmac
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError, StoreError
from agent_tunix.regular_files import read_regular
from agent_tunix.rewards.code_parts import CodePart, digest_code, digest_file
from agent_tunix.runs.algorithm_setup import algorithm_parts
from agent_tunix.runs.directory import write_json
from agent_tunix.runs.trust.key import mac, make_key, read_key, read_plain, sha256
from agent_tunix.runs.trust.used_parts import correct_parts, environment_parts, parts_of

_LOGGER = logging.getLogger("agent_tunix.run")
SIGNATURE = "signature.json"
_VERSION = 1


def sign_run(root: Path, config: Config, working_directory: Path) -> None:
    """Sign a run that starts or resumes, which marks it as the user's own.

    Without a signature, later commands ask the user before they use the run. So an error is only logged as a warning.

    Args:
        root: Directory of the run, with its `config.yaml`.
        config: Content of that file.
        working_directory: Directory in which the run's rewards were looked up.
    """
    try:
        key = read_key() or make_key()
        parts = parts_of(config, working_directory) + correct_parts(config, working_directory)
        parts += environment_parts(config, working_directory, root) + algorithm_parts(config, working_directory)
        signed = {
            "version": _VERSION,
            "root": os.path.realpath(root),
            "config": sha256((root / "config.yaml").read_bytes()),
            "parts": [[part.kind, part.text, file_of(part), digest_part(part, root)] for part in parts],
        }
        write_json(root / SIGNATURE, {"signed": signed, "hmac_sha256": mac(key, signed)})
    except (OSError, StoreError, ValueError) as error:
        _LOGGER.warning(
            "the run could not be marked as yours, so commands will ask before they run its rewards: %s", error
        )


def sign_file(path: Path) -> None:
    """Sign the path of a file that this installation has made, but not the content, which may change."""
    try:
        write_json(_signature_of(path), {"hmac_sha256": mac(read_key() or make_key(), _place(path))})
    except (OSError, StoreError) as error:
        _LOGGER.warning("%s could not be marked as yours: %s", path, error)


def is_own_file(path: Path) -> bool:
    """Return True if this installation signed a file at this path."""
    try:
        key, found = read_key(), json.loads(read_plain(_signature_of(path), 1024))["hmac_sha256"]
        return key is not None and hmac.compare_digest(found, mac(key, _place(path)))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, StoreError):
        return False


def _signature_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.signature")


def _place(path: Path) -> dict[str, str]:
    return {"file": os.path.realpath(path)}


@dataclass(frozen=True)
class Doubts:
    """The result of checking a run's signature."""

    reason: str  # phrase about the run for the message to the user
    is_foreign: bool  # True if the signature is missing or wrong
    strange: Sequence[CodePart]  # parts that the signature does not cover


def check_signature(root: Path, content: bytes, parts: Sequence[CodePart]) -> Doubts:
    """Return the doubts about a run, given the content of its `config.yaml` and the parts that it would use."""
    signed, reason = _verified(root, content)
    if signed is None:
        return Doubts(reason, True, parts)
    known = {(kind, text): (file, digest) for kind, text, file, digest in signed["parts"]}
    here = os.path.realpath(root)
    is_in_place = signed["root"] == here
    strange = []
    for part in parts:
        file, digest = known.get((part.kind, part.text), (None, ""))
        # The user may edit their own files outside the run in place. Any other difference from the signature counts.
        is_users = (
            is_in_place and part.file is not None and file_of(part) == file and not part.file.is_relative_to(here)
        )
        if not is_users and digest != digest_part(part, root):
            strange.append(part)
    moved = "" if is_in_place else f" and was started in {signed['root']}"
    return Doubts(f"is your run{moved}, but the following has changed since it was started", False, strange)


def is_own_in_place(root: Path) -> bool:
    """Return True if the directory holds a run of the user's own where it was started."""
    if not (root / "config.yaml").is_file():
        return False
    signed, _ = _verified(root, read_config(root))
    return signed is not None and signed["root"] == os.path.realpath(root)


def _verified(root: Path, content: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the content of a valid signature and ""; else None and the reason why it is not valid."""
    foreign = "was not made by this installation of agent_tunix"
    try:
        stored = json.loads(read_plain(root / SIGNATURE, 2**24))
        signed, given = stored["signed"], stored["hmac_sha256"]
        key = read_key()
        if key is None or not isinstance(given, str) or not hmac.compare_digest(mac(key, signed), given):
            return None, foreign
        if signed["version"] != _VERSION:
            return None, "was signed by another version of agent_tunix"
        if signed["config"] != sha256(content):
            return None, "was changed since it was signed: its config.yaml is another"
        verified: dict[str, Any] = signed
        return verified, ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError, StoreError):
        return None, foreign


def file_of(part: CodePart) -> str | None:
    """Return the file of a part as text; None if it has none."""
    return None if part.file is None else str(part.file)


def digest_part(part: CodePart, root: Path) -> str | None:
    """Return a digest of the code of a part; for a command, its directory. None if the part has no file."""
    if part.kind == "command":
        return file_of(part)
    if part.kind == "uploaded":
        files = sorted((root / "rewards").glob("*.py"))
        return sha256("".join(map(digest_file, files)).encode())
    return None if part.file is None else digest_code(part.file, root)


def read_config(root: Path) -> bytes:
    """Return the content of a run's `config.yaml`; raise ConfigError if it cannot be read."""
    try:
        return read_regular(root / "config.yaml")
    except OSError as error:
        raise ConfigError(
            f"{root / 'config.yaml'} cannot be read: {error.strerror}", code="missing_run_config"
        ) from error
