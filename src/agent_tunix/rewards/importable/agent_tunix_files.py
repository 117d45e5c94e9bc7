"""Parent of the modules that `rewards.loading` makes of users' files, for processes that a file's code starts.

`agent_tunix.rewards.loading` appends this directory to `sys.path`, which `multiprocessing` passes to its processes. A
process that is not a fork, as with `spawn` and `forkserver`, imports `agent_tunix_files.NAME@DIRECTORY` to find the
functions of `DIRECTORY/NAME.py`. The module imports nothing of agent_tunix, so such a process starts fast.
"""

import contextlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from urllib.parse import quote_from_bytes, unquote_to_bytes

__path__: list[str] = []  # makes this module a package


def name_of(path: str) -> str:
    """Return the name of the module of a file whose name ends in .py.

    >>> name_of("/home/me/v1.2/mine.py")
    'agent_tunix_files.mine@/home/me/v1%2E2'
    """
    directory, file = os.path.split(path.removesuffix(".py"))
    stem, place = (quote_from_bytes(os.fsencode(text)).replace(".", "%2E") for text in (file, directory))
    return f"{__name__}.{stem}@{place}"


def path_of(name: str) -> str:
    """Return the file of a module that `name_of` named; "" for another module.

    >>> path_of("agent_tunix_files.mine@/home/me/v1%2E2"), path_of("json.decoder")
    ('/home/me/v1.2/mine.py', '')
    """
    stem, at, place = name.removeprefix(f"{__name__}.").partition("@")
    if not at or not name.startswith(f"{__name__}."):
        return ""
    return os.path.join(*(os.fsdecode(unquote_to_bytes(text)) for text in (place, f"{stem}.py")))


class FileSpec(importlib.machinery.ModuleSpec):
    """Specification of the module of a file. It belongs to no package, so that relative imports fail as usual."""

    parent = ""

    def __init__(self, path: str, kind: type[importlib.machinery.SourceFileLoader]) -> None:
        name = name_of(path)
        super().__init__(name, kind(name, path), origin=path)
        self.has_location = True


class _FileLoader(importlib.machinery.SourceFileLoader):
    """Loader of a file, which serves its imports if it fails without the substitutes of agent_tunix."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the compiled source, whatever bytecode `__pycache__` holds."""
        return self.source_to_code(self.get_data(self.path), self.path)

    def exec_module(self, module: ModuleType) -> None:
        try:
            super().exec_module(module)
        except ImportError:
            from agent_tunix.rewards.shims import served_imports

            _SERVED.enter_context(served_imports())
            super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        file = path_of(fullname)
        return FileSpec(file, _FileLoader) if file else None


_SERVED = contextlib.ExitStack()  # stays open, because the functions of a file may import too
sys.meta_path.append(_Finder())
