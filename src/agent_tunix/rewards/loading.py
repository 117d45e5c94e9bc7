"""Import of users' modules and files, with errors that point into them."""

import ast
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
from agent_tunix.own_functions import is_of_main
from agent_tunix.rewards import sources
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.shims import served_imports, unsupported_library
from agent_tunix.rewards.unavailable import CallWatch

# Failed imports that files caught while they were loaded.
_caught_imports: list[str] = []


def load_file(path: Path, working_directory: Path | None = None) -> ModuleType:
    """Import a Python file once, or again after it or a file that it imports was edited, under a name of its own.

    The name contains the path (`agent_tunix_files.mine@/home/me`), so it cannot shadow an installed module or be
    mistaken for a file of the same name elsewhere. Processes that the file's code starts can import it. The file's
    directory and then the working directory are appended to `sys.path`, so the file can import its neighbours. The
    script of this process is never imported: its module is `__main__`.

    Raises:
        UnknownRewardError: There is no such file.
        RewardError: It failed to import; the message gives file, line and exception. Or a module that it imports lies
            beside it, but another file has the same name and would be imported instead.
    """
    path = path.resolve()
    main = sys.modules["__main__"]
    if os.path.realpath(getattr(main, "__file__", None) or "") == str(path):
        return main  # to import the script would run it again
    if not os.path.isfile(path) and not sources.is_kept(path):  # False for too long a path, unlike `Path.is_file`
        raise UnknownRewardError(f"there is no file {path}")
    name = _name_of(path)
    if name in sys.modules and not sources.forget_edited(path):
        return sys.modules[name]
    if path.suffix != ".py":
        raise RewardError(f"{path} must be a Python file whose name ends in .py")
    spec = _importable().FileSpec(str(path), sources.SourceLoader)
    module = importlib.util.module_from_spec(spec)
    add_to_import_path(path.parent)
    if working_directory is not None:
        add_to_import_path(working_directory, last=True)
    _check_neighbours(path)
    sys.modules[name] = module
    try:
        with served_imports(), CallWatch(str(path), is_load=True) as watch:
            spec.loader.exec_module(module)
        _caught_imports.extend(watch.missed)
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        del sys.modules[name]
        hint = _instead_of_relative(path) if "attempted relative import" in str(error) else _missing_package(error)
        raise RewardError(
            f"{path} could not be imported: {describe_fault(error, str(path))}{hint}", code="reward_import_failed"
        ) from error
    except BaseException:
        del sys.modules[name]
        raise
    return module


def take_caught_imports() -> list[str]:
    """Return a message about each failed import that a file caught while it was loaded since the last call."""
    warnings = list(dict.fromkeys(_caught_imports))
    _caught_imports.clear()
    return warnings


def _check_neighbours(path: Path) -> None:
    """Raise RewardError if an import of a file, or of its neighbours, would find another file than the neighbour."""
    queue = [path]
    names_read: set[str] = set()
    while queue:
        file = queue.pop()
        for name in imported_by(file) - names_read:
            names_read.add(name)
            candidates = (path.parent / name / "__init__.py", path.parent / f"{name}.py")
            beside = next((one for one in candidates if one.is_file()), None)
            if beside is None:
                continue
            neighbour = _file_of(name)
            if neighbour is not None and neighbour != beside.resolve() and not sources.is_installed(neighbour):
                raise RewardError(
                    f"{file} imports {name}, and {beside} lies beside it, but {neighbour} has the same name and "
                    "would be used; rename one of them",
                    code="reward_import_failed",
                )
            queue.append(beside)


def imported_by(file: Path) -> set[str]:
    """Return the first names of the modules that a file imports."""
    return {name.partition(".")[0] for name in sources.imported_names(file) if not name.startswith(".")}


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
    module = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    if library := unsupported_library(module):
        name, function = library
        return f"; {name} is not supported: write the scoring as `{function}` in a file that does not import {module}"
    package = module.partition(".")[0]
    return f"; install {package}, or copy the code that you need from it" if package else ""


def _importable() -> Any:
    """Return the module `agent_tunix_files`, which names the modules of files."""
    add_to_import_path(Path(__file__).parent / "importable")
    return importlib.import_module("agent_tunix_files")


