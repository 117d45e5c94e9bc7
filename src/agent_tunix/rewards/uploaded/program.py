"""A program that describes a function of a Python file without running it. It uses only the standard library.

Its argument is the function's name. It reads the source from standard input and writes one JSON object. Some sources
(thousands of nested brackets, a chain of a hundred thousand operators) exhaust the compiler's stack, memory or time. So
it runs in a process with limits of its own, apart from the service.

    {"error": null | {"message": str, "line": int | null},
     "functions": [{"is_async": bool, "line": int, "is_literal": bool, "is_generator": bool, "is_nested": bool,
                    "parameters": [[name, kind, has_default]], "doc": str | null}],
     "needs_batch": bool, "imports": [str],
     "values": [{"kind": "constant" | "truth" | "length" | "other", "number": float, "line": int}],
     "reads": [{"code": str, "line": int}]}
"""

import ast
import json
import os
import resource
import sys
from collections.abc import Iterator
from typing import Any

CPU_LIMIT_S = 5
MEMORY_LIMIT_BYTES = 1 << 30
# Files that are slow to compile must not delay the caller, such as a server with other requests.
_NICENESS = 10

# Calls that read a file, by their name, or by the object and the name.
_READERS = {
    *(
        "open",
        "ZipFile",
        "load_dataset",
        "load_from_disk",
        "from_pretrained",
        "read_text",
        "read_bytes",
        "iterdir",
        "rglob",
    ),
    *("read_csv", "read_json", "read_parquet", "read_excel", "read_table", "read_pickle", "loadtxt", "genfromtxt"),
    *("fromfile", "memmap", "listdir", "scandir", "load_file", "safe_open", "load_extension"),
    *(
        "sqlite3.connect",
        "duckdb.connect",
        "np.load",
        "numpy.load",
        "torch.load",
        "joblib.load",
        "os.walk",
        "glob.glob",
    ),
}
_WRITING_MODES = {f"{way}{kind}" for way in "wxa" for kind in ("", "b", "t", "+", "b+")}
_MOST_CODE = 60

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> None:
    """Inspect the source on standard input."""
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    source = sys.stdin.buffer.read().decode("utf-8-sig")
    json.dump(inspect_source(source, sys.argv[1]), sys.stdout)


def inspect_source(source: str, name: str) -> dict[str, Any]:
    """Return the facts about a source, as the module's docstring shows them."""
    error: dict[str, Any] | None = None
    try:
        # `compile` finds errors that `ast.parse` does not, such as a `return` outside a function.
        compile(source, "<upload>", "exec", dont_inherit=True)
        tree = ast.parse(source)
        # Columns count bytes of UTF-8, in lines with Python's line endings.
        lines = [line.encode() for line in source.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
        functions = list(_functions(tree, name))
        main = [function for function, is_nested in functions if not is_nested]
        return {
            "error": None,
            "functions": [_describe(function, is_nested, lines) for function, is_nested in functions],
            "needs_batch": any(_says_needs_batch(node, name) for node in tree.body),
            "imports": sorted(set(_imports(tree))),
            "values": [value for function in main[-1:] for value in _values_of(function)],
            "reads": list(_reads(tree)),
        }
    except SyntaxError as problem:
        error = {"message": problem.msg, "line": problem.lineno}
    except (RecursionError, MemoryError):
        error = {"message": "it is nested too deeply", "line": None}
    except (ValueError, OverflowError) as problem:
        error = {"message": str(problem), "line": None}
    return {"error": error, "functions": [], "needs_batch": False, "imports": [], "values": [], "reads": []}


def _functions(tree: ast.Module, name: str) -> Iterator[tuple[_Function, bool]]:
    """Yield each function of a name, and whether it is nested."""
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, _Function) and node.name == name:
            yield node, id(node) not in top


