import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import agent_tunix
from agent_tunix.rewards import Component, Mixture, fingerprint, resolve_reward, sources
from agent_tunix.rewards.conventions import PlainReward
from agent_tunix.rewards.fingerprint import changes

FILE = '''\
import numpy as np

import helpers


def short(response, limit=20):
    """Shortness."""
    return helpers.shortness(len(response.split()), limit)
'''
HELPERS = "def shortness(words, limit):\n    return max(0.0, 1 - words / limit)\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE)
    (tmp_path / "helpers.py").write_text(HELPERS)
    return tmp_path


def data_of(spec: object, **options: Any) -> dict[str, Any]:
    data = fingerprint(resolve_reward(spec, **options)).to_data()
    for name in [name for name in sys.modules if "mine@" in name or name.startswith("helpers")]:
        del sys.modules[name]
    return data


SPEC: dict[str, Any] = {
    "correct": {"function": "math"},
    "tags": {"function": "format", "weight": 0.2, "transform": {"clip": [0, 1]}},
    "brevity": {"function": "mine.py:short", "args": {"limit": 80}, "weight": 0.1, "requires": {"correct": 1.0}},
}


def changed(component: str, **settings: Any) -> dict[str, Any]:
    return SPEC | {component: SPEC[component] | settings}


def test_a_fingerprint_is_plain_data_by_component(here: Path) -> None:
    data = data_of(SPEC)
    assert json.loads(json.dumps(data)) == data
    assert set(data) == {"hash", "components", "on_failure", "versions"}
    brevity = data["components"]["brevity"]
    assert brevity["function"] == "mine.short"
    assert sorted(brevity["files"]) == ["helpers.py", "mine.py"]
    assert (brevity["args"], brevity["weight"], brevity["requires"]) == ({"limit": 80}, 0.1, {"correct": 1.0})
    assert {"answers/comparison.py", "builtin/correctness.py"} <= set(data["components"]["correct"]["files"])
    assert {"agent_tunix", "math-verify", "numpy"} <= set(data["versions"])


def test_the_same_reward_has_the_same_fingerprint_in_another_process_and_place(here: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.py").write_bytes(FILE.replace("\n", "\r\n").encode())
    (elsewhere / "helpers.py").write_text(HELPERS)
    reordered = {name: dict(reversed(SPEC[name].items())) for name in SPEC}
    program = (
        "import json, sys; from agent_tunix.rewards import fingerprint, resolve_reward\n"
        f"print(json.dumps(fingerprint(resolve_reward({reordered!r})).to_data()))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(agent_tunix.__file__).parents[1]), "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == data_of(SPEC)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (changed("tags", weight=0.3), ["weight of tags 0.2 → 0.3"]),
        (
            changed("tags", weight={"from": 0, "to": 1, "steps": [1, 2]}),
            ["weight of tags 0.2 → {from: 0.0, to: 1.0, steps: [1.0, 2.0], kind: linear}"],
        ),
        (changed("tags", transform=None), ["transform of tags [{clip: [0.0, 1.0]}] → none"]),
        (changed("brevity", args={"limit": 9}), ["argument limit of brevity 80 → 9"]),
        (changed("brevity", args={}), ["argument limit of brevity 80 → unset"]),
        (changed("brevity", requires={"tags": 0.5}), ["requires of brevity {correct: 1.0} → {tags: 0.5}"]),
        (changed("tags", when={"kind": "math"}), ["when of tags none → {kind: [math]}"]),
        (
            changed("correct", function="check_numbers"),
            [
                "component correct: function agent_tunix.rewards.builtin.correctness.math_reward →"
                " agent_tunix.rewards.builtin.correctness.check_numbers_reward"
            ],
        ),
        (SPEC | {"more": "format"}, ["component more: added"]),
        ({name: SPEC[name] for name in ("correct", "brevity")}, ["component tags: removed"]),
        (changed("brevity", cost=7), []),
    ],
)
def test_what_changed_is_told_by_name(here: Path, spec: object, expected: list[str]) -> None:
    before, now = data_of(SPEC), data_of(spec)
    assert changes(before, now) == expected
    assert (before["hash"] == now["hash"]) is (not expected)


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("mine.py", "(len(response", "(2 * len(response", ["component brevity: source of short changed"]),
        ("mine.py", "import helpers", "import helpers\n\nLIMIT = 3", ["component brevity: mine.py changed"]),
        ("helpers.py", "max(0.0", "max(0.1", ["component brevity: helpers.py changed"]),
        (
            "mine.py",
            "import numpy as np",
            "import pytest",
            ["component brevity: mine.py changed", "version of numpy … → none", "version of pytest none → …"],
        ),
    ],
)
def test_a_changed_file_is_told_by_name(here: Path, file: str, old: str, new: str, expected: list[str]) -> None:
    before = data_of(SPEC)
    (here / file).write_text((here / file).read_text().replace(old, new))
    lines = changes(before, data_of(SPEC))
    versions = {**before["versions"], **data_of(SPEC)["versions"]}
    for name, version in versions.items():
        lines = [line.replace(version, "…") if f"version of {name} " in line else line for line in lines]
    assert lines == expected


def test_the_outcome_of_failures_is_part_of_the_reward_and_a_missing_fingerprint_is_told(here: Path) -> None:
    before = data_of(SPEC)
    assert changes(before, data_of(SPEC, on_failure="zero")) == ["rewards.on_failure exclude → zero"]
    for stored in ("math (somewhere.py:3)", None):
        assert changes(stored, before) == ["the reward: its fingerprint was not stored"]


def short_of(mixture_function: Any, **args: Any) -> str:
    return fingerprint(Mixture([Component("a", PlainReward(mixture_function, "a", args))])).short


def make_reward(level: float) -> Any:
    def reward(response: str) -> float:
        return level

    return reward


class Judge:
    def __call__(self, response: str) -> float:
        return 1.0


def weighted(response: str, factor: float) -> float:
    return factor


def test_a_function_is_known_by_what_it_has_caught_and_an_object_by_its_class() -> None:
    assert short_of(make_reward(0.5)) == short_of(make_reward(0.5)) != short_of(make_reward(0.6))
    first, second = (functools.partial(weighted, factor=factor) for factor in (1.0, 2.0))
    assert short_of(first) != short_of(second)
    assert short_of(Judge()) == short_of(Judge()) != short_of(weighted, factor=1.0)
    made: dict[str, Any] = {}
    exec("def reward(response): return 1.0", made)  # without a source
    assert len(short_of(made["reward"])) == len(short_of(weighted, factor=object())) == 16


@pytest.mark.parametrize(
    ("line", "expected"),
    [("from . import helpers", [".helpers"]), ("from .helpers import short", [".helpers", ".helpers.short"])],
)
def test_relative_imports_name_their_files(tmp_path: Path, line: str, expected: list[str]) -> None:
    file = tmp_path / "reward.py"
    file.write_text(line)
    assert sources.imported_names(file) == expected


def test_a_closure_over_unusual_keys_is_told_apart() -> None:
    def made(table: dict[Any, Any]) -> Any:
        def reward(response: str) -> float:
            return float(table.get((1, response), 0))

        return reward

    first, same, other = ({(1, "a"): number, 2: 0} for number in (1, 1, 2))
    assert short_of(made(first)) == short_of(made(same)) != short_of(made(other))
