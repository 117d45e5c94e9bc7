"""What the store keeps, lists and takes out again."""

import datetime
import hashlib
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event, select, update

from agent_tunix.errors import NameTakenError, NotStoredError, StoreError, StoreRequestError, UploadError
from agent_tunix.store import Key
from agent_tunix.store.opening import Store
from agent_tunix.store.schema import reward_functions, sources

SOURCE = b"def reward(completions, **kwargs):\n    return [len(c) / 100 for c in completions]\n"


def test_what_is_created_is_kept_as_it_came(store: Store, alice: Key) -> None:
    made = store.reward_functions.create(alice, "brevity", SOURCE, "trl")
    assert re.fullmatch(r"rf_[a-z2-7]{24}", made.id)
    assert (made.name, made.format, made.version, made.size) == ("brevity", "trl", 1, len(SOURCE))
    assert made.sha256 == hashlib.sha256(SOURCE).hexdigest()
    assert store.reward_functions.get(made.id) == made
    assert store.reward_functions.source(made.id) == SOURCE


def test_ones_own_name_again_is_the_next_version(store: Store, alice: Key) -> None:
    first = store.reward_functions.create(alice, "brevity", SOURCE, "trl")
    second = store.reward_functions.create(alice, "brevity", SOURCE + b"#\n", "trl")
    assert (second.version, second.id != first.id) == (2, True)
    assert store.reward_functions.latest("brevity") == second
    assert store.reward_functions.versions("brevity").data == [second, first]
    assert store.reward_functions.source(first.id) == SOURCE


def test_the_same_file_again_makes_a_version_only_if_all_are_wanted(store: Store, alice: Key) -> None:
    first = store.reward_functions.create(alice, "brevity", SOURCE, "trl", if_changed=True)
    assert store.reward_functions.create(alice, "brevity", SOURCE, "trl", if_changed=True) == first
    assert store.reward_functions.create(alice, "brevity", SOURCE, "trl").version == 2
    assert store.reward_functions.create(alice, "other", SOURCE, "trl", if_changed=True).version == 1


def test_what_is_not_the_newest_versions_file_is_a_change(store: Store, alice: Key) -> None:
    for number, source in enumerate((SOURCE, SOURCE + b"#\n", SOURCE), 1):
        made = store.reward_functions.create(alice, "brevity", source, "trl", if_changed=True)
        assert made.version == number
    store.reward_functions.delete(alice, made.id)
    assert store.reward_functions.create(alice, "brevity", SOURCE, "trl", if_changed=True).version == 4


def test_the_same_file_several_times_at_once_is_one_version_where_only_changes_are_wanted(
    store: Store, alice: Key
) -> None:
    def add(_: int) -> str:
        return store.reward_functions.create(alice, "brevity", SOURCE, "trl", if_changed=True).id

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(add, range(16)))) == 1
    assert len(store.reward_functions.list().data) == 1


def test_the_same_file_under_anothers_name_is_refused_all_the_same(store: Store, alice: Key) -> None:
    store.reward_functions.create(alice, "brevity", SOURCE, "trl")
    with pytest.raises(NameTakenError):
        store.reward_functions.create(store.keys.create("bob")[0], "brevity", SOURCE, "trl", if_changed=True)


def test_anothers_name_is_refused(store: Store, alice: Key) -> None:
    bob, _ = store.keys.create("bob")
    store.reward_functions.create(alice, "brevity", SOURCE, "trl")
    with pytest.raises(NameTakenError, match="belongs to another key"):
        store.reward_functions.create(bob, "brevity", SOURCE, "trl")
    assert len(store.reward_functions.list().data) == 1


def test_what_is_no_reward_function_is_not_kept(store: Store, alice: Key) -> None:
    with pytest.raises(UploadError):
        store.reward_functions.create(alice, "brevity", b"1 +", "trl")
    assert store.reward_functions.list().data == []


def test_pages_give_everything_once_and_newest_first(store: Store, alice: Key) -> None:
    made = [store.reward_functions.create(alice, f"reward_{number}", SOURCE, "trl") for number in range(5)]
    first = store.reward_functions.list(2)
    second = store.reward_functions.list(2, first.data[-1].id)
    third = store.reward_functions.list(2, second.data[-1].id)
    assert first.data + second.data + third.data == made[::-1]
    assert [page.has_more for page in (first, second, third)] == [True, True, False]


def test_a_page_goes_on_after_a_function_that_was_deleted_meanwhile(store: Store, alice: Key) -> None:
    made = [store.reward_functions.create(alice, f"reward_{number}", SOURCE, "trl") for number in range(4)]
    first = store.reward_functions.list(2)
    store.reward_functions.delete(alice, first.data[-1].id)
    store.reward_functions.create(alice, "newer", SOURCE, "trl")
    assert store.reward_functions.list(2, first.data[-1].id).data == [made[1], made[0]]


@pytest.mark.parametrize("cursor", ["", "rf_", "rf_aaaaaaaaaaaaaaaaaaaaaaaa", "1 OR 1=1", "rf_\0", "é" * 1000])
def test_a_forged_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(StoreRequestError) as refused:
        store.reward_functions.list(after=cursor)
    assert (refused.value.code, refused.value.param) == ("invalid_cursor", "after")


