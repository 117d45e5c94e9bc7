"""A program that uploads functions until it is killed: `python uploader.py URL KEY FIRST LAST [if-changed]`.

It writes the id of each upload that it was told is kept, and what was uploaded, one line each. The files are not
checked, which takes a hundred times as long as the writing, so that it is the writing which is met by the kills.
"""

import os
import sys
from typing import Any

import agent_tunix.store.reward_functions as module
from agent_tunix.store import open_store


def source_of(number: int) -> bytes:
    """A file of its own, of many pages of the database, for each number."""
    filling = f"# {number} ".encode() * 6_000
    return f"def reward(completions, **kwargs):\n    return [{number / 1000}]\n".encode() + filling + b"\n"


def main(url: str, secret: str, first: int, last: int, if_changed: bool) -> None:
    unchecked: Any = module
    unchecked.check_upload = lambda *upload: None
    with open_store(url) as store:
        key = store.keys.authenticate(secret)
        for number in range(first, last):
            made = store.reward_functions.create(key, f"reward_{number % 7}", source_of(number), "trl", if_changed)
            os.write(1, f"{made.id} {number}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), "if-changed" in sys.argv)
