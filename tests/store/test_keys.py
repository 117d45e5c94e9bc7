"""Who may use the store."""

import re
from collections.abc import Callable

import pytest

from agent_tunix.errors import AccessDeniedError, NameTakenError, NotStoredError, StoreRequestError
from agent_tunix.store.opening import Store
from agent_tunix.store.schema import metadata


def test_a_secret_says_whose_it_is(store: Store) -> None:
    key, secret = store.keys.create("alice", ["read"])
    assert re.fullmatch(r"vk_[A-Za-z0-9]{40}", secret)
    assert store.keys.authenticate(secret) == key
    assert key.scopes == {"read"}


def test_a_revoked_key_opens_nothing_from_that_moment(store: Store) -> None:
    _, secret = store.keys.create("alice")
    store.keys.revoke("alice")
    with pytest.raises(AccessDeniedError):
        store.keys.authenticate(secret)


@pytest.mark.parametrize(
    "change", [lambda s: s[:-1], lambda s: s + "a", lambda s: s[:-1] + "é", lambda s: "", str.swapcase]
)
def test_what_is_not_quite_the_secret_opens_nothing(store: Store, change: Callable[[str], str]) -> None:
    _, secret = store.keys.create("alice")
    with pytest.raises(AccessDeniedError):
        store.keys.authenticate(change(secret))


def test_a_key_is_found_by_its_id_revoked_or_not(store: Store) -> None:
    key, _ = store.keys.create("alice")
    assert store.keys.get(key.id) == key
    store.keys.revoke("alice")
    assert store.keys.get(key.id).revoked_at is not None
    for unknown in ("key_" + "a" * 24, "alice", "", store.keys.local().id):
        with pytest.raises(NotStoredError, match="no key"):
            store.keys.get(unknown)


def test_the_secret_is_nowhere_in_the_database(store: Store) -> None:
    _, secret = store.keys.create("alice")
    with store.engine.connect() as connection:
        dump = "\n".join(str(row) for table in metadata.sorted_tables for row in connection.execute(table.select()))
    assert secret[:11] in dump
    assert secret not in dump
    assert secret[11:] not in dump


def test_a_name_has_one_key_that_is_not_revoked(store: Store) -> None:
    store.keys.create("alice")
    with pytest.raises(NameTakenError, match="already"):
        store.keys.create("alice")


def test_a_revoked_keys_name_with_a_new_secret_is_the_same_owner(store: Store) -> None:
    old, old_secret = store.keys.create("alice")
    store.keys.revoke(old.id)
    new, new_secret = store.keys.create("alice", ["read"])
    assert new.id == old.id
    assert new.scopes == {"read"}
    assert store.keys.authenticate(new_secret) == new
    with pytest.raises(AccessDeniedError):
        store.keys.authenticate(old_secret)


@pytest.mark.parametrize("name", ["", "a b", "é", "1a", "a" * 65, "rf_a", "a\n", "local"])
def test_a_name_that_cannot_be_used_is_refused(store: Store, name: str) -> None:
    with pytest.raises(StoreRequestError):
        store.keys.create(name)


@pytest.mark.parametrize("scopes", [[], ["admin"], ["read", ""]])
def test_a_scope_that_there_is_not_is_refused(store: Store, scopes: list[str]) -> None:
    with pytest.raises(StoreRequestError, match="scope"):
        store.keys.create("alice", scopes)


def test_who_has_the_database_is_an_owner_without_a_secret_that_is_not_listed_or_revoked(store: Store) -> None:
    local = store.keys.local()
    assert local.name == "local"
    assert store.keys.list() == []
    with pytest.raises(NotStoredError):
        store.keys.revoke("local")
