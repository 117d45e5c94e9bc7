import stat
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
from agent_tunix.store.database import connect, read_url, reading
from agent_tunix.store.opening import MIGRATIONS, Store
from agent_tunix.store.schema import HEAD, metadata
from tests.raising import raises


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
    with raises(StoreError, "store_failed"):
        open_store(url)


def test_a_migration_that_fails_leaves_nothing_behind(url: str) -> None:
    with open_store(url) as store, store.engine.begin() as connection:
        connection.execute(text("DROP TABLE reward_functions"))
        connection.execute(text("DROP TABLE alembic_version"))
    with raises(StoreError, "store_failed") as caught:
        open_store(url)
    assert "already exists" in str(caught.value)
    with Store(connect(read_url(url))) as store, store.engine.connect() as connection:
        assert "alembic_version" not in inspect(connection).get_table_names()


def test_the_store_lies_in_the_home_and_only_its_owner_may_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_TUNIX_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AGENT_TUNIX_DATABASE_URL", raising=False)
    assert database_url() == f"sqlite:///{tmp_path / 'home' / 'store.db'}"
    open_store().close()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home(), *home().iterdir())}
    assert modes["home"] == 0o700
    assert {mode for name, mode in modes.items() if name != "home"} == {0o600}


@pytest.mark.parametrize(
    "url",
    ["nothing", "store.db", "sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory", "mysql://a@b/c", "://"],
)
def test_a_url_that_cannot_hold_a_store_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_TUNIX_DATABASE_URL", url)
    with raises(StoreError, "store_failed") as caught:
        open_store()
    assert "postgresql:" in str(caught.value)


@pytest.mark.parametrize("place", ["alice:secret@127.0.0.1:9/store", "127.0.0.1:9/store?user=alice&password=secret"])
def test_the_error_for_an_unreachable_server_hides_its_password(place: str) -> None:
    with raises(StoreError, "store_failed") as caught:
        open_store(f"postgresql://{place}")
    assert "secret" not in str(caught.value)


def test_a_place_that_cannot_hold_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a database " * 100)
    with raises(StoreError, "store_failed"):
        open_store(f"sqlite:///{tmp_path}/file/store.db")
    with raises(StoreError, "store_failed"):
        open_store(f"sqlite:///{tmp_path}/file")


def test_without_sqlalchemy_the_extra_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with raises(StoreError, "missing_package") as caught:
        open_store(url)
    assert "pip install 'agent_tunix[service]'" in str(caught.value)


@pytest.mark.slow
def test_a_slow_statement_is_ended_by_the_server(postgresql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_tunix.store.database.CONNECT_TIMEOUT_S", 1)
    with (
        open_store(postgresql) as store,
        raises(StoreError, "store_failed") as caught,
        reading(store.engine) as connection,
    ):
        connection.execute(text("SELECT pg_sleep(60)"))
    assert "statement timeout" in str(caught.value)
