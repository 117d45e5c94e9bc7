"""The key with which this installation signs its runs and files, and files that only this user can have written."""

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
from pathlib import Path
from typing import Any

from agent_tunix.errors import StoreError
from agent_tunix.store.home import home, make_home

_KEY = "run_key"
_KEY_BYTES = 32


def make_key() -> bytes:
    """Create the key of this installation and return it; if another process creates one first, return that."""
    directory = make_home()
    partial = directory / f".{_KEY}.{os.getpid()}.{secrets.token_hex(8)}"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(partial, directory / _KEY)
    finally:
        partial.unlink(missing_ok=True)
    key = read_key()
    if key is None:
        raise StoreError(f"{directory / _KEY} is not a key; remove it")
    return key


def read_key() -> bytes | None:
    """Return the key of this installation; None if there is none.

    Raises:
        StoreError: The key cannot be read, or other users can read or write it, so that it proves nothing.
    """
    path = home() / _KEY
    try:
        key = read_private(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"the key {path}, which signs your runs, cannot be used: {error}") from error
    return key if len(key) == _KEY_BYTES else None


def read_private(path: Path) -> bytes:
    """Return the content of a file that only this user can have written.

    Raises:
        OSError: The file cannot be read, or other users can read or write it.
    """
    content, status = _read_plain_with_status(path, 2**20)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(
            f"{path} must be owned by you and readable only by you; remove it, or: chown {os.geteuid()}, chmod 600"
        )
    return content


def read_plain(path: Path, most: int) -> bytes:
    """Return the content of a regular file; raise OSError if it is another kind of file, a link, or has more bytes."""
    return _read_plain_with_status(path, most)[0]


def _read_plain_with_status(path: Path, most: int) -> tuple[bytes, os.stat_result]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            raise OSError(f"{path} must be a small regular file, but is not")
        return file.read(most), status


def mac(key: bytes, value: Any) -> str:
    """Return the HMAC-SHA256 of a JSON value."""
    return hmac.new(key, canonical(value), hashlib.sha256).hexdigest()


def canonical(value: Any) -> bytes:
    """Return a JSON value as bytes that are the same for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()


def sha256(content: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()
