"""Uploads of sources without a function `reward`: a file with a function of another name or form, and a mixture.

A `reward` that calls the function is added at the end of the file. The file is never run.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_tunix.errors import UploadError
from agent_tunix.rewards.conventions.detection import fitting
from agent_tunix.rewards.conventions.plain import RESPONSE_NAMES
from agent_tunix.rewards.registry import is_shipped
from agent_tunix.rewards.resolve import read_components, read_components_file
from agent_tunix.rewards.uploaded import is_function_id

_FUNCTION = "reward"
_REGISTER = "register_reward_function"
_WRITE = "write `def reward(completions, answer=None, **kwargs)`, which returns a list of one value for each completion"
# Parameters of a plain function that are no columns of the dataset.
_GIVEN = (*RESPONSE_NAMES, "prompt", "step", "max_steps", "num_tokens", "metadata")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class AdaptedSource:
    """A file that has a function `reward`."""

    source: bytes  # the file, with a `reward` at its end if one was added
    function: str | None = None  # name of the function that the added `reward` calls; None if the file is unchanged
    # Name that the function is registered under, or else its own; None if the file is unchanged.
    name: str | None = None
    is_plain: bool = False  # True if the function takes one response


def adapt_source(source: bytes, function: str | None = None) -> AdaptedSource:
    """Return a file with a function `reward`. If the file has none, add one that calls its one reward function.

    Args:
        source: The file, which `check_upload` checks afterwards.
        function: Name of the function. None for `reward`, or else the only registered one, or else the only public one.

    Raises:
        UploadError: There is no such function, or several, or an upload cannot call it. The message says what to write.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return AdaptedSource(source)  # `check_upload` says what is wrong with it
    functions = {node.name: node for node in tree.body if isinstance(node, _Function)}
    registered = dict(_registered(tree))
    chosen = _choose(functions, registered, function)
    if chosen is None:
        return AdaptedSource(source)
    node = functions[chosen]
    arguments = node.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    fits = fitting(names)
    if chosen == _FUNCTION and fits != ["plain"]:
        return AdaptedSource(source)
    if fits == ["plain"]:
        added = _call_of_plain(node, names)
    elif fits in (["trl"], ["miles"]):
        added = _call_of_batch(node, names)
    else:
        shown = f"{chosen}({ast.unparse(arguments)})"
        raise UploadError(
            "invalid_signature",
            f"line {node.lineno}: `{shown}` is no function of a form that can be uploaded; {_WRITE}",
            "file",
        )
    kept = _without(source, [*_decorators(node for node in functions.values()), *_registrations(tree)])
    text = f"{kept.rstrip()}\n\n\n# Added by `agent-tunix store upload`.\n_given = {chosen}\n\n\n{added}"
    return AdaptedSource(text.encode(), chosen, registered.get(chosen, chosen), fits == ["plain"])


def hidden_files(source: bytes, directories: Sequence[Path]) -> list[str]:
    """Return the files of this machine that a source names and that are not uploaded with it.

    Args:
        source: The file to upload.
        directories: Directories in which a reward that is not uploaded finds its modules and files.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # `check_upload` says what is wrong with it
    named = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    modules = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    names = [f"{module.partition('.')[0]}{end}" for module in modules for end in (".py", "/__init__.py")]
    paths = {
        directory / name
        for directory in {one.resolve() for one in directories}
        for name in (*names, *named)
        if _may_be_path(name)
    }
    return sorted({str(path) for path in paths if path.is_file()})


def _may_be_path(text: str) -> bool:
    return 0 < len(text) < 256 and text.isprintable() and ("/" in text or "." in text)


def _choose(functions: Mapping[str, _Function], registered: Mapping[str, str], wanted: str | None) -> str | None:
    if wanted is not None:
        if wanted not in functions:
            known = ", ".join(functions) or "none"
            raise UploadError(
                "no_reward_function", f"the file has no function `{wanted}` at its top level, but {known}", "file"
            )
        return wanted
    if _FUNCTION in functions:
        return _FUNCTION
    public = [name for name in functions if not name.startswith("_")]
    for candidates in ([name for name in functions if name in registered], public):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            raise UploadError(
                "no_reward_function",
                f"the file has no `reward`, and several functions: {', '.join(candidates)}; upload one of them as"
                f" FILE:{candidates[0]}, or {_WRITE}",
                "file",
            )
    return None


def _registered(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each registered function of a file and its registered name."""
    for node in tree.body:
        if isinstance(node, _Function):
            for decorator in node.decorator_list:
                if _registers(decorator) and (name := _first_text(decorator)):
                    yield node.name, name
        elif isinstance(node, ast.Expr) and _registers(node.value):
            call: Any = node.value
            if (name := _first_text(call)) and len(call.args) > 1 and isinstance(call.args[1], ast.Name):
                yield call.args[1].id, name


