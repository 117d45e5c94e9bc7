"""Source texts of the user's modules, as this process loaded them.

A user may edit a reward's file while a run goes on, and the run starts new workers until its end. So this process keeps
the text of every module of the user that it loads, and of the modules that these import anywhere, and hands all of
them to each worker. The worker compiles these texts, whatever the disk holds by then.

Modules of Python, of installed packages and of this package are left to Python's own loaders. A file that the user's
code itself writes, such as a completion's program that it imports next, is read from the disk.
"""

import ast
import contextlib
import functools
import importlib.machinery
import importlib.util
import linecache
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_PACKAGE = Path(__file__).resolve().parents[1]

# Real path → text that this process compiled, or will compile at the first import.
_texts: dict[str, bytes] = {}
_compiled: set[str] = set()
# Where the imports of all kept texts were last looked up: the working directory, and `sys.path`.
_searched: tuple[str, ...] = ()
# True in a worker, which never reads another text than those that it was given.
_is_given = False
# The files that the user's code wrote last, in order.
_written: dict[str, None] = {}
_MAX_WRITTEN = 256
_notices_writes = False


class SourceLoader(importlib.machinery.SourceFileLoader):
    """Loader of a user's module. It keeps the text, and ignores bytecode in `__pycache__`."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the kept text. A second import in this process, a reload, reads the file again."""
        path = os.path.realpath(self.path)
        if path in _compiled and not _is_given:
            _texts.pop(path, None)
        text = self.get_data(self.path)
        _compiled.add(path)
        _keep_imported(Path(path))
        # Without a modification time, `linecache` never reads the file again: tracebacks show the code that runs.
        lines = importlib.util.decode_source(text).splitlines(keepends=True)
        linecache.cache[self.path] = (len(text), None, lines, self.path)
        return self.source_to_code(text, self.path)

    def get_data(self, path: str) -> bytes:
        """Return the kept text of a source, or the content of another file."""
        return _keep(Path(path)) if path.endswith(".py") else super().get_data(path)


class _Finder(importlib.machinery.FileFinder):
    """Finder of modules in a directory of the user. In a worker, it also finds files that have been removed since."""

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        found = super().find_spec(fullname, target)
        if found is not None and found.loader is not None:
            return found
        package = os.path.join(self.path, fullname.rpartition(".")[2])
        if found is None and _holds_texts(package) and os.path.realpath(f"{package}.py") not in _texts:
            found = ModuleSpec(fullname, None, is_package=True)  # a namespace package
            found.submodule_search_locations = [package]
        for file, inner in ((os.path.join(package, "__init__.py"), [package]), (f"{package}.py", None)):
            if os.path.realpath(file) in _texts:
                loader = SourceLoader(fullname, file)
                return importlib.util.spec_from_file_location(
                    fullname, file, loader=loader, submodule_search_locations=inner
                )
        return found


def keep_imports() -> None:
    """Keep the texts of the user's modules that are imported from now on."""
    if _hook in sys.path_hooks:
        return
    sys.path_hooks.insert(0, _hook)
    for directory in list(sys.path_importer_cache):
        if not _is_foreign(directory):
            sys.path_importer_cache.pop(directory, None)


def _hook(directory: str) -> _Finder:
    if _is_foreign(directory) or not (os.path.isdir(directory) or _holds_texts(directory)):
        raise ImportError
    return _Finder(
        directory,
        (importlib.machinery.ExtensionFileLoader, EXTENSION_SUFFIXES),
        (SourceLoader, SOURCE_SUFFIXES),
        (importlib.machinery.SourcelessFileLoader, BYTECODE_SUFFIXES),
    )


def _holds_texts(directory: str) -> bool:
    """Return True in a worker if a directory, which may have been removed, held a kept text."""
    inside = os.path.join(os.path.realpath(directory), "")
    return _is_given and any(path.startswith(inside) for path in _texts)


@functools.lru_cache(maxsize=4096)
def _is_foreign(directory: str) -> bool:
    """Return True for a directory that holds no modules of the user."""
    path = Path(directory).resolve()
    return is_installed(path) or path == _PACKAGE.parent or path.is_relative_to(_PACKAGE)


def is_installed(file: Path) -> bool:
    """Return True for a file of Python or of a package: such a module is meant, whatever lies beside a reward."""
    in_packages = "site-packages" in file.parts or "dist-packages" in file.parts
    return in_packages or any(file.is_relative_to(place) for place in _places())


@functools.cache
def _places() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    del paths["data"]  # the prefix, such as /usr, which may also hold a project
    return tuple(Path(place).resolve() for place in {site.getusersitepackages(), *paths.values()})


# --- texts -----------------------------------------------------------------------------------------------------------


def snapshot() -> dict[str, bytes]:
    """Return the kept texts by real path, for a worker.

    A module that has been loaded may have changed `sys.path`; then what the modules import is looked up once more.
    """
    global _searched
    if _searched != (os.getcwd(), *sys.path):
        for path in list(_texts):
            _keep_imported(Path(path))
        _searched = (os.getcwd(), *sys.path)
    return dict(_texts)


def use(texts: Mapping[str, bytes]) -> None:
    """Compile these texts from now on; a worker calls this before it loads the user's code."""
    global _is_given
    if not texts:
        return
    _is_given = True
    notice_writes(True)
    _texts.update(texts)
    keep_imports()


def notice_writes(is_user: bool) -> None:
    """Say whether the user's code runs now, in this process. In a worker, it always does."""
    global _notices_writes
    _add_hook()
    _notices_writes = is_user or _is_given