def _name_of(path: Path) -> str:
    return str(_importable().name_of(str(path)))


def shown_name(module: str) -> str:
    """Return the name of a module for a person: for one that `load_file` made, the file's name without `.py`."""
    file = str(_importable().path_of(module))
    return Path(file).stem if file else module.partition("@")[0]


def is_loaded_file(module: ModuleType | None) -> bool:
    """Return True if `load_file` made this module, so that no import by its name would find it."""
    file = getattr(module, "__file__", None)
    return module is not None and file is not None and module.__name__ == _name_of(Path(file))


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
            f"the module {name} could not be imported: {describe_fault(error)}", code="reward_import_failed"
        ) from error


def find_reward(module: ModuleType, name: str) -> Any:
    """Return the function, class or object of a name in a module; None if it does not exist or cannot score.

    A name that the module lacks may be a key of its `orms`, ms-swift's rewards, or `reward_functions`, benchmax's.
    """
    reward = getattr(module, name, None)
    for registry in ("orms", "reward_functions"):
        if reward is None and isinstance(entries := getattr(module, registry, None), Mapping):
            reward = entries.get(name)
    return reward if can_score(reward) else None


def place_inside(module: ModuleType, name: str) -> str:
    """Return the end of a sentence about a name that is defined inside a function or class; "" for other names.

    Such a name cannot be imported.
    """
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):
        return ""
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    for outer in (node for node in ast.walk(tree) if isinstance(node, definitions)):
        for inner in (node for node in ast.walk(outer) if isinstance(node, definitions)):
            if inner is not outer and inner.name == name:
                return (
                    f"; {name!r} is defined inside {outer.name!r} in line {inner.lineno}, where it cannot be imported:"
                    " move it to the top level of the file."
                )
    return ""


def can_score(thing: object) -> bool:
    """Return True for a function, and for a class or object with a method that scores."""
    methods = ("compute_reward", "compute_group_reward", "compute_group_rewards")
    return callable(thing) or any(hasattr(thing, method) for method in methods)


def pack_by_value(thing: object) -> bytes | str:
    """Return an object for `unpack_by_value` in a worker, or the reason why it cannot be sent there."""
    from agent_tunix.execution import by_value

    try:
        content, modules = by_value.pack(thing)
    except by_value.NotSendableError as error:
        return str(error)
    sources.keep_loaded(modules)
    return content


def unpack_by_value(content: bytes, directory: Path) -> Any:
    """Return what `pack_by_value` packed; its imports find the modules of a directory too.

    Raises:
        RewardError: A module that it needs cannot be imported here.
    """
    from agent_tunix.execution import by_value

    _importable()
    add_to_import_path(directory, last=True)
    try:
        with served_imports():
            return by_value.unpack(content)
    except Exception as error:  # a user's object may raise anything
        raise RewardError(f"it could not be received: {describe_fault(error)}", code="reward_import_failed") from error


def place_of(thing: object) -> str | None:
    """Return `path/to/file.py:name` for a function or class at the top level of a file; None for anything else.

    For one of a package, whose imports may be relative, it is `package.module.name`. The script of this process is no
    such file: to import it would run it again.
    """
    module_name = str(getattr(thing, "__module__", ""))
    module = sys.modules.get(module_name)
    name = str(getattr(thing, "__qualname__", ""))
    file = getattr(module, "__file__", None)
    if file is None or is_of_main(thing) or not file.endswith(".py") or getattr(module, name, None) is not thing:
        return None
    return f"{module_name}.{name}" if getattr(module, "__package__", "") else f"{Path(file).resolve()}:{name}"


def rewards_of(module: ModuleType) -> list[str]:
    """Return the names of the public functions and classes that a module defines itself."""
    return [
        name
        for name, value in vars(module).items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]


_LAST: set[str] = set()  # directories that stay at the end of `sys.path`


def add_to_import_path(directory: Path, *, last: bool = False) -> None:
    """Append a directory to `sys.path`. At the end, no file in it can shadow an installed module.

    A directory that is added with `last`, such as the working directory, stays behind those that are added later.
    """
    sources.keep_imports()
    if str(directory) in sys.path:
        return
    sys.path.append(str(directory))
    if last:
        _LAST.add(str(directory))
    sys.path.sort(key=_LAST.__contains__)
