"""Plain records of the store, shared by the service, the client and the command line; their ids and names."""

import re
import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar, get_args

from agent_tunix.errors import AccessDeniedError
from agent_tunix.rewards.uploaded import FUNCTION_PREFIX, UploadedSource, is_function_id

_ID_LENGTH = 24  # of base 32: 120 bits
_SECRET_LENGTH = 40  # of letters and digits: 238 bits
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_ALPHANUMERIC = string.ascii_letters + string.digits

KEY_PREFIX = "key_"
SECRET_PREFIX = "vk_"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_SECRET = re.compile(rf"{SECRET_PREFIX}[A-Za-z0-9]{{{_SECRET_LENGTH}}}")


def new_function_id() -> str:
    """Return `rf_` and 24 random characters of lower-case base 32."""
    return FUNCTION_PREFIX + _draw(_BASE32, _ID_LENGTH)


def new_key_id() -> str:
    """Return `key_` and 24 random characters of lower-case base 32."""
    return KEY_PREFIX + _draw(_BASE32, _ID_LENGTH)


def new_secret() -> str:
    """Return `vk_` and 40 random letters and digits."""
    return SECRET_PREFIX + _draw(_ALPHANUMERIC, _SECRET_LENGTH)


def is_secret(text: object) -> bool:
    """Return True if a value has the form of a key's secret."""
    return isinstance(text, str) and _SECRET.fullmatch(text) is not None


def is_name(text: object) -> bool:
    """Return True if a value may name a reward function or a key; it must not start like a function's id."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None and not text.startswith(FUNCTION_PREFIX)


NAME_RULE = "at most 64 letters, digits, `_`, `.` and `-`, starting with a letter or `_`, but not with `rf_`"


def _draw(alphabet: str, length: int) -> str:
    return "".join(secrets.choice(alphabet) for _ in range(length))


# Calling conventions that functions of a file can have.
Format = Literal["trl", "miles", "plain", "environment", "verl", "openrlhf", "verifiers", "benchmax"]
FORMATS: tuple[Format, ...] = get_args(Format)

# Permissions of a key: to read, to upload and delete, to run uploaded functions.
SCOPES = ("read", "write", "try")

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Key:
    """A key to the store; its secret is never stored."""

    id: str  # `key_` and 24 letters and digits. It stays the same if a revoked key's name is given a new secret.
    name: str
    scopes: frozenset[str]  # A subset of `SCOPES`
    created_at: datetime  # creation time of the current secret, UTC
    revoked_at: datetime | None = None  # time of revocation, UTC; None for a valid key

    def require(self, scope: str) -> None:
        """Raise AccessDeniedError if the key lacks a scope."""
        if scope not in self.scopes:
            raise AccessDeniedError(
                "insufficient_scope", f"the key {self.name!r} lacks the scope {scope!r}; create a key that has it"
            )


@dataclass(frozen=True, slots=True)
class RewardFunctionRecord:
    """One uploaded version of a reward function, without its source."""

    id: str  # `rf_` and 24 letters and digits; never reused
    name: str  # name of the function, which belongs to one key
    format: Format  # calling convention
    created_at: datetime  # upload time, UTC, to the microsecond
    version: int  # 1 for the first upload under the name; numbers are never reused
    sha256: str  # hash of the source's bytes, in hexadecimal
    size: int  # size of the source in bytes
    owner_id: str  # id of the key that owns the name
    function: str = "reward"  # name of the function in the file

    def to_data(self) -> dict[str, Any]:
        """Return the record as JSON data; `created_at` is in ISO 8601, UTC, to the second."""
        return {
            "id": self.id,
            "object": "reward_function",
            "name": self.name,
            "format": self.format,
            "created_at": f"{self.created_at:%Y-%m-%dT%H:%M:%SZ}",
            "version": self.version,
            "sha256": self.sha256,
            "size": self.size,
            "owner": self.owner_id,
            "function": self.function,
        }

    def to_uploaded(self, content: bytes, origin: str) -> UploadedSource:
        """Return the function with the content of its file, as rewards are made of it."""
        return UploadedSource(self.id, self.name, self.format, self.version, content, origin, self.function)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "RewardFunctionRecord":
        """Return the record of data from `to_data`, which may come from a server that cannot be trusted.

        Raises:
            KeyError, TypeError, ValueError: The data is not valid.
        """
        if not (is_function_id(data["id"]) and is_name(data["name"]) and data["format"] in FORMATS):
            raise ValueError("a record must have the id, name and format of a reward function")
        return cls(
            id=data["id"],
            name=data["name"],
            format=data["format"],
            created_at=datetime.fromisoformat(str(data["created_at"])).astimezone(UTC),
            version=int(data["version"]),
            sha256=str(data["sha256"]),
            size=int(data["size"]),
            owner_id=str(data["owner"]),
            function=str(data.get("function", "reward")),
        )


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Part of a longer list."""

    data: list[Item]  # the items, newest first
    has_more: bool  # True if there are older ones; pass the last item's id as `after` to get them
