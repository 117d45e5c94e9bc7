import sys
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.execution.sandbox import run_program
from agent_tunix.rewards import Outcome, Sample, resolve_reward
from agent_tunix.rewards.execution import make_runner
from tests.rewards.builtin.cases import score

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="programs are isolated on Linux alone")
DOUBLE = "```python\ndef f(x):\n    return 2 * x\n```"


@pytest.mark.parametrize(
    ("response", "value"),
    [
        (DOUBLE, 1.0),
        ("So:\n" + DOUBLE + "\nDone.", 1.0),
        (DOUBLE.replace("python", "py"), 1.0),
        (DOUBLE.replace("python", ""), 0.5),
        (DOUBLE + "\n" + DOUBLE, 0.5),
        ("```python\n\n```", 0.0),
        ("```python\nprint(4)", 0.0),
        ("print(4)", 0.0),
        ("", 0.0),
    ],
)
def test_code_format(response: str, value: float) -> None:
    assert score("code_format", response).value == value


@pytest.mark.parametrize(
    ("response", "value"),
    [
        (DOUBLE, 1.0),
        ("print(4)", 1.0),
        ("<answer>print(4)</answer>", 1.0),
        (r"print('\d')", 1.0),
        ("def f(:", 0.0),
        ("# nothing", 0.0),
        ("x = '\0'", 0.0),
        ("(" * 5000, 0.0),
        ("-" * 19_000 + "1", 0.0),
        ("x\n" * 20_000, 0.0),
        ("", 0.0),
    ],
)
def test_valid_python(response: str, value: float) -> None:
    assert score("valid_python", response).value == value


def test_valid_python_runs_nothing(tmp_path: Path) -> None:
    assert score("valid_python", f"open({str(tmp_path / 'x')!r}, 'w')").value == 1.0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ("4", 1.0),
        ("```json\n4\n```", 1.0),
        ("<answer>4</answer>", 1.0),
        ('"4"', 0.25),
        ("NaN", 0.0),
        ("four", 0.0),
        ("[" * 10_000, 0.0),
        ("", 0.0),
    ],
)
def test_json_schema(response: str, value: float) -> None:
    assert score("json_schema", response).value == value


@pytest.mark.parametrize("response", ["1e400", "1" + "0" * 400])
def test_json_schema_and_numbers_too_large_to_divide(response: str) -> None:
    assert score("json_schema", response, schema={"multipleOf": 0.01}).value == 0.25


@pytest.mark.parametrize(
    "schema",
    [
        *(None, 4, "{", {"type": "nonsense"}, {"$ref": "http://localhost:1/x.json"}, {"$ref": "#/nowhere"}),
        {"pattern": "("},
    ],
)
def test_a_schema_that_cannot_be_used_is_a_bad_reference(schema: Any) -> None:
    assert score("json_schema", '"4"', schema=schema).outcome is Outcome.BAD_REFERENCE


def test_a_schema_that_takes_too_long_is_a_timeout() -> None:
    spec = {"schema": {"function": "json_schema", "args": {"schema": {"pattern": "^(a|a)*$"}}}}
    reward = resolve_reward(spec)
    with make_runner(reward, "auto", timeout_s=1.0, num_workers=1) as runner:
        slow, soon = runner.reward.score([Sample(f'"{"a" * 60}b"'), Sample('"aa"')])
    assert (slow.outcome, soon.value) == (Outcome.TIMEOUT, 1.0)


def test_a_stack_that_is_full_ends_no_run() -> None:
    """A library in Rust then raises no Exception, but only where the stack ends within it."""

    def deeper(frames: int) -> Any:
        return deeper(frames - 1) if frames else score("json_schema", response, schema=schema).value

    schema = {"type": "object", "properties": {"c": {"$ref": "#"}}}
    response = '{"c":' * 300 + "{}" + "}" * 300
    assert {deeper(frames) for frames in range(12)} == {0.25}


# --- running code ----------------------------------------------------------------------------------------------------


@only_linux
@pytest.mark.parametrize(
    ("response", "tests", "value"),
    [
        (DOUBLE, ["assert f(2) == 4", "assert f(0) == 0"], 1.0),
        (DOUBLE, ["assert f(2) == 4", "assert f(2) == 5"], 0.5),
        (DOUBLE, '["assert f(2) == 4"]', 1.0),
        (DOUBLE, "assert f(2) == 4\nassert f(3) == 6", 1.0),
        ("print(int(input()) * 2)", [{"input": "2", "output": "4\n"}, {"input": "x", "output": "4"}], 0.5),
        ("print(input())", {"inputs": ["a", "b"], "outputs": ["a", "b"]}, 1.0),
        ("def f(x) return", ["assert f(2) == 4"], 0.0),
        ("", ["assert f(2) == 4"], 0.0),
        ("import sys; sys.exit(0)", ["assert f(2) == 4"], 0.0),
        ("import os; os._exit(0)", ["assert f(2) == 4"], 0.0),
        ("raise SystemExit", [{"input": "", "output": "4"}], 0.0),
    ],
)
def test_code_tests(response: str, tests: Any, value: float) -> None:
    assert score("code_tests", response, tests=tests).value == value


@pytest.mark.parametrize(
    "tests",
    [
        *[None, [], "", 4, [4], [{"input": "2"}]],
        *({"inputs": inputs, "outputs": outputs} for inputs, outputs in (("3", "7"), (["1", "2"], ["1"]), (3, 4))),
    ],
)
def test_no_tests_are_a_bad_reference(tests: Any) -> None:
    assert score("code_tests", DOUBLE, tests=tests).outcome is Outcome.BAD_REFERENCE


FORBIDDEN = {
    "network": "import socket; socket.socket()",
    "local socket": "import socket; socket.socket(socket.AF_UNIX)",
    "fork": "import os; os.fork()",
    "other program": "import os; os.execv('/bin/true', ['true'])",
    "subprocess": "import subprocess; subprocess.run(['true'])",
    "thread": "import threading; threading.Thread(target=print).start()",
    "write": "open('x', 'w')",
    "remove": "import os; os.remove(FILE)",
    "write elsewhere": "open(FILE, 'a')",
    "change mode": "import os; os.chmod(FILE, 0)",
    "kill": "import os; os.kill(os.getppid(), 9)",
    "memory": "bytearray(10**9)",
    "limits": "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40))",
    "flood": "print('x' * 10**8)",
}


@only_linux
@pytest.mark.parametrize("attempt", FORBIDDEN.values(), ids=FORBIDDEN)
def test_a_program_can_only_compute(attempt: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    run = run_program(attempt.replace("FILE", repr(str(file))) + "\nprint('done')", checks=["pass"])
    assert not any(run.passed)
    assert "done" not in run.output
    assert run.problem
    assert file.read_text() == "kept"


@only_linux
def test_a_program_that_never_ends_is_ended() -> None:
    run = run_program("while True: pass", checks=["pass"], timeout_s=0.5)
    assert (run.passed, run.problem) == ((False,), "it ran out of time")


@only_linux
def test_the_standard_library_works_in_isolation() -> None:
    code = "import math, re, collections, heapq, itertools, decimal, random, datetime, json\nprint(math.comb(5, 2))"
    assert run_program(code).output == "10\n"
