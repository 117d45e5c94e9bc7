"""Tests that a check defines without running them: functions in pytest's form, classes, and doctests.

A check without a failure has passed only if its tests ran. So functions named `test…` and `check` record that they run.
Tests that have not run after the check are run here. A test that cannot be run fails the check.
"""

from __future__ import annotations

import functools
import itertools
import sys
import types

from agent_tunix.execution.sandbox.names import TEST_FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_ONLY_AST = 0x400
RECORD = "__record_test__"
# Blocks of statements such as `if` and `try`, and of classes. Their functions count as the module's.
_BLOCKS = ("body", "orelse", "handlers", "finalbody")


class DefinedTests:
    """The tests that checks define. All checks are compiled at once, before any text of the program is known.

    Args:
        checks: Sources of the checks.
        namespace: Variables of the tests, in which checks run.
    """

    def __init__(self, checks: list[str], namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._waiting: list[dict[int, str]] = []
        self._numbers = itertools.count()
        self._seen: list[type] = []
        self._codes = [self._compile(check) for check in checks]
        namespace[RECORD] = self._note
        self._failures: list[str] = []
        _watch_runners("".join(checks), self._failures.append)

    def _compile(self, check: str) -> Any:
        """Return the code of a check in which tests record that they run, or the error."""
        waiting: dict[int, str] = {}
        self._waiting.append(waiting)
        try:
            tree: Any = compile(check, TEST_FILE, "exec", _ONLY_AST)
            for function in _functions_of(tree.body):
                if function.name.startswith("test") or function.name == "check":
                    number = next(self._numbers)
                    waiting[number] = function.name
                    _prepend(function, f"{RECORD}({number})")
            return compile(tree, TEST_FILE, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return error

    def _note(self, number: int) -> None:
        for waiting in self._waiting:
            waiting.pop(number, None)

    def not_run(self, index: int) -> str:
        """Return the names of a check's tests that have not run."""
        return ", ".join(self._waiting[index].values())

    def run_check(self, index: int) -> None:
        """Run a check, and then the tests that it defined and did not run.

        Raises:
            AssertionError: A test of a class or a doctest failed, or a class has no test that runs.
            BaseException: The check or a test function raised it.
        """
        if isinstance(self._codes[index], BaseException):
            raise self._codes[index]
        self._failures.clear()
        try:
            exec(self._codes[index], self._namespace)
        except SystemExit as leaving:
            if not _is_end_of_unittest(leaving):
                raise
        self._run_defined(self._waiting[index])
        sys.stdout.flush()

    def _run_defined(self, waiting: dict[int, str]) -> None:
        for kind in [value for value in self._namespace.values() if isinstance(value, type)]:
            if kind.__module__ == "__main__" and kind not in self._seen:
                self._seen.append(kind)
                _run_class(kind)
        for name in list(waiting.values()):
            function = self._namespace.get(name)
            if name.startswith("test") and isinstance(function, types.FunctionType) and _needs_nothing(function):
                _finish(function())
        if self._failures:
            raise AssertionError(self._failures[0])


def _watch_runners(checks: str, note: Callable[[str], None]) -> None:
    """Note each failure that doctest and unittest count, because checks may print it and assert nothing."""
    if "doctest" in checks:
        import doctest

        for name in ("report_failure", "report_unexpected_exception"):
            _note_calls(doctest.DocTestRunner, name, lambda *_: note("a doctest failed"))
    if "unittest" in checks:
        import unittest

        for name in ("addFailure", "addError", "addUnexpectedSuccess"):
            _note_calls(unittest.TestResult, name, lambda *_: note("a test of unittest failed"))
        _note_calls(unittest.TestResult, "addSubTest", functools.partial(_note_subtest, note))


def _note_subtest(note: Callable[[str], None], *args: Any) -> None:
    if args[-1] is not None:  # its error
        note("a test of unittest failed")


def _note_calls(kind: type, name: str, note: Callable[..., None]) -> None:
    method = getattr(kind, name)

    @functools.wraps(method)
    def noting(*args: Any, **named: Any) -> Any:
        note(*args, *named.values())
        return method(*args, **named)

    setattr(kind, name, noting)


def _is_end_of_unittest(leaving: SystemExit) -> bool:
    """Return True if `unittest.main` exits, after all of its tests passed."""
    trace = leaving.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    unittest = sys.modules.get("unittest.main")
    return (
        leaving.code in (None, 0, False)
        and trace is not None
        and unittest is not None
        and trace.tb_frame.f_globals is unittest.__dict__
    )


def _functions_of(statements: list[Any]) -> Iterator[Any]:
    """Yield the functions of a module and of its classes; not those inside other functions."""
    for statement in statements:
        if type(statement).__name__ in ("FunctionDef", "AsyncFunctionDef"):
            yield statement
            continue
        for block in _BLOCKS:
            inner = getattr(statement, block, None)
            if isinstance(inner, list):
                yield from _functions_of(inner)


def _prepend(function: Any, source: str) -> None:
    """Insert a statement at the start of a function, after its docstring."""
    tree: Any = compile(source, TEST_FILE, "exec", _ONLY_AST)
    first = function.body[0]
    has_docstring = type(first).__name__ == "Expr" and type(getattr(first, "value", None)).__name__ == "Constant"
    function.body.insert(int(has_docstring), tree.body[0])


def _run_class(kind: Any) -> None:
    """Run a class of unittest, or one in pytest's form: named `Test…`, with methods named `test…`."""
    unittest = sys.modules.get("unittest")
    if unittest is not None and issubclass(kind, unittest.TestCase):
        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(kind).run(result)
        faults = [*result.failures, *result.errors]
        if faults or result.unexpectedSuccesses:
            last = faults[0][1].strip().splitlines()[-1] if faults else "unexpected success"
            raise AssertionError(f"{len(faults) or 1} of {result.testsRun} tests of {kind.__name__} failed: {last}")
        if result.testsRun == len(result.skipped):
            raise AssertionError(f"no test of {kind.__name__} was run")
    elif kind.__name__.startswith("Test") and not issubclass(kind, BaseException):
        for name in [name for name in dir(kind) if name.startswith("test")]:
            one = kind()
            method = getattr(one, name)
            if callable(method) and _needs_nothing(method):
                getattr(one, "setup_method", lambda: None)()
                _finish(method())


def _finish(result: Any) -> None:
    if isinstance(result, types.CoroutineType):
        import asyncio

        asyncio.run(result)


def _needs_nothing(function: Any) -> bool:
    """Return True if a function can be called without arguments, so without fixtures."""
    import inspect

    parameters = inspect.signature(function).parameters.values()
    return all(one.default is not one.empty or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters)
