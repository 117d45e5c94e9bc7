"""Several processes on one store, and processes that are killed in the middle of it."""

import subprocess
import sys

from agent_tunix.store import open_store
from tests.store.killing import kill_uploads

ONE_NAME = """
import sys
from agent_tunix.errors import NameTakenError
from agent_tunix.store import open_store
url, secret, text = sys.argv[1:]
with open_store(url) as store:
    key = store.keys.authenticate(secret)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        print(store.reward_functions.create(key, "wanted", text.encode(), "trl").version)
    except NameTakenError:
        print("taken")
"""
SOURCE = "def reward(completions, **kwargs):\n    return [0.5]\n"


def race(url: str, secrets: list[str]) -> list[str]:
    """What processes are told that create the same name at the same moment."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", ONE_NAME, url]
    processes = [
        subprocess.Popen([*command, secret, f"{SOURCE}# {place}"], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        for place, secret in enumerate(secrets)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate(timeout=60) for process in processes]
    assert [error for _, error in said if error] == []
    return sorted(output.strip() for output, _ in said)


def test_of_owners_who_create_a_name_at_once_one_gets_it(url: str) -> None:
    with open_store(url) as store:
        secrets = [store.keys.create(f"owner_{number}")[1] for number in range(5)]
        assert race(url, secrets) == ["1", "taken", "taken", "taken", "taken"]
        (kept,) = store.reward_functions.list().data
        assert kept.version == 1


def test_an_owner_who_uploads_a_name_several_times_at_once_gets_versions_without_a_gap(url: str) -> None:
    with open_store(url) as store:
        _, secret = store.keys.create("alice")
        assert race(url, [secret] * 5) == ["1", "2", "3", "4", "5"]
        assert {one.version for one in store.reward_functions.list().data} == {1, 2, 3, 4, 5}


def test_an_upload_is_kept_whole_or_not_at_all_whenever_the_process_is_killed(url: str) -> None:
    result = kill_uploads(url, uploads=10, seed=0)  # `scripts/proofs.py` has 100, of several seeds
    assert result.kills >= 1
    assert result.faults == []


def test_an_upload_that_is_made_again_until_it_is_acknowledged_is_kept_once(url: str) -> None:
    result = kill_uploads(url, uploads=10, seed=1, again=True)
    assert result.kills >= 1
    assert result.faults == []
    assert result.unacknowledged <= 1
