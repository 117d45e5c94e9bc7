"""Import of users' modules and files, with errors that point into them."""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_tunix.errors import RewardError, UnknownRewardError
from agent_tunix.rewards import sources
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.shims import served_imports


def load_file(path: Path) -> ModuleType:
    """Import a Python file once, or again after it or a file that it imports was edited, under a name of its own.

    The name is the file's with a hash of its path (`custom_rewards@1f0c…`), so it cannot shadow an installed module or
    be mistaken for a file of the same name elsewhere. The file's directory is appended to `sys.path`, so the file can
    import its neighbours.

    Raises:
        UnknownRewardError: There is no such file.
        RewardError: It failed to import; the message gives file, line and exception. Or a module that it imports lies
            beside it, but another file has the same name and would be imported instead.
    """
    path = path.resolve()
    if not os.path.isfile(path) and not sources.is_kept(path):  # False for too long a path, unlike `Path.is_file`
        raise UnknownRewardError(f"there is no file {path}", code="missing_file")
    name = _name_of(path)
    if name in sys.modules and not sources.forget_edited(path):
        return sys.modules[name]
    if path.suffix != ".py":
        raise RewardError(f"{path} must be a Python file whose name ends in .py", code="not_a_python_file")
    spec = importlib.util.spec_from_file_location(name, path, loader=sources.SourceLoader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    add_to_import_path(path.parent)
    _check_neighbours(path)
    sys.modules[name] = module
    try:
        with served_imports():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        del sys.modules[name]
        hint = _instead_of_relative(path) if "attempted relative import" in str(error) else _missing_package(error)
        raise RewardError(
            f"{path} could not be imported: {describe_fault(error, str(path))}{hint}", code="import_failed"
        ) from error
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _check_neighbours(path: Path) -> None:
    """Raise RewardError if an import of a file, or of its neighbours, would find another file than the neighbour."""
    waiting = [path]
    seen: set[str] = set()
    while waiting:
        file = waiting.pop()
        for name in _imported_by(file) - seen:
            seen.add(name)
            candidates = (path.parent / name / "__init__.py", path.parent / f"{name}.py")
            beside = next((one for one in candidates if one.is_file()), None)
            if beside is None:
                continue
            found = _file_of(name)
            if found is not None and found != beside.resolve() and not sources.is_installed(found):
                raise RewardError(
                    f"{file} imports {name}, and {beside} lies beside it, but {found} has the same name and would be "
                    "used; rename one of them",
                    code="ambiguous_import",
                )
            waiting.append(beside)


def _imported_by(file: Path) -> set[str]:
    """Return the first names of the modules that a file imports."""
    try:
        tree = ast.parse(sources.read(file))
    except (OSError, SyntaxError, ValueError, RecursionError):  # importing it says so
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _file_of(name: str) -> Path | None:
    """Return the file that an import would use; None if there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).resolve() if spec is not None and spec.origin and spec.has_location else None


def _instead_of_relative(path: Path) -> str:
    """Return how to import what a relative import meant."""
    top, names = path.parent, [path.stem]
    while (top / "__init__.py").is_file():
        names.insert(0, top.name)
        top = top.parent
    if len(names) > 1:
        return f"; name it as a module of its package, {'.'.join(names)}.NAME, with {top} as the working directory"
    return "; it is not part of a package: import other files by name, for example `import helper`"


def _missing_package(error: BaseException) -> str:
    """Return advice about a package that is not installed; "" for another error."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return f"; install {package}, or copy the code that you need from it" if package else ""


def _name_of(path: Path) -> str:
    return f"{path.stem}@{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def is_loaded_file(module: ModuleType) -> bool:
    """Return True if `load_file` made this module, so that no import by its name would find it."""
    return module.__file__ is not None and module.__name__ == _name_of(Path(module.__file__))


def load_module(name: str) -> ModuleType | None:
    """Import a module by name; return None if it does not exist.

    Raises:
        RewardError: It exists and failed to import.
    """
    sources.keep_imports()
    try:
        with served_imports():
            return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            return None
        raise RewardError(
            f"the module {name} could not be imported: {describe_fault(error)}", code="import_failed"
        ) from error


def find_reward(module: ModuleType, name: str) -> Any:
    """Return the function, class or object of a name in a module; None if it does not exist or cannot score.

    A name that the module lacks may be a key of its `orms`, ms-swift's rewards, or `reward_functions`, benchmax's.
    """
    found = getattr(module, name, None)
    for registry in ("orms", "reward_functions"):
        if found is None and isinstance(named := getattr(module, registry, None), Mapping):
            found = named.get(name)
    return found if can_score(found) else None


def can_score(thing: object) -> bool:
    """Return True for a function, and for a class or object with a method that scores."""
    return callable(thing) or hasattr(thing, "compute_reward") or hasattr(thing, "compute_group_reward")


def place_of(thing: object) -> str | None:
    """Return `path/to/file.py:name` for a function or class at the top level of a file; None for anything else."""
    module = sys.modules.get(str(getattr(thing, "__module__", "")))
    name = str(getattr(thing, "__qualname__", ""))
    file = getattr(module, "__file__", None)
    if file is None or not file.endswith(".py") or getattr(module, name, None) is not thing:
        return None
    return f"{Path(file).resolve()}:{name}"


def rewards_of(module: ModuleType) -> list[str]:
    """Return the names of the public functions and classes that a module defines itself."""
    return [
        name
        for name, value in vars(module).items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]


def add_to_import_path(directory: Path) -> None:
    """Append a directory to `sys.path`. At the end, no file in it can shadow an installed module."""
    sources.keep_imports()
    if str(directory) not in sys.path:
        sys.path.append(str(directory))
