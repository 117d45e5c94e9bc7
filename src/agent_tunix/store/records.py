"""What the store hands out: plain values, for the service, the client and the command line alike."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

from agent_tunix.errors import AccessDeniedError

Format = Literal["trl", "miles"]
FORMATS: tuple[Format, ...] = ("trl", "miles")

# What a key may do: look, upload and delete, run what is uploaded.
SCOPES = ("read", "write", "try")

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Key:
    """One who may use the store; the secret itself is nowhere kept.

    Attributes:
        id: `key_` and 24 letters and digits. It stays when a revoked key's name is given a new secret.
        name: What a person calls it; unique.
        scopes: Some of `SCOPES`.
        created_at: When its present secret was made; UTC.
        revoked_at: Since when it opens nothing; None: it does.
    """

    id: str
    name: str
    scopes: frozenset[str]
    created_at: datetime
    revoked_at: datetime | None = None

    def require(self, scope: str) -> None:
        """Raise AccessDeniedError if it may not do this."""
        if scope not in self.scopes:
            raise AccessDeniedError(
                "insufficient_scope", f"the key {self.name!r} lacks the scope {scope!r}; make one that has it"
            )


@dataclass(frozen=True, slots=True)
class RewardFunctionRecord:
    """One uploaded version of a reward function, without its source.

    Attributes:
        id: `rf_` and 24 letters and digits; never given twice.
        name: Its name, which belongs to one key.
        format: How it is called: `trl` or `miles`.
        created_at: UTC, to the microsecond.
        version: 1 for the first upload of the name; a number is never given twice.
        sha256: Of the source's bytes, in hexadecimal.
        size: Of the source, in bytes.
        owner_id: The key that owns the name.
    """

    id: str
    name: str
    format: Format
    created_at: datetime
    version: int
    sha256: str
    size: int
    owner_id: str

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON has it: `created_at` in ISO 8601, UTC, to the second."""
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
        """What `to_data` said.

        Raises:
            KeyError, TypeError, ValueError: It is not such data.
        """
        return cls(
            id=str(data["id"]),
            name=str(data["name"]),
            format=data["format"],
            created_at=datetime.fromisoformat(str(data["created_at"])).astimezone(UTC),
            version=int(data["version"]),
            sha256=str(data["sha256"]),
            size=int(data["size"]),
            owner_id=str(data["owner"]),
        )


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some of a longer list.

    Attributes:
        data: The items, newest first.
        has_more: Whether there are older ones; they come with `after` as the last item's id.
    """

    data: list[Item]
    has_more: bool
