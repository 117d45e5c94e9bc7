"""Reward functions of the store: upload, list, read, delete."""

import hashlib
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, Integer, Select, bindparam, delete, exists, select, tuple_, update

from agent_tunix.errors import NameTakenError, NotStoredError, StoreError, StoreRequestError, UploadError
from agent_tunix.rewards.uploaded import is_function_id
from agent_tunix.store.database import insert_missing, reading, writing
from agent_tunix.store.records import NAME_RULE, Format, Key, Page, RewardFunctionRecord, is_name, new_function_id
from agent_tunix.store.schema import names, reward_functions, sources
from agent_tunix.store.uploads import check_upload

MAX_LIMIT = 100

_table = reward_functions.c
_RECORD = (
    _table.id,
    _table.name,
    _table.format,
    _table.created_at,
    _table.version,
    _table.sha256,
    _table.size,
    _table.owner_id,
    _table.function,
)


# Statements are built once: building one takes SQLAlchemy longer than SQLite needs to answer it.
_LIVE = select(*_RECORD).where(_table.deleted_at.is_(None))
_BY_ID = _table.id == bindparam("id")
_GET = _LIVE.where(_BY_ID)
_LATEST = _LIVE.where(_table.name == bindparam("name")).order_by(_table.version.desc()).limit(1)
_POSITION = select(_table.created_at, _table.id).where(_BY_ID)
_SOURCE = (
    select(sources.c.content, _table.sha256)
    .select_from(reward_functions.outerjoin(sources, _table.sha256 == sources.c.sha256))
    .where(_BY_ID, _table.deleted_at.is_(None))
)


def _page(named: bool, after: bool) -> Select[Any]:
    newest = _LIVE.order_by(_table.created_at.desc(), _table.id.desc()).limit(bindparam("most", type_=Integer))
    if named:
        newest = newest.where(_table.name == bindparam("name"))
    if after:
        place = tuple_(bindparam("created_at", type_=_table.created_at.type), bindparam("id", type_=_table.id.type))
        newest = newest.where(tuple_(_table.created_at, _table.id) < place)
    return newest


# Keys: restricted to one name; starting after a function.
_PAGES = {(named, after): _page(named, after) for named in (False, True) for after in (False, True)}


