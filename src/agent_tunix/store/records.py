"""Plain records of the store, shared by the service, the client and the command line."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

from agent_tunix.errors import AccessDeniedError
from agent_tunix.rewards.uploaded import is_function_id
from agent_tunix.store.identifiers import is_name

Format = Literal["trl", "miles"]
FORMATS: tuple[Format, ...] = ("trl", "miles")

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
    name: str
    format: Format  # calling convention: `trl` or `miles`
    created_at: datetime  # upload time, UTC, to the microsecond
    version: int  # 1 for the first upload under the name; numbers are never reused
    sha256: str
    size: int
    owner_id: str  # id of the key that owns the name

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
        }

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
        )


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Part of a longer list."""

    data: list[Item]  # the items, newest first
    has_more: bool  # True if there are older ones; pass the last item's id as `after` to get them