@pytest.mark.parametrize("limit", [0, -1, 101])
def test_a_limit_out_of_range_is_refused(store: Store, limit: int) -> None:
    with pytest.raises(StoreRequestError, match="1 to 100"):
        store.reward_functions.list(limit)


def test_what_is_deleted_is_gone_and_its_number_is_not_given_again(store: Store, alice: Key) -> None:
    made = store.reward_functions.create(alice, "brevity", SOURCE, "trl")
    store.reward_functions.delete(alice, made.id)
    for forbidden in (store.reward_functions.get, store.reward_functions.source):
        with pytest.raises(NotStoredError):
            forbidden(made.id)
    with pytest.raises(NotStoredError):
        store.reward_functions.latest("brevity")
    with pytest.raises(NotStoredError):
        store.reward_functions.delete(alice, made.id)
    assert store.reward_functions.create(alice, "brevity", SOURCE, "trl").version == 2


def test_a_source_that_another_function_has_outlives_the_first(store: Store, alice: Key) -> None:
    first = store.reward_functions.create(alice, "one", SOURCE, "trl")
    second = store.reward_functions.create(alice, "two", SOURCE, "trl")
    store.reward_functions.delete(alice, first.id)
    assert store.reward_functions.source(second.id) == SOURCE


def test_only_its_owner_deletes_a_function_or_who_has_the_database(store: Store, alice: Key) -> None:
    bob, _ = store.keys.create("bob")
    made = store.reward_functions.create(alice, "brevity", SOURCE, "trl")
    with pytest.raises(NotStoredError):
        store.reward_functions.delete(bob, made.id)
    store.reward_functions.delete(None, made.id)
    assert store.reward_functions.list().data == []


@pytest.mark.parametrize(
    "name",
    [
        "'; DROP TABLE names; --",
        '" OR 1=1',
        "a b",
        "../a",
        "a/b",
        "",
        "1a",
        "é",
        "a\0b",
        "a" * 65,
        "rf_mine",
        "%",
        "a\n",
    ],
)
def test_a_name_that_is_none_is_refused_and_never_found(store: Store, alice: Key, name: str) -> None:
    with pytest.raises(UploadError) as refused:
        store.reward_functions.create(alice, name, SOURCE, "trl")
    assert (refused.value.code, refused.value.param) == ("invalid_name", "name")
    with pytest.raises(NotStoredError):
        store.reward_functions.latest(name)
    assert store.reward_functions.list(name=name).data == []
    for method in (store.reward_functions.get, store.reward_functions.source):
        with pytest.raises(NotStoredError):
            method(name)


@pytest.mark.parametrize("name", ["a", "_", "A.b-c_9", "a" * 64, "drop", "select"])
def test_a_name_of_letters_digits_dots_dashes_and_underscores_is_taken(store: Store, alice: Key, name: str) -> None:
    assert store.reward_functions.create(alice, name, SOURCE, "trl").name == name


def test_instants_are_utc_whatever_the_zone_of_the_machine(
    store: Store, alice: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")  # 14 hours ahead
    time.tzset()
    try:
        before = datetime.datetime.now(datetime.UTC)
        made = store.reward_functions.create(alice, "brevity", SOURCE, "trl")
        kept = store.reward_functions.get(made.id).created_at
    finally:
        monkeypatch.undo()
        time.tzset()
    assert kept == made.created_at
    assert kept.utcoffset() == datetime.timedelta(0)
    assert before <= kept <= datetime.datetime.now(datetime.UTC)


def test_a_source_that_is_not_what_was_uploaded_is_not_given_out(store: Store, alice: Key) -> None:
    made = store.reward_functions.create(alice, "brevity", SOURCE, "trl")
    with store.engine.begin() as connection:
        connection.execute(update(sources).values(content=b"something else"))
    with pytest.raises(StoreError, match="damaged"):
        store.reward_functions.source(made.id)


def test_the_source_of_the_last_function_that_had_it_goes_with_it(store: Store, alice: Key) -> None:
    made = store.reward_functions.create(alice, "brevity", SOURCE, "trl")
    store.reward_functions.delete(alice, made.id)
    with store.engine.connect() as connection:
        assert connection.execute(select(sources)).all() == []
        (row,) = connection.execute(select(reward_functions)).all()
    assert (row.deleted_by, row.owner_id) == (alice.id, alice.id)


def test_a_page_is_found_by_an_index_wherever_it_is(store: Store, alice: Key) -> None:
    made = store.reward_functions.create(alice, "brevity", SOURCE, "trl")
    told: list[str] = []
    if store.engine.dialect.name == "postgresql":
        pytest.skip("its planner reads small tables whole")

    @event.listens_for(store.engine, "before_cursor_execute")
    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT"):
            told.extend(row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall())

    store.reward_functions.list(after=made.id)
    store.reward_functions.list(after=made.id, name="brevity")
    assert [line for line in told if "SCAN" in line or "TEMP B-TREE" in line] == []
    assert sum("ix_reward_functions_newest" in line for line in told) == 1
    assert sum("ix_reward_functions_named" in line for line in told) == 1
