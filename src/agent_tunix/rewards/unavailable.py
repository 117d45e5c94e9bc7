"""Record of what a call of a reward needs and does not get. The call is unscored, even if its code catches the error.

A call needs

- a module that it imports. A failed import counts if a statement or `importlib.import_module` inside a function of a
  user's file makes it. Imports of installed packages, of modules while they load, and of text that is executed do not
  count: they may be attempts. Neither do imports of a file that the call has written, such as a completion's program,
  nor an import with a replacement: its handler gives all its names another meaning, as in `try: import regex as re`,
  `except ImportError: import re`, or it is for failed imports alone and ends with what it computes instead, as in
  `except ImportError: return float(guess == answer)`.
- a placeholder, for a part of a library that is not installed or a value that does not exist here.

Calls that run at the same time are told apart by their context. What a thread without one misses counts for all.

While a file loads, a failed import that its code catches is only a reason for a warning.
"""

import ast
import builtins
import contextlib
import contextvars
import functools
import linecache
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from agent_tunix.errors import RewardError
from agent_tunix.rewards import sources

_current: contextvars.ContextVar["CallWatch | None"] = contextvars.ContextVar("watch", default=None)
_watches: list["CallWatch"] = []  # those of all calls in progress
_lock = threading.RLock()
_OURS = str(Path(__file__).parents[1])


class CallWatch:
    """Context manager for one call. `missed` lists what the call needed and did not get.

    Args:
        file: File of the reward, whose imports count even if it is installed or is a cell of a notebook.
        is_load: True if the file is loaded, so that imports of modules count too.
    """

    __slots__ = ("_token", "file", "is_load", "missed")

    def __init__(self, file: str | None = None, *, is_load: bool = False) -> None:
        self.file = file
        self.is_load = is_load
        self.missed: list[str] = []

    def __enter__(self) -> "CallWatch":
        self._token = _current.set(self)
        with _lock:
            _watches.append(self)
            if len(_watches) == 1:
                _Hook.install()
                sources.notice_writes(True)
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            _watches.remove(self)
            if not _watches:
                _Hook.remove()
                sources.notice_writes(False)
        # The garbage collector may close an abandoned call in another context, whose watch must stay.
        with contextlib.suppress(ValueError):
            _current.reset(self._token)


def note(reason: str) -> None:
    """Record that the current call misses something. Outside calls, do nothing."""
    own = _current.get()
    for watch in [*_watches] if own is None else [own]:
        watch.missed.append(reason)


class Placeholder:
    """Object that stands for a value that does not exist here. Each use is an error, even if it is caught."""

    def __init__(self, reason: str, code: str) -> None:
        self._reason = reason
        self._code = code

    def _refuse(self, *_: Any) -> NoReturn:
        note(self._reason)
        raise RewardError(self._reason, code=self._code)

    __bool__ = __str__ = __fspath__ = __call__ = __truediv__ = __add__ = __radd__ = _refuse
    __len__ = __iter__ = __getitem__ = __contains__ = __eq__ = __hash__ = _refuse

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # for example `__array__`, which NumPy asks for
            raise AttributeError(name)
        self._refuse()


def note_import(frame: FrameType | None, module: str, error: str) -> None:
    """Record a failed import that the code of a frame made, if it counts."""
    own = _current.get()
    is_load = own is not None and own.is_load
    if frame is None or (frame.f_code.co_name == "<module>" and not is_load):
        return
    file, line = frame.f_code.co_filename, frame.f_lineno
    if sources.is_written(file):
        return
    if not (_is_users(file) or (own is not None and file == own.file)) or has_replacement(file, line):
        return
    package = module.partition(".")[0] or "it"
    remedy = (
        f"the file goes on without it; install or update {package} if scores depend on it"
        if is_load
        else f"the code caught the error; install or update {package}, or, if scores do not depend on it, move the"
        " import to the top of the file"
    )
    note(f"the import of {module} failed ({file}:{line}: {error}), and {remedy}")


@functools.lru_cache(4096)
def _is_users(file: str) -> bool:
    """Return True for a file that is neither installed nor part of this package."""
    is_foreign = file.startswith(_OURS) or sources.is_installed(Path(file).resolve())
    return not is_foreign and os.path.isfile(file)


