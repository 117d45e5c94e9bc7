"""Fingerprints of what a reward holds: different for different behaviour, equal in every process."""

import asyncio
import collections
import contextvars
import io
import itertools
import json
import logging
import os
import re
import ssl
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import numpy as np
import pytest

import agent_tunix
from agent_tunix.rewards import fingerprint, resolve_reward
from agent_tunix.rewards.fingerprint import changes
from agent_tunix.rewards.fingerprint.behaviour import describe

# Pairs of rewards `…_a` and `…_b` of one source and another behaviour, and of one behaviour where the name has `same`.
FILE = """
import collections, dataclasses, decimal, enum, functools, logging, pathlib, random, re, threading, types
import numpy as np


class Len:
    def __init__(self, held, name="n"):
        setattr(self, name, held)
    def __call__(self, response):
        return 1.0
    def score(self, response):
        return 1.0


class Slots:
    __slots__ = ("n", "__private", "unset")
    def __init__(self, n, private=0):
        self.n, self.__private = n, private
    def __call__(self, response):
        return self.n


@dataclasses.dataclass
class Config:
    limit: int
    words: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Graded:
    config: Config
    def __call__(self, response):
        return self.config.limit


class Table(dict):
    def __call__(self, response):
        return self.get(response, 0.0)


class Mode(enum.Enum):
    STRICT = 1
    LOOSE = 2


def make_class(level, base=object):
    class Made(base):
        limit = level
        def __call__(self, response):
            return self.limit
        @staticmethod
        def aside(response):
            return level
    return Made


def make(held):
    def reward(response):
        return float(held is not None)
    return reward


def scaled(weight):
    def decorate(function):
        @functools.wraps(function)
        def inner(response):
            return weight * function(response)
        return inner
    return decorate


class Wrapper:
    def __init__(self, function, weight):
        functools.update_wrapper(self, function)
        self.weight = weight
    def __call__(self, response):
        return self.weight * self.__wrapped__(response)


def base(response):
    return 1.0


def with_keyword(response, *, n):
    return n


def with_attribute(n):
    def reward(response):
        return reward.limit
    reward.limit = n
    return reward


def with_default(n):
    def reward(response, limit=n, *, other=n):
        return limit
    return reward


def looped(n):
    me = Len(n)
    me.itself = [me]
    return me


pairs = {
    "attribute": lambda n: Len(n),
    "name_of_attribute": lambda n: Len(1, f"n{n}"),
    "method": lambda n: Len(n).score,
    "partial_method": lambda n: functools.partial(Len(n).score),
    "partial_keyword": lambda n: functools.partial(with_keyword, n=n),
    "partial_object": lambda n: functools.partial(with_keyword, n=Len(n)),
    "partial_of_partial": lambda n: functools.partial(functools.partial(Len(n))),
    "slots": lambda n: Slots(n),
    "private_slot": lambda n: Slots(0, n),
    "dataclass": lambda n: Graded(Config(n)),
    "nested": lambda n: Len({"a": [1, (2, {"b": Config(0, [n])})]}),
    "keys": lambda n: Len({(1, n): 0.5, 2: 1}),
    "key_types": lambda n: Len({n if n == 1 else "1": 0.5}),
    "array": lambda n: Len(np.arange(3) * n),
    "array_type": lambda n: Len(np.zeros(2, [None, "f4", "f8"][n])),
    "array_of_objects": lambda n: Len(np.array([Config(n), None], dtype=object)),
    "set": lambda n: Len({"a", "b", "c", "d", str(n)}),
    "bytes": lambda n: Len(bytes([n])),
    "decimal": lambda n: Len(decimal.Decimal(n)),
    "pattern": lambda n: Len(re.compile("a" * n)),
    "counter": lambda n: Len(collections.Counter({"a": n})),
    "deque": lambda n: Len(collections.deque([n])),
    "default_dict": lambda n: Len(collections.defaultdict(list, {"a": n})),
    "namespace": lambda n: Len(types.SimpleNamespace(n=n)),
    "enumeration": lambda n: Len(Mode(n)),
    "container": lambda n: Table(x=n),
    "held_function": lambda n: Len(make(n)),
    "lambda_default": lambda n: (lambda response, limit=n: limit),
    "default": with_default,
    "function_attribute": with_attribute,
    "closure": make,
    "closure_over_object": lambda n: make(Config(n)),
    "closure_over_class": lambda n: make(make_class(n)),
    "decorated": lambda n: scaled(n)(base),
    "decorated_twice": lambda n: scaled(2)(scaled(n)(base)),
    "cached": lambda n: functools.lru_cache(scaled(n)(base)),
    "wrapper_object": lambda n: Wrapper(base, n),
    "wrapped_closure": lambda n: Wrapper(make(n), 1),
    "class_attribute": lambda n: make_class(n)(),
    "class": make_class,
    "base_class": lambda n: make_class(0, make_class(n))(),
    "class_held": lambda n: Len(make_class(n)),
    "cycle": looped,
}
for name, build in pairs.items():
    globals()[f"{name}_a"], globals()[f"{name}_b"] = build(1), build(2)

two_a, two_b = (lambda response: 1.0), (lambda response: 0.5)
lock_same_a, lock_same_b = Len(threading.Lock()), Len(threading.Lock())
logger_same_a, logger_same_b = Len(logging.getLogger("x")), Len(logging.getLogger("x"))
random_same_a, random_same_b = Len(random.Random()), Len(random.Random())
client_same_a, client_same_b = Len(threading.Timer(1, print)), Len(threading.Timer(1, print))
place_same_a, place_same_b = Len(pathlib.Path("/a/x.txt")), Len(pathlib.Path("/b/x.txt"))
set_same_a, set_same_b = Len({"x", "y", "z", ("a", 1)}), Len({("a", 1), "z", "y", "x"})
order_same_a, order_same_b = Len({"x": 1, "y": 2}), Len({"y": 2, "x": 1})
"""
PROGRAM = """
import json, pathlib
from tests.rewards.test_behaviour import hashes_in
print(json.dumps(hashes_in(pathlib.Path())))
"""


