"""Names that a program's tests see besides their own: names of the library and of the program."""

from __future__ import annotations

import builtins
import symtable

from agent_tunix.execution.sandbox.library import find, is_known

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# File name of the tests' code, which tells it from the standard library's.
TEST_FILE = "<test>"
# Built-ins that decide the result of a test or give access to its variables; no task asks a program to write them.
_NEVER_REPLACED = frozenset(
    {"exec", "eval", "compile", "globals", "locals", "vars", "getattr", "setattr", "__import__", "isinstance", "all"}
    | {"any"}
)
# Packages outside the standard library, and their functions that tests use. Neither side can import them, so a program
# that defines one of these names would decide what is close or raised.
_PACKAGES = frozenset(
    {"allclose", "approx", "array_equal", "np", "numpy", "pandas", "pd", "pytest", "scipy", "sympy", "torch"}
    | {"jax", "jnp", "linalg", "networkx", "npt", "nx", "plt", "raises", "sklearn", "sp", "sy", "tensorflow", "tf"}
    | {"assert_allclose", "assert_almost_equal", "assert_approx_equal", "assert_array_almost_equal", "assert_close"}
    | {"assert_array_equal", "assert_array_less", "assert_equal", "assert_frame_equal", "assert_raises"}
    | {"assert_series_equal"}
)
# With these, a test may use names that its source does not show.
_HIDE_NAMES = frozenset({"exec", "eval", "compile", "globals", "locals", "vars", "__import__"})
_ONLY_AST = 0x400


class Names:
    """Names that tests may see without defining them.

    A program that redefines `abs`, `isclose` or `datetime` must not affect a test of something else. So library names
    refer to the library's own objects, and built-in names to the built-ins. A program's own `abs` or `isclose` is
    visible only if the tests use nothing else of the program. A test that uses two such names fails, because one may be
    under test while the other decides. So does a test that uses one if the program imports another name that the tests
    use. Modules are never the program's.

    Args:
        names: Names that the program defines, with their values.
        imported: Names that the program reports as imported from the library.
        checks: The tests, each a few statements.
    """

    def __init__(self, names: dict[str, Any], imported: set[str], checks: list[str]) -> None:
        # Statements share their variables. A program's variable of the same name has no effect on them.
        own = set().union(*map(_assigned_in, checks))
        names = {name: value for name, value in names.items() if name not in own}
        uses: dict[str, set[str]] = {}
        for check in checks:
            for name, some in uses_in(check).items():
                if name not in own:
                    uses.setdefault(name, set()).update(some)
        self._shares_variables = any(uses_in(check).keys() & own for check in checks)
        self._library: dict[str, Any] = {}
        self._replaced: dict[str, Any] = {}
        self._others: dict[str, Any] = {}
        self._imports: set[str] = set()
        self._uses = uses.keys()
        for name in uses.keys() | names.keys():
            found, is_module = find(name, uses[name]) if name in uses and is_known(name) else (None, False)
            if found is not None and (is_module or name in names or name in imported):
                self._library[name] = found
                if name not in names and not is_module:
                    self._imports.add(name)
            if (
                name not in names
                or name in _NEVER_REPLACED | _PACKAGES
                or is_module
                or (is_known(name) and name not in uses)
            ):
                continue
            redefines = found is not None or hasattr(builtins, name)
            (self._replaced if redefines else self._others)[name] = names[name]
        if uses.keys() & (self._others.keys() | _HIDE_NAMES):
            self._replaced = {}

    def seen_by(self, check: str) -> dict[str, Any]:
        """Return the names that a test may see.

        Raises:
            NameError: The test uses a built-in or library name that the program replaces, and the tests use another one
                that the program replaces or imports.
        """
        used = uses_in(check).keys() & self._replaced.keys()
        decisive = self._uses & self._replaced.keys() if used and self._shares_variables else used
        if len(decisive) > 1:
            raise NameError(f"the program replaces several names that the tests use: {', '.join(sorted(decisive))}")
        if used and self._imports:
            raise NameError(
                f"the program replaces {', '.join(used)}, which this test uses, and imports another name that the tests"
                f" use: {', '.join(sorted(self._imports))}"
            )
        return self._library | self._others | {name: self._replaced[name] for name in used}


def uses_in(check: str) -> dict[str, set[str]]:
    """Return the names that statements use, each with the attributes that are read, and `__call__` for a call.

    Names that the statements define themselves are left out: a program's value must not stand in for a variable of the
    tests. Invalid statements use no names; running them reports the error.
    """
    try:
        waiting: list[Any] = [compile(check, TEST_FILE, "exec", _ONLY_AST)]
        free = _free_names(symtable.symtable(check, TEST_FILE, "exec"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, set[str]] = {}
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif hasattr(node, "_fields"):
            kind = type(node).__name__
            if kind == "Name":
                found.setdefault(node.id, set())
            base = {"Attribute": "value", "Call": "func"}.get(kind, "")
            if base and type(name := getattr(node, base)).__name__ == "Name":
                found.setdefault(name.id, set()).add("__call__" if kind == "Call" else node.attr)
            waiting += [getattr(node, field, None) for field in node._fields]
    return {name: attributes for name, attributes in found.items() if name in free}


def _assigned_in(check: str) -> set[str]:
    """Return the variables of the module that statements assign, define or import."""
    try:
        module = symtable.symtable(check, TEST_FILE, "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    return {symbol.get_name() for symbol in module.get_symbols() if symbol.is_assigned() or symbol.is_imported()}


def _free_names(module: symtable.SymbolTable) -> set[str]:
    """Return the names that code reads from outside itself."""
    own = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    free, waiting = set(), [module]
    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        free |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced() and symbol.is_global()}
    return free - own
