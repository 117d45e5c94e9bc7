import subprocess
import sys

import pytest

from agent_tunix.store import open_store
from tests.store.killing import kill_uploads

pytestmark = pytest.mark.slow

# Opens the store on the first line of its input, then creates a function with the secret and name of each further line.
WORKER = """
import sys
from agent_tunix.errors import NameTakenError
from agent_tunix.store import open_store
url, text = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
with open_store(url) as store:
    print(store.keys.local().id, flush=True)
    for line in sys.stdin:
        secret, name = line.split()
        try:
            version = store.reward_functions.create(store.keys.authenticate(secret), name, text.encode(), "trl").version
        except NameTakenError:
            version = "taken"
        print(version, flush=True)
"""
SOURCE = "def reward(completions, **kwargs):\n    return [0.5]\n"


def ask_all(processes: "list[subprocess.Popen[str]]", *lines: str) -> list[str]:
    """Send each process a line at the same moment; return the sorted answers."""
    for process, line in zip(processes, lines, strict=True):
        assert process.stdin is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
    return sorted(process.stdout.readline().strip() for process in processes if process.stdout is not None)


def test_processes_share_one_store_in_which_a_name_has_one_owner_and_no_version_is_skipped(url: str) -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", WORKER, url]
    processes = [subprocess.Popen([*command, f"{SOURCE}# {n}"], stdin=pipe, stdout=pipe, text=True) for n in range(5)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        assert ask_all(processes, *[""] * 5) == ["key_local"] * 5
        with open_store(url) as store:
            secrets = [store.keys.create(f"owner_{number}")[1] for number in range(5)]
            wanted = ask_all(processes, *(f"{secret} wanted" for secret in secrets))
            assert wanted == ["1", "taken", "taken", "taken", "taken"]
            assert ask_all(processes, *[f"{secrets[0]} versioned"] * 5) == ["1", "2", "3", "4", "5"]
            assert [one.version for one in store.reward_functions.versions("wanted").data] == [1]
            assert {one.version for one in store.reward_functions.versions("versioned").data} == {1, 2, 3, 4, 5}
    finally:
        for process in processes:
            process.communicate(timeout=60)


def test_a_killed_process_leaves_each_upload_whole_and_once(url: str) -> None:
    result = kill_uploads(url, uploads=6, seed=1, again=True)  # `scripts/proofs.py` has 100, of several seeds
    assert result.faults == []
