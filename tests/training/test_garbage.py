"""Garbage collection while a program starts."""

import gc
import subprocess
import sys

from agent_tunix.startup import garbage

# In a process of its own: what is never looked through again would be all of this one.
PROGRAM = """
import gc, weakref
from agent_tunix.startup import garbage

class Node:
    pass

def left_in_a_cycle():
    node = Node()
    node.itself = node
    return weakref.ref(node)

garbage.never_sought_in_imports()
after_imports = gc.get_freeze_count()
left = left_in_a_cycle()
garbage.never_sought_in_imports()
gc.collect()
print(after_imports > 1000, gc.get_freeze_count() == after_imports, left() is None)
"""


def test_imports_are_set_aside_once_and_what_a_run_leaves_is_found() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True"] * 3, done.stderr


def test_within_a_start_garbage_is_sought_rarely_and_after_it_as_before() -> None:
    before = gc.get_threshold()
    with garbage.rarely_sought():
        assert gc.get_threshold()[0] > before[0]
        garbage.sought_as_usual()
        assert gc.get_threshold() == before
    assert gc.get_threshold() == before
