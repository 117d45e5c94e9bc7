"""The program's side of the connection. After the program has run, tests call its functions and objects here.

Standard library names that the tests send are looked up here, where only the program's own process is at risk.
"""

from __future__ import annotations

import builtins
import importlib
import io
import json
import operator
import sys

from agent_tunix.execution.sandbox.exchange import IMMUTABLE, MUTABLE, Line, decode, encode
from agent_tunix.execution.sandbox.library import is_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Operations on an object, besides calling it and reading, setting and deleting its attributes.
SPECIALS: dict[str, Callable[..., Any]] = {
    "len": len, "iter": iter, "next": next, "str": str, "repr": repr, "bool": bool, "hash": hash, "int": int,
    "float": float, "abs": abs, "getitem": operator.getitem, "setitem": operator.setitem,
    "delitem": operator.delitem, "neg": operator.neg, "isinstance": isinstance,
    "eq": operator.eq, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow, "and": operator.and_,
    "or": operator.or_, "xor": operator.xor, "getattr": getattr, "setattr": setattr,
    "delattr": delattr, "enter": lambda it: it.__enter__(), "exit": lambda it: it.__exit__(None, None, None),
    "plain": lambda it: _content_of(it), "copy": lambda it: _copier().copy(it),
    "deepcopy": lambda it: _copier().deepcopy(it),
}  # fmt: skip


class Server:
    """A server for the requests of the tests' process.

    Args:
        line: Connection to that process.
        namespace: The program's namespace, after it has run.
    """

    def __init__(self, line: Line, namespace: dict[str, Any]) -> None:
        self._line = line
        self._namespace = namespace
        self._objects: list[Any] = []
        self._places: dict[int, int] = {}

    def serve(self) -> None:
        """Answer requests until the connection closes."""
        names = {name: value for name, value in self._namespace.items() if not name.startswith("__")}
        imported = [name for name, value in names.items() if is_library(name, value)]
        defined = {name: self._encode(value) for name, value in names.items() if name not in imported}
        self._line.send({"names": defined, "imported": imported})
        while True:
            try:
                self._answer(self._line.receive())
            except (EOFError, BrokenPipeError):
                return

    def _answer(self, asked: dict[str, Any]) -> None:
        stdout, printed = sys.stdout, io.StringIO()
        sys.stdout = printed
        try:
            args = [decode(arg, self._dereference) for arg in asked["args"]]
            named = {name: decode(arg, self._dereference) for name, arg in asked["named"].items()}
            given = [*args, *named.values()]
            before = [self._state(arg) for arg in given]
            do = SPECIALS[asked["special"]] if asked["special"] else _call
            value = do(*args, **named)
            changed = [None if now == then else now for now, then in zip(map(self._state, given), before, strict=True)]
            answer = {"value": self._encode(value), "changed": changed}
        except BaseException as error:
            answer = {"raised": self._encode_exception(type(error)), "args": self._args_of(error)}
        sys.stdout = stdout
        self._line.send({"id": asked["id"], "printed": printed.getvalue(), **answer})

    def _state(self, value: Any) -> Any:
        """Return data that shows if a call changed an argument that is passed by value."""
        return json.loads(json.dumps(self._encode(value))) if type(value) in MUTABLE else None

    def _encode(self, value: Any) -> Any:
        return encode(value, self._reference)

    def _reference(self, value: Any) -> dict[str, Any]:
        if isinstance(value, _Foreign):
            return {"yours": value._place}
        if isinstance(value, type) and issubclass(value, BaseException):
            return self._encode_exception(value)
        handle: dict[str, Any] = {"mine": self._place(value), "mutable": isinstance(value, MUTABLE)}
        plain = next((kind for kind in IMMUTABLE if isinstance(value, kind)), None)
        return handle if plain is None else handle | {"plain": self._encode(plain(value))}

    def _place(self, value: Any) -> int:
        place = self._places.setdefault(id(value), len(self._objects))
        if place == len(self._objects):
            self._objects.append(value)
        return place

    def _encode_exception(self, kind: type[BaseException]) -> dict[str, Any]:
        own: list[Any] = []
        for one in kind.__mro__:
            if getattr(builtins, one.__name__, None) is one:
                return {"exception": one.__name__, "own": own}
            if issubclass(one, BaseException):
                own.append([one.__name__, self._place(one)])
        raise AssertionError("every exception must be derived from a built-in one")

    def _args_of(self, error: BaseException) -> list[Any]:
        def refuse(value: Any) -> Any:
            raise TypeError(value)

        try:
            return [encode(arg, refuse) for arg in error.args]
        except BaseException:
            return [_text_of(error)]

    def _dereference(self, data: dict[str, Any]) -> Any:
        if "mine" in data:
            return _Foreign(self, data["mine"])
        if "yours" in data:
            return self._objects[data["yours"]]
        if "made" in data:
            make, args, named = (decode(part, self._dereference) for part in data["made"])
            return make(*args, **named)
        module, *names = data["library"]
        found: Any = importlib.import_module(module)
        for name in names:
            found = getattr(found, name)
        return found

    def ask(self, action: str, place: int, args: list[Any], named: dict[str, Any] | None = None) -> Any:
        """Ask the tests' process about one of its objects, while that process waits for an answer."""
        asked = {"args": [self._encode(arg) for arg in args]}
        given = {name: self._encode(arg) for name, arg in (named or {}).items()}
        self._line.send({"ask": action, "place": place, **asked, "named": given})
        while "answer" not in (said := self._line.receive()):
            self._answer(said)
        if "raised" in said:
            raise getattr(builtins, said["raised"], RuntimeError)(said["text"])
        return decode(said["answer"], self._dereference)


class _Foreign:
    """An object of the tests, which can be called and whose attributes can be read and set."""

    def __init__(self, server: Server, place: int) -> None:
        self.__dict__.update(_server=server, _place=place)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._server.ask("call", self._place, list(args), named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._server.ask("getattr", self._place, [name])

    def __setattr__(self, name: str, value: Any) -> None:
        self._server.ask("setattr", self._place, [name, value])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Foreign) and self._place == other._place

    def __hash__(self) -> int:
        return hash(self._place)


def _copier() -> Any:
    return importlib.import_module("copy")


def _content_of(value: Any) -> Any:
    kind: Callable[[Any], Any] = next(kind for kind in type(value).__mro__ if kind in MUTABLE)
    return kind(value)


def _call(function: Any, *args: Any, **named: Any) -> Any:
    return function(*args, **named)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)[:1000]
    except BaseException:
        return ""
