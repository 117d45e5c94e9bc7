"""Objects that a worker cannot import, sent by value: of a notebook cell, a script, a closure, a lambda or `exec`.

cloudpickle copies their code, the values that they have caught and the globals that they use. What a new process can
import is sent by reference. The script of this process (`__main__`) never is, because importing it would run it again.

Importing this module imports cloudpickle, so other modules import it inside functions.
"""

import contextlib
import inspect
import io
import linecache
import os
import pickle
import sys
import types
from collections.abc import Mapping
from typing import Any

import cloudpickle

from agent_tunix.errors import AgentTunixError

LARGEST_BYTES = 2**30
# Modules whose name says nothing about a file of the same name: cloudpickle knows the first, and workers the second.
_KNOWN = ("__main__", "agent_tunix_files")


class NotSendableError(AgentTunixError, TypeError):
    """An object cannot be sent to a worker. The message is the end of a sentence that says why."""

    code = "not_sendable"


def pack(thing: object) -> tuple[bytes, set[str]]:
    """Return an object by value, for `unpack` in a process with the same packages, and the modules that it refers to.

    Raises:
        NotSendableError: It holds something that exists in this process alone, or is larger than `LARGEST_BYTES`.
    """
    try:
        content, modules = _dump(thing)
    except Exception as error:  # any object may decide how it is pickled
        raise NotSendableError(f"{_culprit(thing)}{type(error).__name__}: {error}") from error
    if len(content) > LARGEST_BYTES:
        raise NotSendableError(f"it takes {len(content) / 2**30:.1f} GiB with all that it uses")
    return content, modules


def unpack(content: bytes) -> Any:
    """Return the object that `pack` packed in this or another process of the same run."""
    pickled, sources = pickle.loads(content)
    for file, text in sources.items():  # tracebacks show its lines
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return pickle.loads(pickled)


def _dump(thing: object) -> tuple[bytes, set[str]]:
    file = io.BytesIO()
    pickler = _Pickler(file)
    try:
        pickler.dump(thing)
    finally:
        for module in pickler.by_value:
            cloudpickle.unregister_pickle_by_value(module)
    cells = {name for name in pickler.files if not os.path.exists(name)}
    lines = {name: "".join(linecache.getlines(name)) for name in cells}
    return pickle.dumps((file.getvalue(), lines)), pickler.modules


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """A pickler that also copies the modules of this process that a new process would not find."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.files: set[str] = set()  # of functions
        self.modules: set[str] = set()
        self.by_value: list[types.ModuleType] = []
        self._packages: dict[str, bool] = {}  # package → True if a new process finds it

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.FunctionType):
            self.files.add(obj.__code__.co_filename)
        if isinstance(obj, types.FunctionType | type | types.ModuleType):
            module = (
                obj if isinstance(obj, types.ModuleType) else sys.modules.get(str(getattr(obj, "__module__", None)))
            )
            if module is not None:
                self._choose(module)
        return super().reducer_override(obj)

    def _choose(self, module: types.ModuleType) -> None:
        self.modules.add(module.__name__)
        package = module.__name__.partition(".")[0]
        if package not in self._packages:
            self._packages[package] = _is_found(package)
        if not self._packages[package] and module not in self.by_value and module.__name__ in sys.modules:
            cloudpickle.register_pickle_by_value(module)
            self.by_value.append(module)


def _is_found(package: str) -> bool:
    """Return True if an import in a new process would find the module that this process has."""
    if package in _KNOWN or package in sys.stdlib_module_names:
        return True
    finders = [finder.find_spec for finder in sys.meta_path if hasattr(finder, "find_spec")]
    spec = next(filter(None, (find(package, None, None) for find in finders)), None)
    if spec is None:
        return False
    file = getattr(sys.modules.get(package), "__file__", None)
    return file is None or spec.origin is None or os.path.realpath(file) == os.path.realpath(spec.origin)


def _culprit(thing: object) -> str:
    """Return the name of the value that cannot be sent, for the start of a message; "" if it is not known."""
    for name, part in _parts(thing).items():
        try:
            _dump(part)
        except Exception:  # as in `pack`
            return f"`{name}`: "
    return ""


def _parts(thing: Any) -> Mapping[str, object]:
    """Return the values that a function or an object holds, by name."""
    function, parts = getattr(thing, "__func__", thing), dict(getattr(thing, "__dict__", {}))
    if isinstance(function, types.FunctionType):
        with contextlib.suppress(ValueError):  # a variable has no value yet
            caught = inspect.getclosurevars(function)
            return {**caught.nonlocals, **caught.globals, **parts}
    return parts