@functools.cache
def _add_hook() -> None:
    sys.addaudithook(_notice_write)  # Python cannot remove it


def _notice_write(event: str, args: tuple[Any, ...]) -> None:
    """Forget the kept text of a file that the user's code opens to write, or puts in another's place."""
    if not _notices_writes:
        return
    if event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR):
        file = args[0]
    elif event == "os.rename":
        file = args[1]
    else:
        return
    if isinstance(file, str | os.PathLike) and os.fspath(file).endswith(".py"):
        path = os.path.realpath(file)
        _texts.pop(path, None)
        _written[path] = None
        if len(_written) > _MAX_WRITTEN:
            del _written[next(iter(_written))]


def is_written(file: str) -> bool:
    """Return True if the user's code has written a file, which is then none of the user's modules."""
    return os.path.realpath(file) in _written


def is_kept(file: Path) -> bool:
    """Return True if the text of a file is kept."""
    return os.path.realpath(file) in _texts


def read(file: Path) -> bytes:
    """Return the kept text of a file, or its content; raise OSError if it cannot be read."""
    kept = _texts.get(os.path.realpath(file))
    return file.read_bytes() if kept is None else kept


def edited() -> list[Path]:
    """Return the files that no longer hold the text that this process keeps of them."""
    return [] if _is_given else [path for path in map(Path, _texts) if _is_edited(path)]


def forget_edited(file: Path) -> bool:
    """Forget a module and those that it imports if one of their files has been edited; return True if so.

    The next import then reads all of them again.
    """
    reached = _reached_from(file)
    if _is_given or not any(is_kept(path) and _is_edited(path) for path in reached):
        return False
    for path in reached:
        _texts.pop(os.path.realpath(path), None)
    importlib.invalidate_caches()
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        if isinstance(origin, str) and name != "__main__" and Path(origin).resolve() in reached:
            del sys.modules[name]
    return True


def _is_edited(file: Path) -> bool:
    try:
        return file.read_bytes() != _texts[str(file)]
    except OSError:
        return True


def _keep(file: Path) -> bytes:
    path = os.path.realpath(file)
    if path in _texts:
        return _texts[path]
    text = file.read_bytes()
    if not _is_given:
        _texts[path] = text
    return text


def keep_loaded(names: Iterable[str]) -> None:
    """Keep the texts of those of these modules that are the user's, and of what they import."""
    keep_imports()
    for name in names:
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        if file.endswith(".py") and name != "__main__" and not _is_foreign(os.path.dirname(file)):
            with contextlib.suppress(OSError):
                _keep(Path(file))
                _compiled.add(os.path.realpath(file))
                _keep_imported(Path(file))


def _keep_imported(file: Path) -> None:
    """Keep the texts of the modules that a file imports, some of which only a call may import, in a worker."""
    waiting = [] if _is_given else [file]
    while waiting:
        for path in _imports_of(waiting.pop()):
            if not is_kept(path):
                _keep(path)
                waiting.append(path)


def _reached_from(file: Path) -> set[Path]:
    """Return a file and the user's files that it imports, also indirectly."""
    found, waiting = {file}, [file]
    while waiting:
        new = {*_imports_of(waiting.pop())} - found
        found |= new
        waiting += new
    return found


def _imports_of(file: Path) -> list[Path]:
    """Return the files of the user that a file imports."""
    # A module inside a package also imports the package.
    names = [package for name in imported_names(file) for package in (*_packages_of(name), name)]
    places = dict.fromkeys(os.path.abspath(place) for place in (str(file.parent), "", *sys.path))
    mine = [place for place in places if not _is_foreign(place)]
    found = (_file_of(name, directory) for name in names for directory in _starts_of(name, file, mine))
    return [Path(path) for path in dict.fromkeys(found) if path is not None]


def _starts_of(module: str, file: Path, places: list[str]) -> list[str]:
    """Return the directories in which the first part of a module may lie; one for a relative import."""
    level = len(module) - len(module.lstrip("."))
    if level:
        return [os.path.join(file.parent, *[".."] * (level - 1))]
    return [] if module.partition(".")[0] in sys.stdlib_module_names else places


def _file_of(module: str, directory: str) -> str | None:
    """Return the real path of a module's file below a directory; None if it is not there, or none of the user's."""
    path = os.path.join(directory, *module.lstrip(".").split("."))
    for candidate in (f"{path}.py", os.path.join(path, "__init__.py")):
        if os.access(candidate, os.R_OK) and not _is_foreign(os.path.dirname(candidate)):
            return os.path.realpath(candidate)
    return None


def imported_names(file: Path) -> list[str]:
    """Return the modules that a file imports anywhere in it; relative ones start with a dot.

    A file that cannot be read or parsed imports nothing: importing it tells why.
    """
    try:
        return _imported_names(read(file))
    except OSError:
        return []


@functools.lru_cache(maxsize=4096)
def _imported_names(source: bytes) -> list[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            names += [module, *(f"{module}{'.' if node.module else ''}{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call) and _name_of(node.func) in ("import_module", "__import__"):
            names += [
                one.value for one in node.args[:1] if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
    return list(dict.fromkeys(name for name in names if name.strip(".")))


def _name_of(function: ast.expr) -> str:
    return str(getattr(function, "attr", getattr(function, "id", "")))


def _packages_of(module: str) -> list[str]:
    """Return the packages that hold a module, outermost first."""
    return [module[:end] for end, letter in enumerate(module) if letter == "." and module[:end].strip(".")]