def hashes_in(root: Path) -> dict[str, str]:
    """Return the part of the fingerprint that depends on what a reward holds, for each of the file, by name."""
    (root / "held.py").write_text(FILE)
    names = [f"{name}_same" for name in ("lock", "logger", "random", "client", "place", "set", "order")] + ["two"]
    names += re.findall(r'^    "(\w+)": ', FILE, re.MULTILINE)
    mixture = resolve_reward(
        {f"{name}_{one}": f"held.py:{name}_{one}" for name in names for one in "ab"}, working_directory=root
    )
    components = fingerprint(mixture).components
    return {name: str(component["state"]) for name, component in components.items()}


@pytest.fixture(scope="module")
def hashes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """Fingerprints by name, in this process and in another one in another place."""
    root = tmp_path_factory.mktemp("elsewhere")
    places = [str(Path(agent_tunix.__file__).parents[1]), str(Path(__file__).parents[2])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places), "PYTHONHASHSEED": "22"}
    command = [sys.executable, "-c", PROGRAM]
    result = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True)
    return [hashes_in(tmp_path_factory.mktemp("here")), json.loads(result.stdout)]


def test_a_fingerprint_is_the_same_in_another_process(hashes: list[dict[str, str]]) -> None:
    first, second = hashes
    assert len(first) > 80
    assert {name for name in first if first[name] != second[name]} == set()


def test_fingerprints_are_equal_for_equal_behaviour_alone(hashes: list[dict[str, str]]) -> None:
    names = {name[:-2] for name in hashes[0]}
    equal = {name for name in names if hashes[0][f"{name}_a"] == hashes[0][f"{name}_b"]}
    assert equal == {name for name in names if name.endswith("same")}


def test_objects_of_every_kind_can_be_held() -> None:
    """Each is described alike when it is made again, and none stops the run."""

    def wild() -> list[object]:
        return [
            *(threading.RLock(), threading.Event(), threading.local(), ThreadPoolExecutor(1), asyncio.Semaphore(3)),
            *(ssl.create_default_context(), httpx.Client(), contextvars.ContextVar("x"), weakref.WeakKeyDictionary()),
            *((n for n in range(3)), iter([1, 2]), itertools.count(3), io.StringIO("x"), memoryview(b"x"), object()),
            *(np.random.SeedSequence(), np.random.default_rng(), np.dtype("f4"), np.add, ValueError("x"), list[int]),
            *(..., NotImplemented, range(4), slice(1, 2), 1j, bytearray(b"x"), float("nan"), len, "abc".startswith),
            *(
                logging.LoggerAdapter(logging.getLogger("x")),
                collections.ChainMap({"a": 1}),
                Mock(),
                json,
                wild.__code__,
            ),
        ]

    first, second = (json.dumps([describe(Holder(one)) for one in wild()]) for _ in range(2))
    assert first == second


class Holder:
    def __init__(self, held: object) -> None:
        self.held = held

    def __call__(self, response: str) -> float:
        return 1.0


def data_of(reward: Any, **args: Any) -> dict[str, Any]:
    return fingerprint(resolve_reward({"x": {"function": reward, "args": args}})).to_data()


def test_a_change_of_what_is_held_is_told() -> None:
    before, now = data_of(Holder(1)), data_of(Holder(2))
    assert changes(before, now) == ["component x: values that Holder holds changed"]
    for component in before["components"].values():
        del component["state"]  # stored by an earlier version
    assert changes(before, now) == []


def test_a_cell_of_a_notebook_counts_with_the_cells_that_it_uses() -> None:
    def made(limit: int) -> Any:
        cell: dict[str, Any] = {"__name__": "__main__", "LIMIT": limit, "unused": object()}
        exec("def helper(text):\n    return LIMIT\ndef reward(response):\n    return helper(response)", cell)
        return cell["reward"]

    hashes = [data_of(made(limit))["hash"] for limit in (1, 1, 2)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_code_without_a_source_counts() -> None:
    def made(value: float) -> Any:
        cell: dict[str, Any] = {}
        exec(f"def reward(response): return {value}", cell)
        return cell["reward"]

    assert data_of(made(0.5))["hash"] != data_of(made(0.25))["hash"]


def limited(response: str, table: object = None) -> float:
    return 1.0


def test_an_object_as_an_argument_counts() -> None:
    first, same, other = (data_of(limited, table={(1, "a"): Holder(number)}) for number in (1, 1, 2))
    assert first == same
    (line,) = changes(first, other)
    assert line.startswith("argument table of x")
