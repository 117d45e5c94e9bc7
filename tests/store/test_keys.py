import re

from agent_tunix.errors import AccessDeniedError, NameTakenError, NotStoredError, StoreRequestError
from agent_tunix.store import Key
from agent_tunix.store.opening import Store
from agent_tunix.store.schema import metadata
from tests.raising import raises


def test_a_secret_authenticates_its_key(store: Store) -> None:
    key, secret = store.keys.create("alice", ["read"])
    assert re.fullmatch(r"vk_[A-Za-z0-9]{40}", secret)
    assert store.keys.authenticate(secret) == key
    assert key.scopes == {"read"}


def test_only_the_exact_secret_authenticates(store: Store) -> None:
    _, secret = store.keys.create("alice")
    for wrong in (secret[:-1], secret + "a", secret[:-1] + "é", "", secret.swapcase(), "vk_' OR '1'='1"):
        with raises(AccessDeniedError, "invalid_key"):
            store.keys.authenticate(wrong)


def test_a_key_is_found_by_its_id_even_when_revoked(store: Store, alice: Key) -> None:
    assert store.keys.get(alice.id) == alice
    store.keys.revoke("alice")
    assert store.keys.get(alice.id).revoked_at is not None
    for unknown in ("key_" + "a" * 24, "alice", "", store.keys.local().id):
        with raises(NotStoredError, "key_not_found"):
            store.keys.get(unknown)


def test_the_database_does_not_hold_the_secret(store: Store) -> None:
    _, secret = store.keys.create("alice")
    with store.engine.connect() as connection:
        dump = "\n".join(str(row) for table in metadata.sorted_tables for row in connection.execute(table.select()))
    assert secret[:11] in dump
    assert secret not in dump
    assert secret[11:] not in dump


def test_the_name_of_an_active_key_is_taken(store: Store, alice: Key) -> None:
    with raises(NameTakenError, "name_taken"):
        store.keys.create("alice")


def test_a_revoked_name_gets_a_new_secret_for_the_same_owner(store: Store) -> None:
    old, old_secret = store.keys.create("alice")
    store.keys.revoke(old.id)
    with raises(AccessDeniedError, "invalid_key"):
        store.keys.authenticate(old_secret)
    new, new_secret = store.keys.create("alice", ["read"])
    assert new.id == old.id
    assert new.scopes == {"read"}
    assert store.keys.authenticate(new_secret) == new
    with raises(AccessDeniedError, "invalid_key"):
        store.keys.authenticate(old_secret)


def test_unusable_names_and_scopes_are_refused(store: Store) -> None:
    for name in ("", "a b", "é", "1a", "a" * 65, "rf_a", "a\n"):
        with raises(StoreRequestError, "invalid_name"):
            store.keys.create(name)
    with raises(NameTakenError, "name_taken"):
        store.keys.create("local")
    for scopes in ([], ["admin"], ["read", ""]):
        with raises(StoreRequestError, "invalid_scope"):
            store.keys.create("alice", scopes)


def test_the_local_owner_has_no_secret_and_is_neither_listed_nor_revoked(store: Store) -> None:
    assert store.keys.local().name == "local"
    assert store.keys.list() == []
    with raises(NotStoredError, "key_not_found"):
        store.keys.revoke("local")