def _registers(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == _REGISTER


def _first_text(call: Any) -> str | None:
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def _decorators(functions: Iterator[_Function]) -> Iterator[ast.expr]:
    for function in functions:
        yield from (one for one in function.decorator_list if _registers(one))


def _registrations(tree: ast.Module) -> Iterator[ast.expr]:
    yield from (node.value for node in tree.body if isinstance(node, ast.Expr) and _registers(node.value))


def _without(source: bytes, registrations: list[ast.expr]) -> str:
    """Return a source without its registrations, because a worker may hold several uploads of one file."""
    lines = re.split(r"\r\n|\r|\n", source.decode("utf-8-sig"))  # the lines that `ast` counts
    for node in registrations:
        for number in range(node.lineno - 1, node.end_lineno or node.lineno):
            lines[number] = ""
    return "\n".join(lines)


def _call_of_plain(node: _Function, names: list[str]) -> str:
    """Return a `reward` that calls a function of one response for each completion."""
    if "format" in names:
        raise UploadError(
            "invalid_signature",
            f"line {node.lineno}: `{node.name}` takes `format`, which an upload is not given; {_WRITE}",
            "file",
        )
    columns = [name for name in _required(node) if name not in _GIVEN]
    passed = "".join(f"{name}={name}, " for name in columns)
    return (
        f"def reward({', '.join(['completions', *columns])}, **columns):\n{_docstring(node)}"
        "    from agent_tunix.rewards import score_each\n\n"
        f"    return score_each(_given, completions, {passed}**columns)\n"
    )


def _required(node: _Function) -> list[str]:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    without = positional[: len(positional) - len(arguments.defaults)]
    keywords = [
        one for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None
    ]
    return [one.arg for one in (*without, *keywords)]


def _call_of_batch(node: _Function, names: list[str]) -> str:
    """Return a `reward` that calls a function of the form `trl` or `miles`, and has the same parameters."""
    is_async = isinstance(node, ast.AsyncFunctionDef)
    is_miles = fitting(names) == ["miles"]
    passed = [f"{name}={name}" for name in names]
    if node.args.kwarg is not None:
        passed.append(f"**{node.args.kwarg.arg}")
    opening = "async def" if is_async or is_miles else "def"
    call = f"{'await ' if is_async else ''}_given({', '.join(passed)})"
    return f"{opening} reward({ast.unparse(node.args)}):\n{_docstring(node)}    return {call}\n"


def _docstring(node: _Function) -> str:
    doc = ast.get_docstring(node)
    return f"    {doc!r}\n" if doc else ""


@dataclass(frozen=True, slots=True)
class ComponentUpload:
    """A component of a mixture whose function is in a file."""

    component: str
    path: Path
    source: AdaptedSource  # the file with a `reward`


def adapt_mixture(file: Path) -> tuple[dict[str, dict[str, Any]], list[ComponentUpload]]:
    """Return the components of a file of `conf/reward/`, and those whose functions must be uploaded.

    Raises:
        UploadError: A component names a function whose file is not known, or that an upload cannot call.
        RewardError: The file holds no components.
    """
    components = read_components(read_components_file(file))
    uploads = []
    for name, keys in components.items():
        function = keys["function"]
        path, _, of_file = str(function).rpartition(":")
        if path.endswith(".py"):
            uploads.append(ComponentUpload(name, Path(path), _of_component(name, Path(path), of_file, keys)))
        elif not (is_function_id(function) or is_shipped(function) or is_shipped(f"{function}_reward")):
            raise UploadError(
                "unknown_file",
                f"component {name!r}: {function!r} is neither built in nor uploaded; write the file that has it, as"
                f" `{name}: {{function: FILE.py:{str(function).rpartition('.')[2]}}}`",
                "file",
            )
    return components, uploads


def _of_component(name: str, path: Path, function: str, keys: Mapping[str, Any]) -> AdaptedSource:
    try:
        adapted = adapt_source(path.read_bytes(), function)
    except OSError as error:
        raise UploadError(
            "unreadable_file", f"component {name!r}: {path} cannot be read: {error.strerror}", "file"
        ) from error
    except UploadError as error:
        raise UploadError(error.code, f"component {name!r}: {path}: {error}", error.param) from None
    if adapted.is_plain and keys.get("args"):
        raise UploadError(
            "unsupported_args",
            f"component {name!r}: a function of one response takes no args once it is uploaded; write them as defaults"
            f" of the parameters of `{function}`, or {_WRITE}",
            "file",
        )
    return adapted
