"""Files of this machine that are uploaded: their function, those of a mixture, and those that are left behind.

No file is run.
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agent_tunix.errors import UploadError
from agent_tunix.rewards.registry import is_shipped
from agent_tunix.rewards.resolve import read_components, read_components_file
from agent_tunix.rewards.uploaded import is_function_id
from agent_tunix.store.uploads import REWARD

_REGISTER = "register_reward_function"
_WRITE = "write `def reward(completions, answer=None, **kwargs)`, which returns a list of one value for each completion"

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def choose_function(source: bytes, wanted: str | None = None) -> tuple[str, str | None]:
    """Return the function of a file that is uploaded, and the name that it suggests; None for `reward`.

    It is `wanted`, or else `reward`, the only registered function or the only public one. The suggested name is the
    registered one, or else the function's own.

    Raises:
        UploadError: There is no such function, or several.
    """
    tree = _parse(source)
    functions = [node.name for node in tree.body if isinstance(node, _Function)]
    registered = dict(_registered(tree))
    if wanted is None and REWARD in functions:
        return REWARD, None
    if wanted is not None and wanted not in functions:
        known = ", ".join(functions) or "none"
        raise UploadError(
            "no_reward_function", f"the file has no function `{wanted}` at its top level, but {known}", "file"
        )
    public = [name for name in functions if not name.startswith("_")]
    candidates = [wanted] if wanted is not None else [name for name in functions if name in registered] or public
    if len(candidates) > 1:
        raise UploadError(
            "no_reward_function",
            f"the file has no `reward`, and several functions: {', '.join(candidates)}; upload one of them as"
            f" FILE:{candidates[0]}, or {_WRITE}",
            "file",
        )
    (function,) = candidates or [REWARD]  # `check_upload` says that there is none
    return function, registered.get(function, None if function == REWARD else function)


def _parse(source: bytes) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])  # `check_upload` says what is wrong with it


def hidden_files(source: bytes, directories: Sequence[Path]) -> list[str]:
    """Return the files of this machine that a source names and that are not uploaded with it.

    Args:
        source: The file to upload.
        directories: Directories in which a reward that is not uploaded finds its modules and files.
    """
    tree = _parse(source)
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


def read_mixture(file: Path) -> tuple[dict[str, dict[str, Any]], dict[str, tuple[Path, str]]]:
    """Return the components of a file of `conf/reward/`, and the file and function of those that must be uploaded.

    Raises:
        UploadError: A component names a function whose file is not known.
        RewardError: The file holds no components.
    """
    components = read_components(read_components_file(file))
    uploads = {}
    for name, keys in components.items():
        function = keys["function"]
        path, _, of_file = str(function).rpartition(":")
        if path.endswith(".py"):
            if not Path(path).is_file():
                raise UploadError("unreadable_file", f"component {name!r}: {path} is no file", "file")
            uploads[name] = Path(path), of_file
        elif not (is_function_id(function) or is_shipped(function) or is_shipped(f"{function}_reward")):
            raise UploadError(
                "unknown_file",
                f"component {name!r}: {function!r} is neither built in nor uploaded; write the file that has it, as"
                f" `{name}: {{function: FILE.py:{str(function).rpartition('.')[2]}}}`",
                "file",
            )
    return components, uploads
