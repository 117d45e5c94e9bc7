"""Rewards that no worker can import: of a script, a notebook cell, a closure or `exec`."""

import functools
import importlib
import json
import os
import subprocess
import sys
import textwrap
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.execution import by_value
from agent_tunix.rewards import Outcome, Sample, fingerprint, register_reward_function, resolve_reward
from agent_tunix.rewards.execution import make_runner
from agent_tunix.rewards.fingerprint import changes
from tests.raising import raises

# No guard: a worker that ran it again would start workers of its own.
SCRIPT = """
import functools, json, linecache, os, sys
import helpers
from agent_tunix import Sample, register_reward_function
from agent_tunix.rewards import fingerprint, resolve_reward
from agent_tunix.rewards.execution import make_runner

with open("starts", "a") as file:
    file.write("started\\n")

factor = 3

def run_cell(number, text):
    name = f"<cell {number}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), globals())

@register_reward_function("registered")
def registered(response):
    return float(os.getpid())

def lasting(response):
    return 6.0

class Counter:
    def __init__(self, start=1):
        self.count = start
    def __call__(self, response):
        self.count += 1
        return float(self.count)
    def method(self, response):
        return float(-self.count)

def closure(number):
    return lambda response: float(number * factor)

def scaled(response, scale):
    return helpers.double(scale)

run_cell(1, "def fails(response):\\n    return 1 / 0  # in the cell\\n")
bare = {}
exec("def bare(response): return 7.0", bare)
rewards = {
    "registered": registered, "by_name": "registered", "lambda": lambda response: factor * 1.0, "closure": closure(5),
    "class": Counter, "object": Counter(4), "method": Counter(9).method,
    "partial": functools.partial(scaled, scale=2.0), "bare": bare["bare"], "fails": fails,
    "by_file": "script.py:lasting",
}
with make_runner(resolve_reward(rewards), "process", num_workers=1) as runner:
    (total,) = runner.reward.score([Sample("x")])
print(json.dumps({name: part.value if part.value is not None else part.detail for name, part in total.parts.items()}))
print(os.getpid())

before = fingerprint(resolve_reward("registered")).short
run_cell(2, "@register_reward_function('registered')\\ndef registered(response):\\n    return 0.5\\n")
after = fingerprint(resolve_reward("registered")).short
factor = 4
print(json.dumps([before != after, resolve_reward("registered").score([Sample("x")])[0].value]))
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], int, list[Any], Path]:
    """Return the results of the script's rewards, its process, what it says of a changed cell, and its directory."""
    directory = tmp_path_factory.mktemp("script")
    (directory / "script.py").write_text(SCRIPT)
    (directory / "helpers.py").write_text("def double(number):\n    return number * 2\n")
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    values, process, changed = done.stdout.splitlines()
    return json.loads(values), int(process), json.loads(changed), directory


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lambda", 3.0),
        ("closure", 15.0),
        ("class", 2.0),
        ("object", 5.0),
        ("method", -9.0),
        ("partial", 4.0),
        ("bare", 7.0),
        ("by_file", 6.0),
    ],
)
def test_what_a_script_defines_scores_in_a_worker(name: str, value: float, script: tuple[dict[str, Any], Any]) -> None:
    assert script[0][name] == value


def test_a_function_of_a_script_runs_in_another_process(script: tuple[dict[str, Any], int]) -> None:
    values, process = script[:2]
    assert values["registered"] == values["by_name"] != process


def test_a_script_without_a_guard_runs_once(script: tuple[Any, Any, Any, Path]) -> None:
    assert (script[3] / "starts").read_text().splitlines() == ["started"]


def test_a_fault_in_a_cell_shows_its_line(script: tuple[dict[str, Any], Any]) -> None:
    assert "<cell 1>:2: return 1 / 0  # in the cell" in script[0]["fails"]


def test_a_cell_that_is_run_again_replaces_its_reward(script: tuple[Any, Any, list[Any], Any]) -> None:
    assert script[2] == [True, 0.5]


def made(weight: float) -> Any:
    def closure(response: str) -> float:
        return weight

    return closure


def test_closures_with_other_values_have_other_fingerprints() -> None:
    one, same, other = (fingerprint(resolve_reward(made(weight))) for weight in (0.5, 0.5, 0.25))
    assert one.short == same.short != other.short
    assert changes(one.to_data(), other.to_data()) == ["component closure: values that closure holds changed"]


def test_functions_without_source_are_known_by_their_instructions() -> None:
    functions: list[dict[str, Any]] = [{}, {}]
    for number, names in enumerate(functions):
        exec(f"def reward(response): return {number}.5", names)
    one, other = (fingerprint(resolve_reward(names["reward"])).to_data() for names in functions)
    assert one["components"]["reward"]["source"] != other["components"]["reward"]["source"]


def test_a_reward_of_a_notebook_is_replaced_and_another_one_is_not() -> None:
    for value in (1.0, 2.0):
        function = made(value)
        function.__module__ = "__main__"
        register_reward_function("replaced", function)
    assert resolve_reward("replaced").score([Sample("x")])[0].value == 2.0
    with raises(RewardError, "invalid_reward"):
        register_reward_function("replaced", made(3.0))


def test_a_module_that_no_process_can_import_is_sent_too(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("made_up_module")
    exec(textwrap.dedent("def helper(): return 2.5\ndef reward(response): return helper()"), module.__dict__)
    monkeypatch.setitem(sys.modules, "made_up_module", module)
    with make_runner(resolve_reward(module.reward), "process", num_workers=1) as runner:
        assert runner.reward.score([Sample("x")])[0].value == 2.5


def test_a_function_of_a_package_is_imported_by_its_name() -> None:
    content, modules = by_value.pack(functools.partial(made, 1.0))
    assert b"closure" not in content
    assert modules == {made.__module__, "functools"}
    assert by_value.unpack(content).func is made


def test_a_function_of_a_package_with_relative_imports_scores_in_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package/__init__.py").touch()
    (tmp_path / "my_package/helper.py").write_text("VALUE = 1.5\n")
    (tmp_path / "my_package/mine.py").write_text("from .helper import VALUE\ndef reward(response): return VALUE\n")
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("my_package.mine").reward
    with make_runner(resolve_reward(function), "process", num_workers=1) as runner:
        assert runner.reward.score([Sample("x")])[0].value == 1.5


def with_a_lock() -> Any:
    lock = threading.Lock()

    def locked(response: str) -> float:
        with lock:
            return float(os.getpid())

    return locked


def test_what_cannot_be_sent_runs_inline_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    mixture = resolve_reward(with_a_lock())
    with make_runner(mixture) as runner:
        assert runner.reward.score([Sample("x")])[0].value == os.getpid()
    (record,) = caplog.records
    assert "`lock`: TypeError: cannot pickle '_thread.lock' object" in record.message
    with raises(RewardError, "invalid_reward"):
        make_runner(mixture, "process")


def test_what_is_too_large_to_send_runs_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_value, "LARGEST_BYTES", 100)
    with make_runner(resolve_reward(made(1.0)), num_workers=1) as runner:
        assert runner.reward.score([Sample("x")])[0].outcome is Outcome.SCORED
    with raises(RewardError, "invalid_reward"):
        make_runner(resolve_reward(made(1.0)), "process")
