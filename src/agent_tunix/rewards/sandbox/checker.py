"""The side of the tests: they run here, and reach the program's functions and objects through the other process.

What decides is computed here, by this process's own Python: a value that the program gives is plain data, or an object
that equals no plain data, whatever the program's class says of it. Nor is such an object told what it is compared with
or added to: only what tests pass to a call reaches the program.
"""

import ast
import builtins
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from agent_tunix.rewards.sandbox.exchange import MUTABLE, Line, decode, encode

_NOTHING = object()


class Client:
    """Asks the program's process.

    Args:
        line: To that process.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._exceptions: dict[int, type[BaseException]] = {}
        self._own: list[Any] = []

    def greet(self) -> tuple[dict[str, Any], str]:
        """The names that the program defines, and what went wrong with it, or ""."""
        said = self._line.receive()
        if "problem" in said:
            return {}, str(said["problem"])
        return {str(name): self._decode(data) for name, data in said["names"].items()}, ""

    def ask(self, args: list[Any], named: dict[str, Any] | None = None, special: str | None = None) -> Any:
        """Have the program's process call the first argument with the others, or do something special to it."""
        request: dict[str, Any] = {"args": [self._encode(arg) for arg in args]}
        request |= {"special": special} if special else {}
        request |= {"named": {name: self._encode(arg) for name, arg in named.items()}} if named else {}
        self._line.send(request)
        while "ask" in (said := self._line.receive()):
            self._line.send(self._answer(said))
        if "raised" in said:
            raise _make(self._decode(said["raised"]), str(said.get("text", "")))
        sys.stdout.write(str(said.get("printed", "")))
        for arg, now in zip(args, said["changed"], strict=True):
            if now is not None and type(arg) in MUTABLE:
                _refill(arg, self._decode(now))
        return self._decode(said["value"])

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What the program asks of an object that a test passed to it: a call, or an attribute of the object's own."""
        try:
            target, args = self._own[asked["place"]], [self._decode(arg) for arg in asked["args"]]
            if asked["ask"] == "call":
                return {"answer": self._encode(target(*args))}
            name = str(args[0])
            # Nothing by which the program would reach this module's variables, or what the tests stand on.
            if name.startswith("__") or isinstance(target, type | types.FunctionType | types.ModuleType):
                raise AttributeError(name)
            own = vars(target)
            if asked["ask"] == "setattr":
                own[name] = args[1]
                return {"answer": None}
            if name not in own and not isinstance(getattr(type(target), name, None), types.FunctionType):
                raise AttributeError(name)
            return {"answer": self._encode(own[name] if name in own else getattr(target, name))}
        except Exception as error:
            return {"answer": None, "raised": type(error).__name__, "text": str(error)[:200]}

    def _encode(self, value: Any) -> Any:
        return encode(value, self._reference)

    def _reference(self, value: Any) -> dict[str, Any]:
        place = getattr(type(value), "_place_of", None)
        if isinstance(value, Remote):
            return {"yours": value._place}
        if place is not None:
            return {"yours": place}
        self._own.append(value)
        return {"mine": len(self._own) - 1}

    def _decode(self, data: Any) -> Any:
        return decode(data, self._dereference)

    def _dereference(self, data: dict[str, Any]) -> Any:
        if "yours" in data:
            return self._own[data["yours"]]
        if "module" in data:
            if data["module"] not in sys.stdlib_module_names:
                raise ValueError(f"{data['module']} is not of the standard library")
            module = importlib.import_module(data["module"])
            return getattr(module, data["name"]) if "name" in data else module
        if "exception" in data:
            return self._exception(data)
        return Remote(self, data["mine"], self._decode(data["plain"]) if "plain" in data else _NOTHING)

    def _exception(self, data: dict[str, Any]) -> type[BaseException]:
        base = getattr(builtins, data["exception"])
        if not (isinstance(base, type) and issubclass(base, BaseException)):
            raise ValueError(f"{data['exception']} is no exception")
        if "mine" not in data:
            return base
        place = int(data["mine"])
        if place not in self._exceptions:
            self._exceptions[place] = type(str(data["name"]), (base,), {"_place_of": place})
        return self._exceptions[place]


