"""Opening a store: where it is, its tables, and what cannot hold one."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from agent_tunix.errors import StoreError
from agent_tunix.store import database_url, home, open_store
from agent_tunix.store.migrating import MIGRATIONS
from agent_tunix.store.opening import Store
from agent_tunix.store.schema import HEAD, metadata


def test_the_tables_are_those_of_the_schema(store: Store) -> None:
    with store.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_the_newest_migration_is_the_one_that_the_schema_names() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_opening_again_changes_nothing(url: str) -> None:
    with open_store(url) as store:
        key, _ = store.keys.create("alice")
    with open_store(url) as store:
        assert store.keys.list() == [key]


def test_a_store_of_a_newer_version_is_left_alone(url: str) -> None:
    with open_store(url) as store, store.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match="newer agent_tunix"):
        open_store(url)


def test_a_migration_that_fails_leaves_nothing_behind(url: str) -> None:
    with open_store(url) as store, store.engine.begin() as connection:
        connection.execute(text("DROP TABLE reward_functions"))
        connection.execute(text("DROP TABLE alembic_version"))
    with pytest.raises(StoreError, match="already exists"):
        open_store(url)
    with open_store_of(url) as store, store.engine.connect() as connection:
        assert "alembic_version" not in inspect(connection).get_table_names()


def open_store_of(url: str) -> Store:
    from agent_tunix.store.database import connect, read_url

    return Store(connect(read_url(url)))


def test_processes_that_start_at_once_make_one_store(url: str) -> None:
    code = (
        "import sys; from agent_tunix.store import open_store\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "with open_store(sys.argv[1]) as store: print(store.keys.local().id)"
    )
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code, url]
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(6)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60) for process in processes] == [("key_local\n", "")] * 6


def test_the_store_lies_in_the_home_which_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_TUNIX_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AGENT_TUNIX_DATABASE_URL", raising=False)
    assert database_url() == f"sqlite:///{tmp_path / 'home' / 'store.db'}"
    open_store().close()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home(), *home().iterdir())}
    assert modes["home"] == 0o700
    assert {mode for name, mode in modes.items() if name != "home"} == {0o600}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "store.db",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:x?mode=memory",
        "mysql://a@b/c",
        "http://x",
        "://",
    ],
)
def test_what_cannot_hold_a_store_is_refused(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_TUNIX_DATABASE_URL", url or "nothing")
    with pytest.raises(StoreError, match="or postgresql:"):
        open_store()


def test_a_server_that_is_not_there_is_told_without_its_password() -> None:
    with pytest.raises(StoreError, match="could not be used") as refused:
        open_store("postgresql://alice:secret@127.0.0.1:9/store")
    assert "secret" not in str(refused.value)


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be made"):
        open_store(f"sqlite:///{tmp_path}/file/store.db")


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text("not a database " * 100)
    with pytest.raises(StoreError, match="not a database"):
        open_store(f"sqlite:///{tmp_path}/store.db")


def test_importing_the_store_loads_no_database_library() -> None:
    code = "import sys, agent_tunix.store, agent_tunix.store.access, agent_tunix.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"sqlalchemy", "alembic", "psycopg", "httpx", "fastapi", "jax"} & set(loaded) == set()
