"""The parser that a file of verifiers gives to its rubric, for a rubric function that is called without the rubric.

Such files make the parser inside `load_environment`, beside data and an environment that no reward needs:

    def load_environment(use_think=True):
        dataset = load_dataset(...)
        parser = vf.ThinkParser(extract) if use_think else vf.Parser(extract)
        rubric = vf.Rubric(funcs=[correct], parser=parser)

So only the statements that the parser needs are run, with the defaults of the function's parameters.
"""

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from agent_tunix.errors import RewardError

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module


def parser_of_rubric(function: Any) -> Any:
    """Return the parser of the rubric that a function belongs to, by its file; None if no rubric has one.

    Raises:
        RewardError: Several parsers fit, or the parser cannot be made.
    """
    function = inspect.unwrap(function)
    variables: Mapping[str, Any] = getattr(function, "__globals__", {})
    try:
        tree = ast.parse(inspect.getsource(inspect.getmodule(function)))  # type: ignore[arg-type]
    except (OSError, TypeError, SyntaxError):
        return None
    parsers = _parsers(tree, getattr(function, "__name__", ""))
    if len({ast.unparse(value) for _, value in parsers}) > 1:
        raise _cannot(f"its rubrics have the parsers {' and '.join(ast.unparse(value) for _, value in parsers)}")
    return _made(*parsers[0], variables) if parsers else None


def _cannot(reason: str) -> RewardError:
    return RewardError(
        f"the parser that this file gives to its rubric is not known: {reason}; set it as `parser = …` at the top level"
        " of the file, and pass it on as `parser=parser`",
        code="invalid_judge",
    )


def _parsers(tree: ast.Module, name: str) -> list[tuple[Scope, ast.expr]]:
    """Return the parsers, in their scopes, of the rubrics that name a function; if none names it, of all."""
    rubrics = [(scope, call) for scope in _scopes(tree) for call in _rubrics(scope)]
    rubrics_with_name = [(scope, call) for scope, call in rubrics if name in _names(call)]
    rubrics_with_name = (
        rubrics_with_name or [(scope, call) for scope, call in rubrics if name in _names(scope)] or rubrics
    )
    loaders = [(scope, call) for scope, call in rubrics_with_name if getattr(scope, "name", "") == "load_environment"]
    arguments = [(scope, _argument(call)) for scope, call in loaders or rubrics_with_name]
    return [(scope, value) for scope, value in arguments if value is not None]


def _argument(rubric: ast.Call) -> ast.expr | None:
    """Return the parser in `Rubric(funcs, weights, parser)`; None if there is none."""
    values = [keyword.value for keyword in rubric.keywords if keyword.arg == "parser"]
    return next(iter([*values, *rubric.args[2:3]]), None)


def _scopes(tree: ast.Module) -> Iterator[Scope]:
    yield tree
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _rubrics(scope: Scope) -> Iterator[ast.Call]:
    """Yield the calls in a scope that make a rubric, without those in its functions."""
    for node in _own_nodes(scope.body):
        if isinstance(node, ast.Call):
            makes_base = ast.unparse(node.func) == "super().__init__" and any(
                one.arg == "funcs" for one in node.keywords
            )
            if makes_base or ast.unparse(node.func).endswith("Rubric"):
                yield node


def _own_nodes(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node
            yield from _own_nodes([*ast.iter_child_nodes(node)])


def _names(*nodes: ast.AST) -> set[str]:
    """Return the names that are read in nodes."""
    inside = (inner for node in nodes for inner in ast.walk(node))
    return {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _made(scope: Scope, value: ast.expr, variables: Mapping[str, Any]) -> Any:
    """Return the value of an expression in a scope, by running the statements that it needs."""
    local = {**variables}
    statements = [] if isinstance(scope, ast.Module) else _needed([*_before(scope.body, value)], _names(value))
    module = ast.fix_missing_locations(ast.Module(statements, []))
    try:
        if not isinstance(scope, ast.Module):
            local |= _defaults(scope.args, local)
        exec(compile(module, "<parser>", "exec"), local)
        return eval(compile(ast.Expression(value), "<parser>", "eval"), local)
    except Exception as error:  # the user's code may raise anything
        raise _cannot(f"`{ast.unparse(value)}` failed with {type(error).__name__}: {error}") from error


def _needed(statements: Sequence[ast.stmt], names: set[str]) -> list[ast.stmt]:
    """Return the statements that bind names, and those that bind what these need. The names of the latter are added.

    Of an `if`, only the parts that are needed remain.
    """
    required: list[ast.stmt] = []
    for statement in reversed(statements):
        if names.isdisjoint(_bound(statement)):
            continue
        if isinstance(statement, ast.If):
            then, otherwise = (_needed(block, names) for block in (statement.body, statement.orelse))
            statement = ast.If(statement.test, then or [ast.Pass()], otherwise)
        names |= _names(statement)
        required.append(statement)
    return required[::-1]


def _before(body: Sequence[ast.stmt], value: ast.expr) -> Iterator[ast.stmt]:
    """Yield the statements that run before an expression, those of enclosing blocks too."""
    for statement in body:
        if not _encloses(statement, value):
            yield statement
            continue
        for block in ("body", "orelse", "finalbody"):
            inner = getattr(statement, block, [])
            if any(_encloses(one, value) for one in inner):
                yield from _before(inner, value)
        return


def _encloses(statement: ast.stmt, value: ast.expr) -> bool:
    return statement.lineno <= value.lineno <= (statement.end_lineno or statement.lineno)


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds. An attribute counts as its object: `self.parser = …` binds `self`."""
    names: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(ast.unparse(node).partition(".")[0])
    return names


def _defaults(arguments: ast.arguments, variables: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a function with their defaults. `self` is an empty object, `**kwargs` an empty dict."""
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(reversed(positional), reversed(arguments.defaults), strict=False)]
    pairs += [(one, value) for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
    values = {one.arg: eval(compile(ast.Expression(value), "<parser>", "eval"), variables) for one, value in pairs}
    if positional and positional[0].arg == "self":
        values["self"] = SimpleNamespace()
    return values | ({} if arguments.kwarg is None else {arguments.kwarg.arg: {}})
