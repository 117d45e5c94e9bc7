"""Tests that a check defines without running them: functions in pytest's form and classes of unittest."""

from __future__ import annotations

import inspect
import sys

from agent_tunix.execution.sandbox.names import TEST_FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ONLY_AST = 0x400
_FUNCTIONS = frozenset({"AsyncFunctionDef", "FunctionDef"})
_DEFINITIONS = _FUNCTIONS | {"AnnAssign", "Assign", "ClassDef", "If", "Import", "ImportFrom", "Pass"}


def is_end_of_unittest(leaving: SystemExit) -> bool:
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


def run_defined_tests(check: str, namespace: dict[str, Any]) -> None:
    """Run the tests that a check defines, after the check has run.

    The classes of unittest are run again, because `unittest.main(exit=False)` raises nothing. Functions in pytest's
    form are run only if the check consists of definitions.

    Args:
        check: Source of the check.
        namespace: Variables of the tests.

    Raises:
        AssertionError: A test of a class failed, or none was run.
        BaseException: A test function raised it.
    """
    if "TestCase" not in check and "def test" not in check:
        return
    tree: Any = compile(check, TEST_FILE, "exec", _ONLY_AST)
    kinds = [type(one).__name__ for one in tree.body]
    found: list[Any] = [namespace.get(getattr(one, "name", "")) for one in tree.body]
    unittest = sys.modules.get("unittest")
    for kind, value in zip(kinds, found, strict=True):
        is_class = kind == "ClassDef" and isinstance(value, type)
        if is_class and unittest is not None and issubclass(value, unittest.TestCase):
            _run_class(value)
    if not all(kind in _DEFINITIONS or _is_text(one) for kind, one in zip(kinds, tree.body, strict=True)):
        return
    for kind, value in zip(kinds, found, strict=True):
        if kind in _FUNCTIONS and value.__name__.startswith("test") and _needs_nothing(value):
            result = value()
            if inspect.iscoroutine(result):
                import asyncio

                asyncio.run(result)


def _run_class(case: Any) -> None:
    import unittest

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    faults = [*result.failures, *result.errors]
    if faults or result.unexpectedSuccesses:
        last = faults[0][1].strip().splitlines()[-1] if faults else "unexpected success"
        raise AssertionError(f"{len(faults) or 1} of {result.testsRun} tests of {case.__name__} failed: {last}")
    if result.testsRun == len(result.skipped):
        raise AssertionError(f"no test of {case.__name__} was run")


def _is_text(statement: Any) -> bool:
    return type(statement).__name__ == "Expr" and type(statement.value).__name__ == "Constant"


def _needs_nothing(function: Any) -> bool:
    """Return True if a function can be called without arguments, so without fixtures."""
    parameters = inspect.signature(function).parameters.values()
    return all(one.default is not one.empty or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters)