class _Hook:
    """Replacement of `builtins.__import__` while calls are watched."""

    def __init__(self) -> None:
        self._original = builtins.__import__

    @classmethod
    def install(cls) -> None:
        builtins.__import__ = cls()

    @classmethod
    def remove(cls) -> None:
        if isinstance(found := builtins.__import__, cls):  # otherwise a replacement by a call's code calls the hook
            builtins.__import__ = found._original

    def __call__(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        try:
            module = self._original(name, globals, locals, fromlist or (), level)
            missing = _missing_names(module, fromlist) if fromlist and _is_users(_caller().f_code.co_filename) else []
        except ImportError as error:
            if not _is_of_written(error):
                note_import(_caller(), "." * level + name, str(error))
            raise
        if missing:
            note_import(_caller(), name, f"cannot import name {', '.join(missing)}")
        return module


def _caller() -> FrameType:
    """Return the frame that imports."""
    return sys._getframe(2)


def _is_of_written(error: ImportError) -> bool:
    """Return True if an import failed inside a file that the call has written."""
    place = error.__traceback__
    while place is not None:
        if sources.is_written(place.tb_frame.f_code.co_filename):
            return True
        place = place.tb_next
    return False


def _missing_names(module: Any, names: Sequence[str]) -> list[str]:
    return [
        name
        for name in names
        if name != "*" and not hasattr(module, name) and f"{module.__name__}.{name}" not in sys.modules
    ]


def has_replacement(file: str, line: int) -> bool:
    """Return True if the handler of a failed import at a line replaces what the import would give."""
    try:
        linecache.checkcache(file)
        tree = ast.parse("".join(linecache.getlines(file)))  # it also knows notebooks and uploads
    except (SyntaxError, ValueError, RecursionError):
        return False
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and _spans(node, line)]
    tries = [node for node in statements if isinstance(node, ast.Try) and any(_spans(one, line) for one in node.body)]
    handlers = [handler for node in reversed(tries) for handler in node.handlers if _IMPORTS & _caught(handler)]
    if not handlers:
        return False
    names = _names_bound(statements[-1:])  # the innermost statement
    return bool(names and names <= _names_bound(handlers[0].body)) or _computes_instead(handlers[0])


def _spans(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


_ONLY_IMPORTS = frozenset({"ImportError", "ModuleNotFoundError"})
_IMPORTS = _ONLY_IMPORTS | {"Exception", "BaseException"}


def _caught(handler: ast.ExceptHandler) -> set[str]:
    """Return the names of the exceptions that a handler catches."""
    if handler.type is None:
        return {"BaseException"}
    return {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}


def _computes_instead(handler: ast.ExceptHandler) -> bool:
    """Return True if a handler of failed imports alone ends with a function or with a value that it computes."""
    last = handler.body[-1]
    if not _caught(handler) <= _ONLY_IMPORTS or not isinstance(last, ast.Return | ast.Assign):
        return False
    nodes = [] if last.value is None else [*ast.walk(last.value)]
    return any(isinstance(node, ast.Lambda | ast.Compare | ast.Call) and _reads(node, handler.name) for node in nodes)


def _reads(node: ast.AST, error: str | None) -> bool:
    """Return True if a call, comparison or lambda reads a variable. The error does not count, nor does a length."""
    if isinstance(node, ast.Lambda):
        return not isinstance(node.body, ast.Constant)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id == "len":
            return False
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        inner = [*node.args, *(keyword.value for keyword in node.keywords)]
        inner += [receiver] if isinstance(receiver, ast.Call) else []
        return any(_reads(one, error) for one in inner)
    if isinstance(node, ast.Name):
        return node.id != error
    return any(_reads(one, error) for one in ast.iter_child_nodes(node))


def _names_bound(statements: Sequence[ast.stmt]) -> set[str]:
    """Return the names that statements bind to anything but a constant."""
    names: set[str] = set()
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant):
            names |= {one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return names


def importer_by_name() -> FrameType | None:
    """Return the frame that called `importlib.import_module`, if that is why the calling finder was asked, or None."""
    frame: FrameType | None = sys._getframe(2)
    is_by_name = False
    while frame is not None and (package := str(frame.f_globals.get("__name__"))).partition(".")[0] == "importlib":
        if package == "importlib.util":  # `find_spec` only asks
            return None
        is_by_name |= package == "importlib" and frame.f_code.co_name == "import_module"
        frame = frame.f_back
    return frame if is_by_name else None