def _describe(function: _Function, is_nested: bool, lines: list[bytes]) -> dict[str, Any]:
    is_async = isinstance(function, ast.AsyncFunctionDef)
    literal = f"{'async ' if is_async else ''}def {function.name}(".encode()
    start = lines[function.lineno - 1][function.col_offset :]
    return {
        "is_async": is_async,
        "line": function.lineno,
        "is_literal": start.startswith(literal),
        "is_generator": any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _own_nodes(function)),
        "is_nested": is_nested,
        "parameters": list(_parameters(function.args)),
        "doc": ast.get_docstring(function),
    }


def _says_needs_batch(node: ast.stmt, name: str) -> bool:
    """Return True for `NAME.needs_batch = True`."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and node.value.value is True
        and any(ast.unparse(target) == f"{name}.needs_batch" for target in node.targets)
    )


def _parameters(arguments: ast.arguments) -> Iterator[tuple[str, str, bool]]:
    positional = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positional) - len(arguments.defaults)
    for place, argument in enumerate(positional):
        kind = "POSITIONAL_ONLY" if place < len(arguments.posonlyargs) else "POSITIONAL_OR_KEYWORD"
        yield argument.arg, kind, place >= first_default
    if arguments.vararg:
        yield arguments.vararg.arg, "VAR_POSITIONAL", False
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield argument.arg, "KEYWORD_ONLY", default is not None
    if arguments.kwarg:
        yield arguments.kwarg.arg, "VAR_KEYWORD", False


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _reads(tree: ast.Module) -> Iterator[dict[str, Any]]:
    """Yield the first expression of each line that reads a file, as far as the source shows it."""
    lines = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call | ast.Name) or node.lineno in lines:
            continue
        if _is_read(node) if isinstance(node, ast.Call) else node.id == "__file__":
            lines.add(node.lineno)
            yield {"code": ast.unparse(node)[:_MOST_CODE], "line": node.lineno}


def _is_read(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    if not (name in _READERS or name.rpartition(".")[2] in _READERS):
        return False
    arguments = [*call.args, *(one.value for one in call.keywords if one.arg == "mode")]
    texts = [node.value for node in arguments if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    is_writing = name.rpartition(".")[2] == "open" and any(text in _WRITING_MODES for text in texts)
    return not is_writing and texts[:1] not in ([":memory:"], ["/dev/null"])


def _own_nodes(function: _Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function, but not those inside nested functions, lambdas and classes."""
    nodes: list[ast.AST] = list(function.body)
    while nodes:
        node = nodes.pop()
        yield node
        if not isinstance(node, _SCOPES):
            nodes.extend(ast.iter_child_nodes(node))


def _values_of(function: _Function) -> Iterator[dict[str, Any]]:
    """Yield the values that a function returns or appends to its result, as far as its source shows them."""
    for node in _own_nodes(function):
        if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Name):
            yield from _values(node.value)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "append"
            and len(node.args) == 1
        ):
            yield from _values(node.args[0])


def _values(node: ast.expr) -> Iterator[dict[str, Any]]:
    nodes = [node]
    while nodes:
        node = nodes.pop()
        kind, number = "other", 0.0
        if isinstance(node, ast.IfExp):
            nodes += [node.body, node.orelse]
            continue
        if isinstance(node, ast.List | ast.Tuple):
            nodes += node.elts
            continue
        if isinstance(node, ast.ListComp):
            nodes.append(node.elt)
            continue
        inner = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
        if isinstance(inner, ast.Constant) and isinstance(inner.value, int | float):
            kind, number = "constant", min(abs(float(inner.value)), 1e300) * (1 if inner is node else -1)
        elif _is_call(node, "len"):
            kind = "length"
        elif isinstance(node, ast.Compare) or (_is_call(node, "float", "int") and _compares(node)):
            kind = "truth"
        yield {"kind": kind, "number": number, "line": node.lineno}


def _is_call(node: ast.expr, *names: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _compares(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.args[0], ast.Compare)


if __name__ == "__main__":
    main()
