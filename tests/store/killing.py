"""Kill a process during uploads, at random moments, and check what the store holds afterwards."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import select

from agent_tunix.store import open_store
from agent_tunix.store.schema import names, reward_functions, sources
from tests.store.uploader import source_of

ROOT = Path(__file__).parents[2]


@dataclass
class Killed:
    """The outcome of `kill_uploads`; `unacknowledged` uploads are whole, but nobody was told of them."""

    acknowledged: int = 0
    kills: int = 0
    unacknowledged: int = 0
    faults: list[str] = field(default_factory=list)


def kill_uploads(url: str, uploads: int, seed: int, longest_s: float = 0.06, again: bool = False) -> Killed:
    """Have a process upload, killing it with SIGKILL at random moments and starting another, until all is uploaded.

    Args:
        url: An empty database.
        uploads: How many are to be acknowledged.
        seed: Decides the moments.
        longest_s: A process is killed at most so long after its first upload.
        again: Whether an upload that was not acknowledged is made again, `if_changed`, so that none is there that
            nobody was told of, but for the last.
    """
    moments = random.Random(seed)
    with open_store(url) as store:
        _, secret = store.keys.create("uploader")
    result = Killed()
    told: dict[str, int] = {}
    next_number = 0
    while len(told) < uploads:
        numbers = [str(next_number), str(next_number + 1000)]
        command = [sys.executable, "-m", "tests.store.uploader", url, secret, *numbers, *(["if-changed"] * again)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment)
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        time.sleep(moments.uniform(0, longest_s))
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().splitlines(keepends=True)
        process.wait()
        process.stdout.close()
        result.kills += 1
        found = [line.decode().split() for line in lines if line.endswith(b"\n")]
        told |= {id: int(number) for id, number in found}
        # Unless it is to be, one that was killed before it was told must not be taken for the next.
        last = max(told.values(), default=next_number - 1 if again else next_number)
        next_number = last + (1 if again else 2)
    result.acknowledged = len(told)
    result.unacknowledged, result.faults = check_store(url, told, source_of)
    if result.unacknowledged > (1 if again else result.kills):
        result.faults.append(f"{result.unacknowledged} uploads are there that nobody was told of")
    return result


def check_store(url: str, told: Mapping[str, int], source_of: Callable[[int], bytes]) -> tuple[int, list[str]]:
    """Look at what a store holds after kills.

    Args:
        url: Its database.
        told: Id → number of each upload that was acknowledged.
        source_of: The source of a number.

    Returns:
        How many uploads are there that nobody was told of, and what should not be so.
    """
    faults = []
    with open_store(url) as store:
        for id, number in told.items():
            if store.reward_functions.source(id) != source_of(number):
                faults.append(f"{id} was acknowledged and is not whole")
        with store.engine.connect() as connection:
            rows = connection.execute(select(reward_functions)).all()
            contents = connection.execute(select(sources)).all()
            last = {row.name: row.last_version for row in connection.execute(select(names))}
    faults += [
        f"{row.sha256} is not the hash of its source"
        for row in contents
        if hashlib.sha256(row.content).hexdigest() != row.sha256
    ]
    if {row.sha256 for row in rows} != {row.sha256 for row in contents}:
        faults.append("there are sources without functions, or functions without sources")
    for name, version in last.items():
        if sorted(row.version for row in rows if row.name == name) != list(range(1, version + 1)):
            faults.append(f"the versions of {name} have a gap")
    return len([row for row in rows if row.id not in told]), faults
