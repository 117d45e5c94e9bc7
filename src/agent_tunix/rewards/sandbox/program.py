"""The side of a program: it has run, and its functions and objects are now called from the tests' process."""

import builtins
import io
import json
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

from agent_tunix.rewards.sandbox.exchange import MUTABLE, Line, decode, encode, plain_of

# What tests may do to an object, besides calling it and reading, setting and deleting its attributes.
SPECIALS: dict[str, Callable[..., Any]] = {
    "len": len, "iter": iter, "next": next, "str": str, "repr": repr, "bool": bool, "hash": hash, "int": int,
    "float": float, "abs": abs, "getitem": operator.getitem, "setitem": operator.setitem,
    "delitem": operator.delitem, "neg": operator.neg, "index": operator.index, "isinstance": isinstance,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow, "and": operator.and_,
    "or": operator.or_, "xor": operator.xor, "matmul": operator.matmul, "getattr": getattr, "setattr": setattr,
    "delattr": delattr, "enter": lambda it: it.__enter__(), "exit": lambda it: it.__exit__(None, None, None),
}  # fmt: skip


class Server:
    """Answers what the tests' process asks.

    Args:
        line: To that process.
        namespace: The program's, after it has run.
    """

    def __init__(self, line: Line, namespace: dict[str, Any]) -> None:
        self._line = line
        self._namespace = namespace
        self._objects: list[Any] = []
        self._places: dict[int, int] = {}

    def serve(self) -> None:
        """Answer until no one asks any more."""
        names = {name: value for name, value in self._namespace.items() if not name.startswith("__")}
        self._line.send({"names": {name: self._encode(value) for name, value in names.items()}})
        while True:
            try:
                self._line.send(self._answer(self._line.receive()))
            except (EOFError, BrokenPipeError):
                return

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        printed = sys.stdout = io.StringIO()
        try:
            args = [decode(arg, self._dereference) for arg in asked["args"]]
            named = {name: decode(arg, self._dereference) for name, arg in asked.get("named", {}).items()}
            before = [self._state(arg) for arg in args]
            do = SPECIALS[asked["special"]] if "special" in asked else _call
            value = do(*args, **named)
            changed = [None if now == then else now for now, then in zip(map(self._state, args), before, strict=True)]
            return {"value": self._encode(value), "changed": changed, "printed": printed.getvalue()}
        except BaseException as error:
            return {"raised": self._encode_exception(type(error)), "text": _text_of(error)[:1000]}

    def _state(self, value: Any) -> Any:
        """What tells whether a call changed an argument that tests see go by value."""
        return json.loads(json.dumps(self._encode(value))) if type(value) in MUTABLE else None

    def _encode(self, value: Any) -> Any:
        return encode(value, self._reference)

    def _reference(self, value: Any) -> dict[str, Any]:
        if isinstance(value, _Foreign):
            return {"yours": value._place}
        if isinstance(value, type) and issubclass(value, BaseException):
            return self._encode_exception(value)
        if isinstance(value, types.ModuleType):
            return {"module": value.__name__}
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if _is_of_stdlib(value, module, name):
            return {"module": module, "name": name}
        plain = plain_of(value)
        return {"mine": self._place(value)} | ({"plain": self._encode(plain[0])} if plain else {})

    def _place(self, value: Any) -> int:
        place = self._places.setdefault(id(value), len(self._objects))
        if place == len(self._objects):
            self._objects.append(value)
        return place

    def _encode_exception(self, kind: type[BaseException]) -> dict[str, Any]:
        base = next(one for one in kind.__mro__ if getattr(builtins, one.__name__, None) is one)
        own = {} if base is kind else {"mine": self._place(kind)}
        return {"exception": base.__name__, "name": kind.__name__, **own}

    def _dereference(self, data: dict[str, Any]) -> Any:
        return _Foreign(self, data["mine"]) if "mine" in data else self._objects[data["yours"]]

    def ask(self, action: str, place: int, args: list[Any]) -> Any:
        """Ask the tests' process about an object of its own, while it waits for an answer."""
        self._line.send({"ask": action, "place": place, "args": [self._encode(arg) for arg in args]})
        while "answer" not in (said := self._line.receive()):
            self._line.send(self._answer(said))
        if "raised" in said:
            raise getattr(builtins, said["raised"], RuntimeError)(said["text"])
        return decode(said["answer"], self._dereference)


class _Foreign:
    """An object of the tests': it can be called, and its attributes read and set."""

    def __init__(self, server: Server, place: int) -> None:
        self.__dict__.update(_server=server, _place=place)

    def __call__(self, *args: Any) -> Any:
        return self._server.ask("call", self._place, list(args))

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


def _is_of_stdlib(value: Any, module: object, name: object) -> bool:
    if not (isinstance(module, str) and isinstance(name, str) and module in sys.stdlib_module_names):
        return False
    return getattr(sys.modules.get(module), name, None) is value


def _call(function: Any, *args: Any, **named: Any) -> Any:
    return function(*args, **named)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return ""
