"""Reward functions: uploaded, listed, read, deleted."""

import hashlib
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, Integer, Select, bindparam, delete, exists, select, tuple_, update

from agent_tunix.errors import NameTakenError, NotStoredError, StoreError, StoreRequestError, UploadError
from agent_tunix.store.database import insert_missing, reading, writing
from agent_tunix.store.identifiers import NAME_RULE, is_function_id, is_name, new_function_id
from agent_tunix.store.records import Format, Key, Page, RewardFunctionRecord
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
)


# Statements are made once: SQLAlchemy needs longer to make one than SQLite to answer it.
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


# By whether they are of one name, and whether they go on after a function.
_PAGES = {(named, after): _page(named, after) for named in (False, True) for after in (False, True)}


class RewardFunctions:
    """The reward functions of a store. Each change is made whole or not at all, whenever the process may end."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(
        self, owner: Key, name: str, source: bytes, format: Format, if_changed: bool = False
    ) -> RewardFunctionRecord:
        """Keep a file; one's own name again gets the next version under a new id.

        Args:
            owner: Whose it is to be.
            name: At most 64 letters, digits, `_`, `.` and `-`.
            source: The file's bytes; they are checked by `check_upload`, and never run.
            format: How its `reward` is called.
            if_changed: Where the name's newest version has the same bytes and format, give that one and make none: an
                upload of which nobody knows whether it was kept can be made again so.

        Raises:
            UploadError: The file or the name cannot be used.
            NameTakenError: The name belongs to another.
            StoreError: The database cannot be used.
        """
        if not is_name(name):
            raise UploadError("invalid_name", f"{name!r} cannot name a reward function; use {NAME_RULE}", "name")
        check_upload(source, format)
        digest = hashlib.sha256(source).hexdigest()
        with writing(self._engine) as connection:
            last_version = _take_name(connection, owner, name)
            newest = connection.execute(_LATEST, {"name": name}).first() if if_changed else None
            if newest is not None and (newest.sha256, newest.format) == (digest, format):
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
            )
            connection.execute(reward_functions.insert().values({c: getattr(made, c.name) for c in _RECORD}))
        return made

    def get(self, id: str) -> RewardFunctionRecord:
        """The one of an id.

        Raises:
            NotStoredError: There is none, or it is deleted.
        """
        with reading(self._engine) as connection:
            return _get(connection, id)

    def latest(self, name: str) -> RewardFunctionRecord:
        """The newest version of a name that is not deleted.

        Raises:
            NotStoredError: There is none.
        """
        row = None
        if is_name(name):
            with reading(self._engine) as connection:
                row = connection.execute(_LATEST, {"name": name}).first()
        if row is None:
            raise NotStoredError("reward_function_not_found", f"there is no reward function named {name!r}", "name")
        return _record(row)

    def versions(self, name: str, limit: int = 20, after: str | None = None) -> Page[RewardFunctionRecord]:
        """The versions of a name, newest first; an unknown name has none. Arguments and errors are those of `list`."""
        return self.list(limit, after, name)

    def list(self, limit: int = 20, after: str | None = None, name: str | None = None) -> Page[RewardFunctionRecord]:
        """Some reward functions, newest first.

        Who follows the pages sees each function that is there all the while exactly once, whatever is uploaded or
        deleted meanwhile, the one that `after` names included. A page costs the same wherever it is in the list.

        Args:
            limit: At most so many, 1 to 100.
            after: Only those that are older than the one of this id; None: from the newest on.
            name: Only those of this name; None: all.

        Raises:
            StoreRequestError: `limit` is out of range, or `after` is no id that was ever given.
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
        """The bytes of the file, as they were uploaded.

        Raises:
            NotStoredError: There is none, or it is deleted.
            StoreError: The database is damaged: the bytes are not those that were uploaded.
        """
        row = None
        if is_function_id(id):
            with reading(self._engine) as connection:
                row = connection.execute(_SOURCE, {"id": id}).first()
        if row is None:
            raise _not_found(id)
        content, digest = row
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            raise StoreError(
                f"the store is damaged: the source of {id} is not what was uploaded; upload it anew",
                code="damaged_source",
            )
        return bytes(content)

    def delete(self, owner: Key | None, id: str) -> None:
        """Take one version out of the store; its source goes with it unless another function has the same.

        The name stays its owner's, and neither the id nor the version number is given again.

        Args:
            owner: Who asks; None: who has the database itself, and may delete anything.
            id: Which.

        Raises:
            NotStoredError: There is none, it is deleted, or it belongs to another.
            StoreError: The database cannot be used.
        """
        with writing(self._engine) as connection:
            found = _get(connection, id)
            if owner is not None and found.owner_id != owner.id:
                raise _not_found(id)
            # A row that is locked cannot be taken up by an upload of the same bytes until this is done.
            connection.execute(select(sources.c.sha256).where(sources.c.sha256 == found.sha256).with_for_update())
            deleted = update(reward_functions).where(_table.id == id, _table.deleted_at.is_(None))
            by = None if owner is None else owner.id
            if connection.execute(deleted.values(deleted_at=datetime.now(UTC), deleted_by=by)).rowcount == 0:
                raise _not_found(id)  # another was faster
            in_use = exists().where(_table.sha256 == found.sha256, _table.deleted_at.is_(None))
            connection.execute(delete(sources).where(sources.c.sha256 == found.sha256, ~in_use))


def _take_name(connection: Connection, owner: Key, name: str) -> int:
    """The last version number given under a name, 0 if it is new; it is locked until the end of the transaction."""
    insert_missing(connection, names, "name", name=name, owner_id=owner.id, last_version=0)
    mine = select(names.c.last_version).where(names.c.name == name, names.c.owner_id == owner.id)
    version = connection.execute(mine.with_for_update()).scalar()
    if version is None:
        raise NameTakenError(
            "name_taken", f"the name {name!r} belongs to another key; upload under a name of your own", "name"
        )
    return int(version)


def _keep_source(connection: Connection, digest: str, source: bytes) -> None:
    """Add the bytes unless they are there, and keep them from being removed until the end of the transaction."""
    while not insert_missing(connection, sources, "sha256", sha256=digest, content=source):
        there = select(sources.c.sha256).where(sources.c.sha256 == digest).with_for_update()
        if connection.execute(there).first() is not None:
            return  # else the last function that had them was deleted in between


def _get(connection: Connection, id: str) -> RewardFunctionRecord:
    row = connection.execute(_GET, {"id": id}).first() if is_function_id(id) else None
    if row is None:
        raise _not_found(id)
    return _record(row)


def _not_found(id: str) -> NotStoredError:
    return NotStoredError("reward_function_not_found", f"there is no reward function {id!r}", "id")


def _position(connection: Connection, after: str) -> tuple[datetime, str]:
    """Where in the list an id stands or, deleted, stood."""
    row = connection.execute(_POSITION, {"id": after}).first()
    if row is None:
        raise _no_cursor(after)
    return row[0], row[1]


def _no_cursor(after: object) -> StoreRequestError:
    return StoreRequestError(
        "invalid_cursor", f"after must be the id of a reward function of the list, not {after!r}", "after"
    )


def _record(row: Any) -> RewardFunctionRecord:
    return RewardFunctionRecord(*row)