class Remote:
    """A function, class or object of the program's.

    Args:
        client: Who asks the program.
        place: Where the program keeps it.
        plain: The plain data that it is equal to, as a named tuple is to a tuple.
    """

    def __init__(self, client: Client, place: int, plain: Any) -> None:
        self.__dict__.update(_client=client, _place=place, _plain=plain)

    def _special(self, name: str, *args: Any) -> Any:
        return self._client.ask([self, *args], special=name)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._client.ask([self, *args], named)

    def __getattr__(self, name: str) -> Any:
        return self._special("getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._special("setattr", name, value)

    def __delattr__(self, name: str) -> None:
        self._special("delattr", name)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Remote):
            return other._place == self._place or bool(self._special("eq", other))
        return self._plain is not _NOTHING and bool(self._plain == other)

    def __hash__(self) -> int:
        return int(self._special("hash")) if self._plain is _NOTHING else hash(self._plain)

    def __contains__(self, item: object) -> bool:
        return any(item is one or item == one for one in self)

    def __iter__(self) -> Iterator[Any]:
        iterator = self._special("iter")
        return iterator if iterator is self or not isinstance(iterator, Remote) else _Iterator(iterator)

    def __next__(self) -> Any:
        return self._special("next")

    def __bool__(self) -> bool:
        return bool(self._special("bool"))

    def __len__(self) -> int:
        return int(self._special("len"))

    def __str__(self) -> str:
        return str(self._special("str"))

    def __repr__(self) -> str:
        return str(self._special("repr"))

    def __int__(self) -> int:
        return int(self._special("int"))

    def __float__(self) -> float:
        return float(self._special("float"))

    def __abs__(self) -> Any:
        return self._special("abs")

    def __neg__(self) -> Any:
        return self._special("neg")

    def __getitem__(self, key: Any) -> Any:
        return self._special("getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._special("setitem", key, value)

    def __delitem__(self, key: Any) -> None:
        self._special("delitem", key)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, Remote) and bool(self._client.ask([instance, self], special="isinstance"))

    def __enter__(self) -> Any:
        return self._special("enter")

    def __exit__(self, *_: object) -> None:
        self._special("exit")


class _Iterator:
    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def __iter__(self) -> "_Iterator":
        return self

    def __next__(self) -> Any:
        return next(self._remote)


def _between_remotes(name: str) -> Callable[[Remote, object], Any]:
    def operate(self: Remote, other: object) -> Any:
        if isinstance(other, Remote):
            return self._special(name, other)
        return NotImplemented if self._plain is _NOTHING else getattr(self._plain, f"__{name}__")(other)

    return operate


for _name in ("lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"):
    setattr(Remote, f"__{_name}__", _between_remotes(_name))


def names_for(check: str, names: dict[str, Any]) -> dict[str, Any]:
    """The names of the program's that a check may see.

    A program that redefines `abs` or `sorted` must not decide what a test of something else says; but a test that uses
    no other name of the program's means this one.

    Args:
        check: The statements.
        names: All that the program defines.
    """
    others = {name for name in names if not hasattr(builtins, name)}
    try:
        used = {node.id for node in ast.walk(ast.parse(check)) if isinstance(node, ast.Name)}
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # of which running it will tell
        return names
    return {name: value for name, value in names.items() if name in others} if used & others else names


def _make(kind: type[BaseException], text: str) -> BaseException:
    try:
        error = kind.__new__(kind)
        error.args = (text,)
        return error
    except TypeError:  # one that wants more than a text
        return RuntimeError(f"{kind.__name__}: {text}")


def _refill(container: Any, now: Any) -> None:
    """Make of a container what the program made of its copy."""
    if isinstance(container, list | bytearray):
        container[:] = now
    else:
        container.clear()
        (container.extend if hasattr(container, "extend") else container.update)(now)
