"""Main function of the process that runs a program or its tests; it isolates itself first.

It imports little before that, because it starts for every completion.
"""

from __future__ import annotations

import builtins
import importlib
import marshal
import os
import resource
import sys
import types

from agent_tunix.execution.isolation.locking import lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Mount point of the process's own root; it contains nothing that the process may read.
_PLACE = "/proc"
LOCKED = b"locked\n"
_MODULES = {"dialogue": (), "program": ("program",), "tests": ("checker", "evaluated_text", "defined_tests")}


def main(report: int, line: list[int]) -> None:
    """Read the job, isolate the process, do the job, and report line by line."""
    with open(0, "rb", closefd=False) as given:
        job: dict[str, Any] = marshal.load(given)
    del sys.argv[1:]  # `unittest.main` and argument parsers would read ours
    work = {"dialogue": _run, "program": _run_and_serve, "tests": _test}[job["role"]]
    _give_input(job["stdin"])
    for side in _MODULES[job["role"]]:  # load our modules now: once isolated, this process cannot read them
        importlib.import_module(f"agent_tunix.execution.sandbox.{side}")
    for name, module in sys.modules.items():
        if name.startswith("agent_tunix") and hasattr(module, "__path__"):
            module.__path__ = []
    limits = {
        resource.RLIMIT_CPU: job["cpu_s"],
        resource.RLIMIT_FSIZE: job["output_bytes"],
        resource.RLIMIT_AS: job["memory_bytes"],
    }
    try:
        lock(
            job["readable"],
            _PLACE,
            parent=job["parent"],
            keep=(report, *line),
            limits=limits,
            most_threads=1,
            most_tasks=1,
        )
    except (OSError, ValueError) as error:
        os.write(report, f"refused: {error}\n".encode())
        return
    os.write(report, LOCKED)
    sys.exit(work(job, report, line))


def _run(job: dict[str, Any], report: int, _: list[int]) -> int:
    """Run a program that reads and prints."""
    problem = _attempt(job["code"], "<response>", _namespace())
    if problem:
        _say(report, f"problem {problem}")
    return bool(problem)


def _run_and_serve(job: dict[str, Any], report: int, line: list[int]) -> int:
    """Run a program and serve calls of its functions from the tests' process. It cannot report anything itself."""
    from agent_tunix.execution.sandbox.exchange import Line
    from agent_tunix.execution.sandbox.program import Server

    os.close(report)
    tests, namespace = Line(*line), _namespace()
    problem = _attempt(job.pop("code"), "<response>", namespace)
    if problem:
        tests.send({"problem": problem})
    else:
        Server(tests, namespace).serve()
    return 0


def _test(job: dict[str, Any], report: int, line: list[int]) -> int:
    """Run the tests of a program that runs in another process."""
    from agent_tunix.execution.sandbox.checker import Lost, ProgramClient, Remote
    from agent_tunix.execution.sandbox.defined_tests import DefinedTests
    from agent_tunix.execution.sandbox.evaluated_text import EvaluationGuard
    from agent_tunix.execution.sandbox.exchange import Line
    from agent_tunix.execution.sandbox.names import Names, uses_in

    client = ProgramClient(Line(*line), formats=any("format" in check.lower() for check in job["checks"]))
    try:
        names, imported, problem = client.greet()
    except Lost as error:
        names, imported, problem = {}, set(), str(error)
    if problem:
        _say(report, f"problem {problem}")
        return 0
    visible = Names(names, imported, job["checks"])
    # `unittest.main` and `doctest.testmod` look for tests in the module `__main__`.
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    module.__dict__.update(_namespace())
    namespace = module.__dict__
    tests = DefinedTests(job["checks"], namespace)
    sys.addaudithook(EvaluationGuard(job["checks"], client.texts))
    lent: dict[str, Any] = {}
    passed: list[int] = []
    uses_program = False
    for index, check in enumerate(job["checks"]):
        try:
            seen = visible.seen_by(check)
        except NameError as error:
            _say(report, f"problem NameError: {error}")
            continue
        for name, value in lent.items():
            if namespace.get(name) is value:
                del namespace[name]
        lent = {name: value for name, value in seen.items() if name not in namespace}
        namespace |= lent
        used = uses_in(check).keys()
        values = [value for name, value in lent.items() if names.get(name) is value and name in used]
        problem = _attempt_call(tests.run_check, index)
        problem, client.refuted = client.lost or problem or client.refuted, ""
        has_plain = any(type(value) is not Remote for value in values)
        uses_program |= client.has_asked or has_plain or bool(used & imported)
        if problem:
            _say(report, f"problem {problem}")
        else:
            passed.append(index)
        if uses_program:  # before that, nothing was tested
            passed = [done for done in passed if not _tell(report, done, tests.not_run(done))]
        if client.lost:
            return 0
    for index in passed:
        why = f"{tests.not_run(index)} was not run" if uses_program else "the tests use nothing of the program"
        _say(report, f"problem {why}")
    _say(report, "ended")
    return 0


def _tell(report: int, index: int, not_run: str) -> bool:
    """Report that a check passed, unless it has tests that did not run yet."""
    if not not_run:
        _say(report, f"passed {index}")
    return not not_run


def _say(report: int, line: str) -> None:
    os.write(report, (" ".join(line.split())[:240] + "\n").encode(errors="replace"))


def _namespace() -> dict[str, Any]:
    return {"__name__": "__main__", "__builtins__": builtins}


def _attempt(code: str, file: str, namespace: dict[str, Any]) -> str:
    """Run a program; return its problem in one line, or an empty string."""

    def run() -> None:
        exec(compile(code, file, "exec", dont_inherit=True), namespace)
        sys.stdout.flush()

    return _attempt_call(run, exit_is_fine=True)


def _attempt_call(work: Callable[..., object], *args: Any, exit_is_fine: bool = False) -> str:
    """Call a function; return the problem in one line, or an empty string."""
    try:
        work(*args)
    except SystemExit as leaving:
        try:  # noqa: SIM105  (contextlib would be imported only for this)
            sys.stdout.flush()
        except Exception:
            pass
        return "" if exit_is_fine and leaving.code in (None, 0) else "it called exit"
    except BaseException as error:
        return " ".join(f"{type(error).__name__}: {_text_of(error)}".split())[:200]
    return ""


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return ""


def _give_input(text: str) -> None:
    """Put a text on standard input, for both `input()` and file descriptor 0."""
    memory = os.memfd_create("input")
    os.write(memory, text.encode(errors="replace"))
    os.lseek(memory, 0, os.SEEK_SET)
    os.dup2(memory, 0)
    os.close(memory)
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", errors="replace", closefd=False)
