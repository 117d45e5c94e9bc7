import dataclasses
from datetime import UTC, datetime

from agent_tunix.service.inspector.access import Sessions
from agent_tunix.store import Key


def key(name: str) -> Key:
    return Key(f"key_{name}", name, frozenset({"read"}), datetime.now(UTC))


def test_only_its_token_finds_a_session_until_it_is_ended() -> None:
    sessions = Sessions()
    token, session = sessions.open(key("alice"))
    assert sessions.find(token) is session
    for other in ("", token[:-1], token + "a", token.upper(), "\udcff"):
        assert sessions.find(other) is None
    sessions.end(token)
    sessions.end(token)
    assert sessions.find(token) is None


def test_a_session_ends_when_its_time_is_over_however_it_is_used() -> None:
    now = 0.0
    sessions = Sessions(lifetime_s=10, clock=lambda: now)
    token, _ = sessions.open(key("alice"))
    for elapsed in (5.0, 9.9):
        now = elapsed
        assert sessions.find(token) is not None
    now = 10.0
    assert sessions.find(token) is None
    assert len(sessions) == 0


def test_the_oldest_session_of_a_key_gives_way_and_another_keys_stays() -> None:
    sessions = Sessions(most_of_a_key=2)
    other, _ = sessions.open(key("bob"))
    first, second, third = (sessions.open(key("alice"))[0] for _ in range(3))
    assert sessions.find(first) is None
    assert all(sessions.find(token) for token in (second, third, other))
    assert len(sessions) == 3


def test_tokens_are_told_apart_and_are_not_kept() -> None:
    sessions = Sessions()
    opened = [sessions.open(key("alice")) for _ in range(20)]
    assert len({token for token, _ in opened} | {session.csrf for _, session in opened}) == 40
    kept = repr(vars(sessions)) + repr([dataclasses.asdict(session) for _, session in opened])
    assert not any(token in kept for token, _ in opened)
