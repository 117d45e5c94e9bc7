import datetime
import hashlib
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select

from agent_tunix.errors import NameTakenError, NotStoredError, StoreRequestError, UploadError
from agent_tunix.store import Key
from agent_tunix.store.opening import Store
from agent_tunix.store.schema import reward_functions, sources
from tests.raising import raises

SOURCE = b"def reward(completions, **kwargs):\n    return [len(c) / 100 for c in completions]\n"


def test_a_created_function_is_kept_byte_for_byte(store: Store, alice: Key) -> None:
    made = store.reward_functions.create(alice, "brevity", SOURCE, "trl")
    assert re.fullmatch(r"rf_[a-z2-7]{24}", made.id)
    assert (made.name, made.format, made.version, made.size) == ("brevity", "trl", 1, len(SOURCE))
    assert made.sha256 == hashlib.sha256(SOURCE).hexdigest()
    assert store.reward_functions.get(made.id) == made
    assert store.reward_functions.source(made.id) == SOURCE


def test_an_owner_who_uses_a_name_again_makes_its_next_version(store: Store, alice: Key) -> None:
    first = store.reward_functions.create(alice, "brevity", SOURCE, "trl")
    second = store.reward_functions.create(alice, "brevity", SOURCE + b"#\n", "trl")
    assert (second.version, second.id != first.id) == (2, True)
    assert store.reward_functions.latest("brevity") == second
    assert store.reward_functions.versions("brevity").data == [second, first]
    assert store.reward_functions.source(first.id) == SOURCE


def test_if_changed_makes_no_version_of_the_same_file(store: Store, alice: Key) -> None:
    first = store.reward_functions.create(alice, "brevity", SOURCE, "trl", if_changed=True)
    assert store.reward_functions.create(alice, "brevity", SOURCE, "trl", if_changed=True) == first
    assert store.reward_functions.create(alice, "brevity", SOURCE, "trl").version == 2
    assert store.reward_functions.create(alice, "other", SOURCE, "trl", if_changed=True).version == 1


def test_if_changed_compares_with_the_newest_version_alone(store: Store, alice: Key) -> None:
    for number, source in enumerate((SOURCE, SOURCE + b"#\n", SOURCE), 1):
        made = store.reward_functions.create(alice, "brevity", source, "trl", if_changed=True)
        assert made.version == number
    store.reward_functions.delete(alice, made.id)
    assert store.reward_functions.create(alice, "brevity", SOURCE, "trl", if_changed=True).version == 4


def test_if_changed_makes_one_version_of_the_same_file_uploaded_at_once(store: Store, alice: Key) -> None:
    def add(_: int) -> str:
        return store.reward_functions.create(alice, "brevity", SOURCE, "trl", if_changed=True).id

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(add, range(16)))) == 1
    assert len(store.reward_functions.list().data) == 1


@pytest.mark.parametrize("if_changed", [False, True])
def test_the_name_of_another_owner_is_refused(store: Store, alice: Key, if_changed: bool) -> None:
    bob, _ = store.keys.create("bob")
    store.reward_functions.create(alice, "brevity", SOURCE, "trl")
    with raises(NameTakenError, "name_taken"):
        store.reward_functions.create(bob, "brevity", SOURCE, "trl", if_changed=if_changed)
    assert len(store.reward_functions.list().data) == 1


def test_a_file_without_a_reward_is_not_kept(store: Store, alice: Key) -> None:
    with raises(UploadError, "syntax_error"):
        store.reward_functions.create(alice, "brevity", b"1 +", "trl")
    assert store.reward_functions.list().data == []


def test_pages_list_every_function_once_newest_first(store: Store, alice: Key) -> None:
    made = [store.reward_functions.create(alice, f"reward_{number}", SOURCE, "trl") for number in range(5)]
    first = store.reward_functions.list(2)
    second = store.reward_functions.list(2, first.data[-1].id)
    third = store.reward_functions.list(2, second.data[-1].id)
    assert first.data + second.data + third.data == made[::-1]
    assert [page.has_more for page in (first, second, third)] == [True, True, False]


