"""Rewards, environments and tools that cells of a notebook define."""

import json
from pathlib import Path

import pytest

from tests.kernels import code, execute
from tests.small_run import SMALL_RUN

BEGIN = f"""
import functools, json, os
import agent_tunix

kernel = os.getpid()
base = 0.5

def train(directory, *overrides, **objects):
    run = agent_tunix.train(
        *{SMALL_RUN!r}, "training.num_batches=1", "evaluation.num_samples=0", *overrides, directory=directory, **objects
    )
    row = json.loads(open(f"{{directory}}/metrics.jsonl").read().splitlines()[-1])
    means = {{key: value for key, value in row.items() if key.startswith("rewards/") and key.endswith("/mean")}}
    components = {{key.split("/")[1]: value for key, value in means.items() if "/total/" not in key}}
    fingerprint = json.loads(open(f"{{directory}}/environment.json").read())["reward_fingerprint"]["hash"]
    return json.dumps([components, fingerprint])
"""
REWARD = """
def mine(response):
    assert os.getpid() != kernel
    return base + {bonus}

print(train("{directory}", reward=mine))
"""
OBJECTS = """
def scaled(response, scale):
    return scale

def closure(number):
    return lambda response: float(number)

class Counter:
    def __init__(self, start=1.25):
        self.start = start
    def __call__(self, response):
        return self.start
    def method(self, response):
        return self.start + 1

class Room:
    def __init__(self, word="nothing"):
        self.word, self.looks = word, 0
    def reset(self):
        return "Look around."
    def look(self) -> str:
        '''Look around.'''
        self.looks += 1
        return self.word
    def get_reward(self):
        return self.looks + 0.75

def hint(number: int) -> str:
    '''Give a hint.

    Args:
        number: Any number.
    '''
    return "warm" * number

rewards = {
    "lambda_": lambda response: 7.5, "closure": closure(3), "partial": functools.partial(scaled, scale=2.0),
    "class_": Counter, "object_": Counter(4.0), "method": Counter(5.0).method, "room": "environment",
}
print(train("objects", "environment.max_turns=2", reward=rewards, environment=lambda: Room("a door"), tools=[hint]))
"""


@pytest.mark.slow
def test_what_cells_define_trains_and_a_changed_cell_trains_changed(tmp_path: Path) -> None:
    texts = [
        REWARD.format(bonus=0.25, directory="first"),
        REWARD.format(bonus=1.25, directory="changed"),
        "base = 4.0\n" + REWARD.format(bonus=1.25, directory="other_global"),
        OBJECTS,
    ]
    _, *cells = execute([code(BEGIN), *map(code, texts)], tmp_path)
    printed = ["".join(out.text for out in cell.outputs if out.output_type == "stream") for cell in cells]
    results = [json.loads(text.strip().splitlines()[-1]) for text in printed]
    assert [components["mine"] for components, _ in results[:3]] == [0.75, 1.75, 5.25]
    assert len({fingerprint for _, fingerprint in results[:3]}) == 3
    components = results[3][0]
    assert components.pop("room") == 0.75
    expected = {"lambda_": 7.5, "closure": 3.0, "partial": 2.0, "class_": 1.25, "object_": 4.0, "method": 6.0}
    assert components == expected
