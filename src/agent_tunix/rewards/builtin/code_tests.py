"""The reward for code that passes tests. The code runs in an isolated process; see `agent_tunix.execution.sandbox`."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.errors import BadReferenceError
from agent_tunix.execution.sandbox import run_program
from agent_tunix.rewards.answers.comparison import excerpt
from agent_tunix.rewards.builtin.code import extract_code, syntax_problem
from agent_tunix.rewards.sample import Score

_MOST_TESTS = 100
_LONGEST_S = 600
_MOST_MB = 65_536


def code_tests_reward(response: str, tests: Any, timeout_s: float = 5.0, memory_mb: int = 256) -> Score:
    r"""Return the share of tests that the response's code passes. Range [0, 1].

    - 1.0: all tests pass
    - between: the share that passes
    - 0.0: no test passes, there is no code, or the code does not parse, raises, or exceeds its time or memory

    The code is the last block between ``` fences, or the text in the `<answer>` tags, or the whole response. The column
    `tests` of the dataset holds a list of statements (`assert f(2) == 4`), a list of mappings with `input` and `output`
    for a program that reads and prints, a mapping with the lists `inputs` and `outputs`, or one of these as JSON. Only
    the first 100 tests count. `timeout_s`, at most 600, covers all tests of a response; `memory_mb` is at most 65,536.

    The code runs outside the trainer, in a new process for each `input`. It has the standard library, but no network,
    no further processes or threads, and no files except those of the standard library, which it can only read. Time and
    memory are limited. This isolation requires Linux 5.13 or later on x86-64 or ARM. Without it, no code runs and the
    score is an error.

    The code cannot cheat, because it never sees the expected values. Outputs are compared outside its process. Test
    statements run in another process and call the code's functions from there. They get plain data, or handles that
    equal no plain data. So a statement cannot replace a name in the code's module or read its source. A library name
    that it does not import (`Counter`, `datetime.date`) is the library's own. Only a comparison between two objects of
    the code's own classes, and the code that it calls, relies on the code itself.

    >>> score = get_reward_function("code_tests")
    >>> score("```python\ndef f(x): return x * 2\n```", tests=["assert f(2) == 4", "assert f(3) == 9"])
    0.5
    >>> score("```python\nprint(int(input()) + 1)\n```", tests=[{"input": "3", "output": "4"}])
    1.0
    """
    if not (0 < timeout_s <= _LONGEST_S and 0 < memory_mb <= _MOST_MB):
        raise ValueError(
            f"timeout_s must be above 0 and at most {_LONGEST_S}, and memory_mb at most {_MOST_MB}; not"
            f" timeout_s={timeout_s} and memory_mb={memory_mb}"
        )
    checks, dialogues = read_tests(tests)
    code = extract_code(response)
    problem = syntax_problem(code)
    if problem:
        return Score(0.0, detail=problem)
    deadline = time.monotonic() + timeout_s
    num_passed, problems = 0, []
    if checks:
        run = run_program(code, checks=checks, timeout_s=timeout_s, memory_mb=memory_mb)
        num_passed += sum(run.passed)
        problems.append(run.problem)
    for text, expected in dialogues:
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            problems.append("it ran out of time")
            break
        run = run_program(code, stdin=text, timeout_s=remaining_s, memory_mb=memory_mb)
        right = run.ended and _same_output(run.output, expected)
        num_passed += right
        problems.append(run.problem or ("" if right else f"it printed {excerpt(run.output)}, not {excerpt(expected)}"))
    total = len(checks) + len(dialogues)
    first = next((f"; first problem: {problem}" for problem in problems if problem), "")
    return Score(num_passed / total, detail=f"{num_passed} of {total} tests passed{first}")


def read_tests(tests: Any) -> tuple[list[str], list[tuple[str, str]]]:
    """Return tests as statements, and as pairs of input and expected output; raise BadReferenceError for others."""
    entries = tests
    if isinstance(tests, str):
        try:
            entries = json.loads(tests)
        except (ValueError, RecursionError):
            entries = [tests] if tests.strip() else []
    if isinstance(entries, Mapping) and {"inputs", "outputs"} <= set(entries):
        inputs, outputs = entries["inputs"], entries["outputs"]
        if not isinstance(inputs, list | tuple) or not isinstance(outputs, list | tuple) or len(inputs) != len(outputs):
            raise BadReferenceError(f"`inputs` and `outputs` must be lists of the same length, not {excerpt(tests)}")
        entries = [{"input": text, "output": expected} for text, expected in zip(inputs, outputs, strict=True)]
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
        raise BadReferenceError(f"the column `tests` must contain tests, not {excerpt(tests)}")
    checks: list[str] = []
    dialogues: list[tuple[str, str]] = []
    for test in entries[:_MOST_TESTS]:
        if isinstance(test, str) and test.strip():
            checks.append(test)
        elif isinstance(test, Mapping) and isinstance(test.get("input"), str) and isinstance(test.get("output"), str):
            dialogues.append((test["input"], test["output"]))
        else:
            raise BadReferenceError(
                f"a test must be a statement, or have `input` and `output` as text, not {excerpt(test)}"
            )
    return checks, dialogues


def _same_output(printed: str, expected: str) -> bool:
    """Return True if two outputs agree, apart from white space at the ends of lines."""
    one, other = ([line.rstrip() for line in text.rstrip().splitlines()] for text in (printed, expected))
    return one == other
