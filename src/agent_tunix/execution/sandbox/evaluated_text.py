"""The `eval`, `exec` and `compile` of tests, which refuse code that the program wrote.

`assert eval(solve(numbers)) == 24` evaluates text that the program returns. Text such as that must not decide the test.
So text that is not a constant of the tests may only be an expression of operators, literals and names of the tests,
those in their strings included.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
import types

from agent_tunix.execution.sandbox.names import TEST_FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

_EXPRESSIONS = (
    ast.Expression,
    ast.expr,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.keyword,
)
_REFUSED = (ast.NamedExpr, ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom)
_DOORS = frozenset({"eval", "exec", "compile"})


def guarded(checks: list[str], texts: Collection[str] = ()) -> dict[str, Callable[..., Any]]:
    """Return the functions `eval`, `exec` and `compile` for tests.

    They raise ValueError for text that is no constant of the tests, if it has statements or assignments, or names that
    the tests do not use or that they assign themselves, such as that of the expected value.

    Args:
        checks: The tests, each a few statements.
        texts: Texts of the program so far. Text that contains one may use no names at all.
    """
    constants: set[Any] = set()
    names: set[str] = set()
    refused = set(_DOORS)
    for check in checks:
        try:
            nodes = list(ast.walk(compile(check, TEST_FILE, "exec", ast.PyCF_ONLY_AST)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # running the test reports the error
        own = {node.value for node in nodes if isinstance(node, ast.Constant)}
        constants |= own
        names |= _names_in(nodes) | {word for text in own if type(text) is str for word in re.findall(r"\w+", text)}
        refused |= _assigned_in(nodes)
    names -= refused

    def check_text(text: Any) -> Any:
        if isinstance(text, types.CodeType):
            return text
        shown = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        is_theirs = any(theirs in shown for theirs in texts)
        if text in constants and not is_theirs:
            return text
        if type(text) not in (str, bytes):
            raise ValueError(f"tests evaluate text, not {type(text).__name__}")
        nodes = list(ast.walk(builtins.compile(text.strip(), TEST_FILE, "eval", ast.PyCF_ONLY_AST)))
        if any(isinstance(node, _REFUSED) or not isinstance(node, _EXPRESSIONS) for node in nodes):
            raise ValueError("the program's text is more than an expression")
        if strange := _names_in(nodes) - (set() if is_theirs else names):
            raise ValueError(f"the program's text uses names that the tests do not use: {', '.join(sorted(strange))}")
        return text

    def scopes(given: tuple[Any, ...]) -> tuple[Any, ...]:
        caller = sys._getframe(2)
        return given if given and given[0] is not None else (caller.f_globals, caller.f_locals)

    def evaluate(source: Any, *given: Any) -> Any:
        return builtins.eval(check_text(source), *scopes(given))

    def execute(source: Any, *given: Any) -> None:
        builtins.exec(check_text(source), *scopes(given))

    def compiled(source: Any, filename: str, mode: str, *options: Any, **named: Any) -> Any:
        return builtins.compile(check_text(source), TEST_FILE, mode, *options, **named)

    return {"eval": evaluate, "exec": execute, "compile": compiled}


def _names_in(nodes: list[ast.AST]) -> set[str]:
    """Return the names of variables, attributes and arguments in a tree."""
    found = {node.id for node in nodes if isinstance(node, ast.Name)}
    found |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return found | {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}


def _assigned_in(nodes: list[ast.AST]) -> set[str]:
    """Return the names that a tree assigns, defines or imports."""
    found = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    found |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return found | {(node.asname or node.name).partition(".")[0] for node in nodes if isinstance(node, ast.alias)}
