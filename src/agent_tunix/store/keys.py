"""Access keys of the store and their scopes."""

import hashlib
import hmac
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, bindparam, or_, select, update

from agent_tunix.errors import AccessDeniedError, NameTakenError, NotStoredError, StoreRequestError
from agent_tunix.store.database import insert_missing, reading, writing
from agent_tunix.store.records import NAME_RULE, SCOPES, Key, is_name, is_secret, new_key_id, new_secret
from agent_tunix.store.schema import LOCAL_KEY_ID, keys

_PREFIX_LENGTH = 11  # first characters of the secret, with `vk_`, stored in plain text; the rest has 190 bits

_OF_PREFIX = select(keys).where(keys.c.prefix == bindparam("prefix"))
_BY_ID = select(keys).where(keys.c.id == bindparam("id"), keys.c.secret_sha256.is_not(None))


class Keys:
    """The keys of a store.

    A secret has 238 random bits, so a plain SHA-256 of it cannot be reversed. It is shown once.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(self, name: str, scopes: Iterable[str] = SCOPES) -> tuple[Key, str]:
        """Create a key.

        The name of a revoked key can be used again: the same owner, with everything it owns, gets a new secret.

        Args:
            name: Name for people.
            scopes: A subset of `SCOPES`.

        Returns:
            The key and its secret, `vk_…`, which cannot be retrieved again.

        Raises:
            NameTakenError: A key that is not revoked has the name.
            StoreRequestError: The name or a scope is not valid.
            StoreError: The database cannot be used.
        """
        if not is_name(name):
            raise StoreRequestError("invalid_name", f"{name!r} cannot name a key; use {NAME_RULE}", "name")
        chosen = _check_scopes(scopes)
        secret = new_secret()
        now = datetime.now(UTC)
        values: dict[str, Any] = {
            "scopes": " ".join(scope for scope in SCOPES if scope in chosen),
            "prefix": secret[:_PREFIX_LENGTH],
            "secret_sha256": _digest(secret),
            "created_at": now,
            "revoked_at": None,
        }
        key_id = new_key_id()
        with writing(self._engine) as connection:
            if not insert_missing(connection, keys, "name", id=key_id, name=name, **values):
                renewed = update(keys).where(keys.c.name == name, keys.c.revoked_at.is_not(None)).values(**values)
                found = connection.execute(renewed.returning(keys.c.id)).scalar()
                if found is None:
                    raise NameTakenError(
                        "name_taken", f"there is a key {name!r} already; revoke it, or choose another name", "name"
                    )
                key_id = found
        return Key(key_id, name, chosen, now), secret

    def get(self, id: str) -> Key:
        """Return the key of an id, revoked or not; raise NotStoredError if the id is unknown."""
        with reading(self._engine) as connection:
            row = connection.execute(_BY_ID, {"id": id}).first()
        if row is None:
            raise NotStoredError("key_not_found", f"there is no key {id!r}; list the keys with `agent-tunix keys list`")
        return _key(row)

    def list(self) -> "list[Key]":
        """Return all keys that have or had a secret, oldest first, including revoked ones."""
        wanted = select(keys).where(keys.c.secret_sha256.is_not(None)).order_by(keys.c.created_at, keys.c.id)
        with reading(self._engine) as connection:
            return [_key(row) for row in connection.execute(wanted)]

    def revoke(self, id_or_name: str) -> Key:
        """Revoke a key; a revoked key stays unchanged. Raise NotStoredError if the key does not exist."""
        is_it = or_(keys.c.id == id_or_name, keys.c.name == id_or_name)
        with writing(self._engine) as connection:
            live = update(keys).where(is_it, keys.c.secret_sha256.is_not(None), keys.c.revoked_at.is_(None))
            connection.execute(live.values(revoked_at=datetime.now(UTC)))
            row = connection.execute(select(keys).where(is_it, keys.c.secret_sha256.is_not(None))).first()
        if row is None:
            raise NotStoredError(
                "key_not_found", f"there is no key {id_or_name!r}; list the keys with `agent-tunix keys list`"
            )
        return _key(row)

    def authenticate(self, secret: str) -> Key:
        """Return the key of a secret.

        Raises:
            AccessDeniedError: The secret is unknown or its key is revoked; the message does not say which.
        """
        known = is_secret(secret)
        prefix = secret[:_PREFIX_LENGTH] if known else ""
        with reading(self._engine) as connection:
            rows = connection.execute(_OF_PREFIX, {"prefix": prefix}).all()
        given = _digest(secret if known else "")
        # Digests are compared, so the time taken could reveal only the digest.
        matching = [row for row in rows if hmac.compare_digest(given, row.secret_sha256 or "")]
        if not matching or matching[0].revoked_at is not None:
            raise AccessDeniedError("invalid_key", "the API key is not valid; it may be mistyped or revoked")
        return _key(matching[0])

    def local(self) -> Key:
        """Return the owner of uploads without a key, made by anyone who can write the database itself."""
        with reading(self._engine) as connection:
            return _key(connection.execute(select(keys).where(keys.c.id == LOCAL_KEY_ID)).one())


def _check_scopes(scopes: Iterable[str]) -> frozenset[str]:
    chosen = frozenset(scopes)
    unknown = sorted(chosen - set(SCOPES))
    if unknown or not chosen:
        said = f"there is no scope {unknown[0]!r}" if unknown else "a key requires a scope"
        raise StoreRequestError("invalid_scope", f"{said}; the scopes are {', '.join(SCOPES)}", "scopes")
    return chosen


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _key(row: Any) -> Key:
    return Key(row.id, row.name, frozenset(row.scopes.split()), row.created_at, row.revoked_at)