class RewardFunctions:
    """The reward functions of a store. Each change is atomic, even if the process is killed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(
        self, owner: Key, name: str, source: bytes, format: Format, if_changed: bool = False, function: str = "reward"
    ) -> RewardFunctionRecord:
        """Store a file; an existing name of the same owner gets the next version under a new id.

        Args:
            owner: Owner of the function.
            name: At most 64 letters, digits, `_`, `.` and `-`.
            source: Bytes of the file; `check_upload` checks them, and they are never run.
            format: Calling convention of the function.
            if_changed: If the name's newest version has the same bytes, format and function, return it and create none.
                An upload with an unknown result can be repeated safely this way.
            function: Name of the function in the file.

        Raises:
            UploadError: The file or the name is not valid.
            NameTakenError: The name belongs to another key.
            StoreError: The database cannot be used.
        """
        if not is_name(name):
            raise UploadError("invalid_name", f"{name!r} cannot name a reward function; use {NAME_RULE}", "name")
        check_upload(source, format, function)
        digest = hashlib.sha256(source).hexdigest()
        with writing(self._engine) as connection:
            last_version = _take_name(connection, owner, name)
            newest = connection.execute(_LATEST, {"name": name}).first() if if_changed else None
            if newest is not None and (newest.sha256, newest.format, newest.function) == (digest, format, function):
                return _record(newest)
            version = last_version + 1
            connection.execute(update(names).where(names.c.name == name).values(last_version=version))
            _keep_source(connection, digest, source)
            made = RewardFunctionRecord(
                id=new_function_id(),
                name=name,
                format=format,
                created_at=datetime.now(UTC),
                version=version,
                sha256=digest,
                size=len(source),
                owner_id=owner.id,
                function=function,
            )
            connection.execute(reward_functions.insert().values({c: getattr(made, c.name) for c in _RECORD}))
        return made

    def get(self, id: str) -> RewardFunctionRecord:
        """Return the record of an id; raise NotStoredError if the id is unknown or its function is deleted."""
        with reading(self._engine) as connection:
            return _get(connection, id)

    def latest(self, name: str) -> RewardFunctionRecord:
        """Return the newest version of a name that is not deleted; raise NotStoredError if there is none."""
        row = None
        if is_name(name):
            with reading(self._engine) as connection:
                row = connection.execute(_LATEST, {"name": name}).first()
        if row is None:
            raise NotStoredError("reward_function_not_found", f"there is no reward function named {name!r}", "name")
        return _record(row)

    def versions(self, name: str, limit: int = 20, after: str | None = None) -> Page[RewardFunctionRecord]:
        """Return the versions of a name, newest first, none for an unknown name; arguments and errors as for `list`."""
        return self.list(limit, after, name)

    def list(self, limit: int = 20, after: str | None = None, name: str | None = None) -> Page[RewardFunctionRecord]:
        """Return a page of reward functions, newest first.

        A client that follows the pages sees each function that exists throughout exactly once, whatever is uploaded or
        deleted in the meantime, including the function that `after` names. The cost of a page does not depend on its
        position.

        Args:
            limit: Maximum number of functions, 1 to 100.
            after: Id of a function; only older ones are listed. None starts at the newest.
            name: Name to list; None for all.

        Raises:
            StoreRequestError: `limit` is out of range, or `after` was never an id of this store.
            StoreError: The database cannot be used.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
            raise StoreRequestError("invalid_limit", f"limit must be 1 to {MAX_LIMIT}, not {limit!r}", "limit")
        if after is not None and not is_function_id(after):
            raise _no_cursor(after)
        if name is not None and not is_name(name):
            return Page([], False)
        values: dict[str, Any] = {"name": name, "most": limit + 1}
        with reading(self._engine) as connection:
            if after is not None:
                values["created_at"], values["id"] = _position(connection, after)
            rows = connection.execute(_PAGES[name is not None, after is not None], values).all()
        return Page([_record(row) for row in rows[:limit]], len(rows) > limit)

    def source(self, id: str) -> bytes:
        """Return the bytes of the file as they were uploaded.

        Raises:
            NotStoredError: The id is unknown or its function is deleted.
            StoreError: The database is damaged: the bytes differ from the upload.
        """
        row = None
        if is_function_id(id):
            with reading(self._engine) as connection:
                row = connection.execute(_SOURCE, {"id": id}).first()
        if row is None:
            raise _not_found(id)
        content, digest = row
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            raise StoreError(f"the store is damaged: the source of {id} differs from the uploaded one; upload it again")
        return bytes(content)

    def delete(self, owner: Key | None, id: str) -> None:
        """Delete one version, and its source unless another function has the same.

        The owner keeps the name, and neither the id nor the version number is reused.

        Args:
            owner: Key that asks; None for someone with access to the database itself, who may delete anything.
            id: Id of the function.

        Raises:
            NotStoredError: The id is unknown, deleted, or belongs to another key.
            StoreError: The database cannot be used.
        """
        with writing(self._engine) as connection:
            found = _get(connection, id)
            if owner is not None and found.owner_id != owner.id:
                raise _not_found(id)
            # An upload of the same bytes waits for this lock before it uses the row.
            connection.execute(select(sources.c.sha256).where(sources.c.sha256 == found.sha256).with_for_update())
            deleted = update(reward_functions).where(_table.id == id, _table.deleted_at.is_(None))
            by = None if owner is None else owner.id
            if connection.execute(deleted.values(deleted_at=datetime.now(UTC), deleted_by=by)).rowcount == 0:
                raise _not_found(id)  # another process deleted it first
            in_use = exists().where(_table.sha256 == found.sha256, _table.deleted_at.is_(None))
            connection.execute(delete(sources).where(sources.c.sha256 == found.sha256, ~in_use))


def _take_name(connection: Connection, owner: Key, name: str) -> int:
    """Return the last version number of a name, 0 if it is new, and lock it until the end of the transaction."""
    insert_missing(connection, names, "name", name=name, owner_id=owner.id, last_version=0)
    mine = select(names.c.last_version).where(names.c.name == name, names.c.owner_id == owner.id)
    version = connection.execute(mine.with_for_update()).scalar()
    if version is None:
        raise NameTakenError(
            "name_taken", f"the name {name!r} belongs to another key; upload it under another name", "name"
        )
    return int(version)


def _keep_source(connection: Connection, digest: str, source: bytes) -> None:
    """Insert the bytes unless they exist, and prevent their removal until the end of the transaction."""
    while not insert_missing(connection, sources, "sha256", sha256=digest, content=source):
        there = select(sources.c.sha256).where(sources.c.sha256 == digest).with_for_update()
        if connection.execute(there).first() is not None:
            return  # otherwise the last function with these bytes was deleted in between


def _get(connection: Connection, id: str) -> RewardFunctionRecord:
    row = connection.execute(_GET, {"id": id}).first() if is_function_id(id) else None
    if row is None:
        raise _not_found(id)
    return _record(row)


def _not_found(id: str) -> NotStoredError:
    return NotStoredError("reward_function_not_found", f"there is no reward function {id!r}", "id")


def _position(connection: Connection, after: str) -> tuple[datetime, str]:
    """Return the position of an id in the list, even if its function is deleted."""
    row = connection.execute(_POSITION, {"id": after}).first()
    if row is None:
        raise _no_cursor(after)
    return row[0], row[1]


def _no_cursor(after: object) -> StoreRequestError:
    return StoreRequestError(
        "invalid_cursor", f"after must be the id of a reward function in the list, not {after!r}", "after"
    )


def _record(row: Any) -> RewardFunctionRecord:
    return RewardFunctionRecord(*row)