def test_a_page_continues_after_a_deleted_function(store: Store, alice: Key) -> None:
    made = [store.reward_functions.create(alice, f"reward_{number}", SOURCE, "trl") for number in range(4)]
    first = store.reward_functions.list(2)
    store.reward_functions.delete(alice, first.data[-1].id)
    store.reward_functions.create(alice, "newer", SOURCE, "trl")
    assert store.reward_functions.list(2, first.data[-1].id).data == [made[1], made[0]]


def test_a_forged_cursor_and_a_limit_out_of_range_are_refused(store: Store) -> None:
    for cursor in ("", "rf_", "rf_aaaaaaaaaaaaaaaaaaaaaaaa", "1 OR 1=1", "rf_\0", "é" * 1000):
        with raises(StoreRequestError, "invalid_cursor") as caught:
            store.reward_functions.list(after=cursor)
        assert caught.value.param == "after"
    for limit in (0, -1, 101):
        with raises(StoreRequestError, "invalid_limit") as caught:
            store.reward_functions.list(limit)
        assert caught.value.param == "limit"
    assert store.reward_functions.list(100).data == store.reward_functions.list(1).data == []


def test_a_deleted_function_is_not_found_and_its_version_is_not_used_again(store: Store, alice: Key) -> None:
    functions = store.reward_functions
    made = functions.create(alice, "brevity", SOURCE, "trl")
    functions.delete(alice, made.id)
    for call in (functions.get, functions.source, lambda id: functions.delete(alice, id)):
        with raises(NotStoredError, "reward_function_not_found"):
            call(made.id)
    with raises(NotStoredError, "reward_function_not_found"):
        functions.latest("brevity")
    assert functions.create(alice, "brevity", SOURCE, "trl").version == 2


def test_a_source_is_kept_until_the_last_function_that_has_it_is_deleted(store: Store, alice: Key) -> None:
    first = store.reward_functions.create(alice, "one", SOURCE, "trl")
    second = store.reward_functions.create(alice, "two", SOURCE, "trl")
    store.reward_functions.delete(alice, first.id)
    assert store.reward_functions.source(second.id) == SOURCE
    store.reward_functions.delete(alice, second.id)
    with store.engine.connect() as connection:
        assert connection.execute(select(sources)).all() == []
        rows = connection.execute(select(reward_functions)).all()
    assert [(row.deleted_by, row.owner_id) for row in rows] == [(alice.id, alice.id)] * 2


def test_only_the_owner_or_the_holder_of_the_database_deletes(store: Store, alice: Key) -> None:
    bob, _ = store.keys.create("bob")
    made = store.reward_functions.create(alice, "brevity", SOURCE, "trl")
    with raises(NotStoredError, "reward_function_not_found"):
        store.reward_functions.delete(bob, made.id)
    store.reward_functions.delete(None, made.id)
    assert store.reward_functions.list().data == []


UNUSABLE_NAMES = [
    *("'; DROP TABLE names; --", '" OR 1=1', "%", "a b", "../a", "a/b", "", "1a"),
    *("é", "a\0b", "a\n", "a" * 65, "rf_mine"),
]


def test_an_unusable_name_is_refused_and_never_found(store: Store, alice: Key) -> None:
    functions = store.reward_functions
    for name in UNUSABLE_NAMES:
        with raises(UploadError, "invalid_name") as caught:
            functions.create(alice, name, SOURCE, "trl")
        assert caught.value.param == "name"
        for call in (functions.latest, functions.get, functions.source):
            with raises(NotStoredError, "reward_function_not_found"):
                call(name)
        assert functions.list(name=name).data == []


def test_a_name_has_letters_digits_dots_dashes_and_underscores(store: Store, alice: Key) -> None:
    for name in ("a", "_", "A.b-c_9", "a" * 64, "drop", "select"):
        assert store.reward_functions.create(alice, name, SOURCE, "trl").name == name


def test_times_are_utc_in_any_time_zone(store: Store, alice: Key, monkeypatch: pytest.MonkeyPatch) -> None:
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
