"""The tests' side of the connection: tests run here and use the program's functions and objects in the other process.

This process's own Python makes all decisions. A value from the program is plain data, or a handle on an object there.
A handle equals no plain data, whatever the program's class says. The program is not told what a handle is compared
with or added to. Calling a handle calls the program's function in the program's process. Of the names that the program
sends, only those of built-in exceptions are looked up, in one table. Others are labels.

A message that an honest program would not send (not an answer, or a value of the wrong type) ends the connection: the
current check and all later ones fail, whatever they catch.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import operator
import sys
import types

from agent_tunix.execution.sandbox.defined_tests import RECORD
from agent_tunix.execution.sandbox.exchange import IMMUTABLE, MUTABLE, Line, decode, encode
from agent_tunix.execution.sandbox.names import TEST_FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_NOTHING = object()
_EXCEPTIONS = {
    name: kind for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)
}
# Raised by a function, these would silently end a loop or generator of the tests, and skip its assertions.
_ENDS_OF_LOOPS = (StopIteration, StopAsyncIteration, GeneratorExit)
# Objects of the operator and functools modules that tests can pass; they are rebuilt from their parts.
_MADE = (functools.partial, operator.itemgetter, operator.attrgetter, operator.methodcaller)
_MOST_NAMES = 10_000
# Items that one of the program's iterators may give; each takes a message to its process and back.
_MOST_ITEMS = 20_000
# Operations of a program's object that may change what it holds.
_CHANGING = frozenset({"", "next", "setattr", "delattr", "setitem", "delitem", "enter", "exit"})
_LONGEST_NAME = 200
# Text of other characters may be more than arithmetic when a test evaluates it.
_ARITHMETIC = frozenset("0123456789+-*/() \n")
# Methods of built-in containers that only read. They are applied to the container's content. The container's own class
# could return nothing for the tests to compare.
_READING = frozenset(
    {"count", "get", "index", "isdisjoint", "issubset", "issuperset", "items", "keys", "values"}
    | {"difference", "intersection", "symmetric_difference", "union", "elements", "most_common", "total"}
)


class Lost(BaseException):
    """The loss of the program's process, which has ended or sent an invalid message."""


class ProgramClient:
    """Client of the program's process.

    Args:
        line: Connection to that process.
        formats: True if the tests may use a text as a template for `str.format`.

    Attributes:
        lost: Reason why the process cannot be used any more; "" while it can.
        refuted: Failure of an assertion or a test inside a function that the program called; "" without one.
        texts: Texts from the program that are more than arithmetic.
    """

    def __init__(self, line: Line, *, formats: bool = False) -> None:
        self.lost = ""
        self.refuted = ""
        self.texts: set[str] = set()
        self._formats = formats
        self._line = line
        self._contents: dict[int, Any] = {}
        self._lengths: dict[int, int] = {}
        self._items_seen: dict[int, int] = {}
        self._items: dict[int, int] = {}
        self._number = 0
        self._handles: dict[int, Remote] = {}
        self._exceptions: dict[int, type[BaseException]] = {}
        self._places: dict[type[BaseException], int] = {}
        self._mirrors: dict[type[BaseException], type[BaseException]] = {}
        self._own: list[Any] = []

    @property
    def has_asked(self) -> bool:
        """True if the program's process was asked for anything."""
        return self._number > 0

    def greet(self) -> tuple[dict[str, Any], set[str], str]:
        """Return the names that the program defines, those it imported, and its problem or an empty string."""
        said = self._receive()
        if "problem" in said:
            return {}, set(), str(said["problem"])[:_LONGEST_NAME]
        names, imported = said.get("names"), said.get("imported", [])
        if not isinstance(names, dict) or type(imported) is not list or len(names) + len(imported) > _MOST_NAMES:
            raise self._lose("it did not report its definitions")
        if any(type(name) is not str for name in imported):
            raise self._lose("an imported name is not text")
        return (
            {name: self._decode(data) for name, data in names.items() if not name.startswith("__")},
            set(imported),
            "",
        )

    def ask(self, args: list[Any], named: dict[str, Any] | None = None, special: str = "") -> Any:
        """Call the first argument with the others in the program's process, or apply a special operation to it."""
        named = named or {}
        if special in _CHANGING:
            self._contents.clear()
            self._lengths.clear()
            self._items_seen.clear()
        self._number += 1
        number = self._number
        given = {name: self._encode(arg) for name, arg in named.items()}
        self._send({"id": number, "special": special, "args": [self._encode(arg) for arg in args], "named": given})
        while "ask" in (said := self._receive()):
            self._send(self._answer(said))
        if type(said.get("id")) is not int or said["id"] != number or not isinstance(said.get("printed"), str):
            raise self._lose("an unexpected answer")
        self._note_texts(said["printed"])
        sys.stdout.write(said["printed"])
        if "raised" in said:
            raise self._exception_of(said, special)
        self._refill([*args, *named.values()], said.get("changed"))
        return self._decode(said.get("value"))

    def plain_of(self, handle: Remote) -> Any:
        """Return the content of an object whose class is derived from a list, dict or similar type.

        However often a test reads the content, it stays the same until something may have changed it.
        """
        place = place_of(handle)
        if place not in self._contents:
            self._contents[place] = self.ask([handle], special="plain")
        value = self._contents[place]
        return value if type(value) in MUTABLE else _NOTHING

    def expect(self, kind: type, args: list[Any], special: str) -> Any:
        """Apply a special operation to a handle; the result must have the given type."""
        value = self.ask(args, special=special)
        if type(value) is not kind:
            raise self._lose(f"{special} is not of type {kind.__name__}")
        return value

    def note_length(self, handle: Remote, length: int) -> None:
        """Fail the current check if an object's length differs although nothing has changed."""
        place = place_of(handle)
        known = self._lengths.setdefault(place, max(length, self._items_seen.get(place, 0)))
        if known != length:
            self.refuted = f"the object has {known} items and then {length}, and nothing has changed"

    def note_items(self, handle: Remote, count: int, is_all: bool) -> None:
        """Record the number of items that an iteration of an object has given. `is_all` is True if it has ended."""
        self._items_seen[place_of(handle)] = count
        if is_all:
            self.note_length(handle, count)

    def known_length(self, handle: Remote) -> int | None:
        """Return the length of an object if it is known and nothing may have changed it since; else None."""
        return self._lengths.get(place_of(handle))

    def next_of(self, iterator: Remote) -> Any:
        """Return the next item of an iterator, which may not give more than `_MOST_ITEMS`."""
        place = place_of(iterator)
        self._items[place] = self._items.get(place, 0) + 1
        if self._items[place] > _MOST_ITEMS:
            self.refuted = f"an iterator of the program gives more than {_MOST_ITEMS:,} items"
            raise RuntimeError(self.refuted)
        return self.ask([iterator], special="next")

    # --- messages ----------------------------------------------------------------------------------------------------

    def _lose(self, why: str) -> Lost:
        self.lost = self.lost or why
        return Lost(self.lost)

    def _receive(self) -> dict[str, Any]:
        if self.lost:
            raise Lost(self.lost)
        try:
            return self._line.receive()
        except Exception as error:  # reading invalid data may raise anything
            raise self._lose(f"it sent no message: {str(error)[:_LONGEST_NAME]}") from None

    def _send(self, message: dict[str, Any]) -> None:
        if self.lost:
            raise Lost(self.lost)
        try:
            self._line.send(message)
        except OSError as error:
            raise self._lose(f"it has ended: {error}") from None

    def _decode(self, data: Any) -> Any:
        try:
            value = decode(data, self._dereference)
            self._note_texts(value)
            return value
        except Exception as error:
            raise self._lose(f"it sent no value: {str(error)[:_LONGEST_NAME]}") from None

    def _note_texts(self, value: Any) -> None:
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if type(one) in (bytes, bytearray):
                one = one.decode(errors="replace")
            if type(one) is str:
                if not _ARITHMETIC.issuperset(one):
                    self.texts.add(one)
                if self._formats and _reads_attributes(one):
                    raise self._lose("its text has attributes in fields of a format, and the tests format text")
            elif type(one) in (tuple, frozenset) or type(one) in MUTABLE:
                waiting += [*one, *one.values()] if isinstance(one, dict) else one

    def _refill(self, given: list[Any], changed: Any) -> None:
        """Update each container to match the program's changed copy."""
        if type(changed) is not list or len(changed) != len(given):
            raise self._lose("it did not report which arguments changed")
        for container, data in zip(given, changed, strict=True):
            if data is None:
                continue
            now = self._decode(data)
            if type(container) not in MUTABLE or type(now) is not type(container):
                raise self._lose("an argument changed its type")
            if isinstance(container, list | bytearray):
                container[:] = now
            else:
                container.clear()
                (container.extend if hasattr(container, "extend") else container.update)(now)

    # --- what the program asks ---------------------------------------------------------------------------------------

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Answer the program's request about an object that a test passed to it."""
        place, action = asked.get("place"), asked.get("ask")
        args, named = asked.get("args"), asked.get("named")
        if type(place) is not int or not 0 <= place < len(self._own) or type(args) is not list:
            raise self._lose("it asked for something unavailable")
        values = [self._decode(arg) for arg in args]
        try:
            target = self._own[place]
            if action == "call" and isinstance(named, dict):
                self._note_texts(list(named))
                options = {name: self._decode(arg) for name, arg in named.items()}
                if not _may_call(target):
                    raise TypeError(f"{type(target).__name__} cannot be called from here")
                return {"answer": self._encode(target(*values, **options))}
            if action == "getattr" and len(values) == 1 and type(values[0]) is str:
                return {"answer": self._encode(_attribute(target, values[0]))}
            if action == "setattr" and len(values) == 2 and type(values[0]) is str:
                _set_attribute(target, *values)
                return {"answer": None}
        except Exception as error:
            # A program may call a test, as the decorator of one does, and catch what it raises.
            is_test = RECORD in getattr(getattr(target, "__code__", None), "co_names", ())
            if type(error) is AssertionError or is_test:
                self.refuted = f"{type(error).__name__}: {error}"
            kind = next((one for one in type(error).__mro__ if _EXCEPTIONS.get(one.__name__) is one), RuntimeError)
            return {"answer": None, "raised": kind.__name__, "text": str(error)[:_LONGEST_NAME]}
        raise self._lose("it asked for something else")

    # --- values ------------------------------------------------------------------------------------------------------

    def _encode(self, value: Any) -> Any:
        return encode(value, self._reference)

    def _reference(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Remote):
            return {"yours": place_of(value)}
        if isinstance(value, type) and value in self._places:
            return {"yours": self._places[value]}
        if isinstance(value, type) and (origin := _EXCEPTIONS.get(value.__name__)) and value is self._mirror(origin):
            value = origin
        if library := _library_name(value):
            return {"library": library}
        if type(value) in _MADE:
            make, args, named = _parts_of(value)
            return {"made": [self._encode(make), self._encode(args), self._encode(named)]}
        if _equals_everything(value):
            raise TypeError(f"{type(value).__name__} equals everything, so it may not be passed to the program")
        self._own.append(value)
        return {"mine": len(self._own) - 1}

    def _dereference(self, data: dict[str, Any]) -> Any:
        if "exception" in data:
            return self._exception_class(data)
        if "yours" in data:
            place = data["yours"]
            if type(place) is not int or place < 0:
                raise ValueError("no place")
            return self._own[place]
        place = data["mine"]
        if type(place) is not int:
            raise ValueError("no place")
        plain = decode(data["plain"], self._dereference) if "plain" in data else _NOTHING
        if plain is not _NOTHING and type(plain) not in IMMUTABLE:
            raise ValueError("not plain data")
        self._note_texts(plain)
        known = self._handles.get(place)
        if known is None or plain is not _NOTHING:
            known = self._handles[place] = Remote(self, place, plain, data.get("mutable") is True)
        return known

    def _exception_class(self, data: dict[str, Any]) -> type[BaseException]:
        """Return the local class for one of the program's exceptions; only what the program raises is an instance."""
        kind = self._mirror(_EXCEPTIONS[data["exception"]])
        for name, place in reversed(data["own"]):
            self._note_texts(name)
            if place not in self._exceptions:
                own = type(str(name)[:_LONGEST_NAME].replace("\0", ""), (kind,), {"__module__": "__main__"})
                self._exceptions[place] = own
                self._places[own] = place
            kind = self._exceptions[place]
        return kind

    def _mirror(self, kind: type[BaseException]) -> type[BaseException]:
        if kind not in self._mirrors:
            bases = (kind, *(self._mirror(base) for base in kind.__bases__ if issubclass(base, BaseException)))
            self._mirrors[kind] = type(kind.__name__, bases, {"__module__": "builtins"})
        return self._mirrors[kind]

    def _exception_of(self, said: dict[str, Any], special: str) -> BaseException:
        kind, args = self._decode(said["raised"]), self._decode(said.get("args"))
        if not (isinstance(kind, type) and issubclass(kind, BaseException) and type(args) is list):
            raise self._lose("it raised something that is not an exception")
        if issubclass(kind, _ENDS_OF_LOOPS):
            if special == "next" and issubclass(kind, StopIteration):
                return StopIteration()
            return RuntimeError(f"a function raised {kind.__name__}")
        try:
            return kind(*args)
        except Exception:  # its constructor needs other arguments, for example
            error = kind.__new__(kind)
            error.args = tuple(args)
            return error


class Remote:
    """A handle on a function, class or object of the program.

    Args:
        client: Client of the program's process.
        place: The program's index of the object.
        plain: Plain data that the object equals, as a named tuple equals a tuple.
        mutable: True if its class is derived from a list, dict or similar type.
    """

    __slots__ = ("__client", "__mutable", "__place", "__plain")

    def __init__(self, client: ProgramClient, place: int, plain: Any, mutable: bool) -> None:
        for name, value in (("client", client), ("place", place), ("plain", plain), ("mutable", mutable)):
            object.__setattr__(self, f"_Remote__{name}", value)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the object in the program."""
        return self.__client.ask([self, *args], named)

    def __getattr__(self, name: str) -> Any:
        # A named tuple may have a field `count`; other classes derived from plain types keep the type's own methods.
        if not isinstance(self.__plain, tuple) and self.__plain is not _NOTHING and hasattr(self.__plain, name):
            return getattr(self.__plain, name)
        if self.__mutable and name in _READING and hasattr(content := self.__client.plain_of(self), name):
            return getattr(content, name)
        if _is_asked_by_unittest() and not name.startswith("__"):
            # `assertSetEqual` would hand the program the expected set.
            raise AttributeError(f"an object of the program has no {name!r} for unittest")
        return self.__client.ask([self, name], special="getattr")

    def __copy__(self) -> Any:
        return self.__client.ask([self], special="copy")

    def __deepcopy__(self, _: object) -> Any:
        return self.__client.ask([self], special="deepcopy")

    def __setattr__(self, name: str, value: Any) -> None:
        self.__client.ask([self, name, value], special="setattr")

    def __delattr__(self, name: str) -> None:
        self.__client.ask([self, name], special="delattr")

    def __eq__(self, other: object) -> bool:
        if self.__plain is not _NOTHING:
            theirs = other.__plain if isinstance(other, Remote) else other
            return bool(self.__plain == theirs)
        if isinstance(other, Remote):
            return other.__place == self.__place or bool(self.__client.ask([self, other], special="eq"))
        return self.__mutable and bool(self.__client.plain_of(self) == other)

    def __hash__(self) -> int:
        return hash(self.__plain) if self.__plain is not _NOTHING else self.__client.expect(int, [self], "hash")

    def __contains__(self, item: object) -> bool:
        if self.__plain is not _NOTHING:
            return bool(operator.contains(self.__plain, item))
        return any(item is one or item == one for one in self)

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.__plain, str | tuple | frozenset | bytes):
            return iter(self.__plain)
        if self.__mutable and (content := self.__client.plain_of(self)) is not _NOTHING:
            return iter(content)
        iterator = self.__client.ask([self], special="iter")
        if not isinstance(iterator, Remote):
            raise TypeError("it iterates over something that is not an iterator")
        return _items_of(self, iterator, self.__client)

    def __reversed__(self) -> Iterator[Any]:
        return iter([*self][::-1])

    def __next__(self) -> Any:
        return self.__client.next_of(self)

    def __bool__(self) -> bool:
        if self.__plain is not _NOTHING:
            return bool(self.__plain)
        if self.__mutable and (content := self.__client.plain_of(self)) is not _NOTHING:
            return bool(content)
        truth: bool = self.__client.expect(bool, [self], "bool")
        return truth

    def __len__(self) -> int:
        if self.__plain is not _NOTHING:
            return len(self.__plain)
        if self.__mutable and (content := self.__client.plain_of(self)) is not _NOTHING:
            return len(content)
        length: int = self.__client.expect(int, [self], "len")
        self.__client.note_length(self, length)
        return length

    def __str__(self) -> str:
        if isinstance(self.__plain, str):
            return str(self.__plain)
        return str(self.__client.expect(str, [self], "str"))

    def __repr__(self) -> str:
        return str(self.__client.expect(str, [self], "repr"))

    def __int__(self) -> int:
        return int(self.__plain) if self.__plain is not _NOTHING else self.__client.expect(int, [self], "int")

    def __float__(self) -> float:
        return float(self.__plain) if self.__plain is not _NOTHING else self.__client.expect(float, [self], "float")

    def __abs__(self) -> Any:
        return abs(self.__plain) if self.__plain is not _NOTHING else self.__client.ask([self], special="abs")

    def __neg__(self) -> Any:
        return -self.__plain if self.__plain is not _NOTHING else self.__client.ask([self], special="neg")

    def __getitem__(self, key: Any) -> Any:
        if self.__plain is not _NOTHING:
            return self.__plain[key]
        if self.__mutable and (content := self.__client.plain_of(self)) is not _NOTHING:
            # The program is asked for what the content lacks, such as an item that a class computes.
            with contextlib.suppress(LookupError, TypeError):
                return content[key]
        return self.__client.ask([self, key], special="getitem")

    def __setitem__(self, key: Any, value: Any) -> None:
        self.__client.ask([self, key, value], special="setitem")

    def __delitem__(self, key: Any) -> None:
        self.__client.ask([self, key], special="delitem")

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, Remote) and self.__client.expect(bool, [instance, self], "isinstance")

    def __enter__(self) -> Any:
        return self.__client.ask([self], special="enter")

    def __exit__(self, *_: object) -> None:
        self.__client.ask([self], special="exit")


def _is_asked_by_unittest() -> bool:
    """Return True if an assertion of unittest reads the attribute, not a test."""
    return sys._getframe(2).f_globals.get("__name__") == "unittest.case"


def place_of(handle: Remote) -> int:
    """Return the program's index of the object behind a handle."""
    return object.__getattribute__(handle, "_Remote__place")  # type: ignore[no-any-return]


def _items_of(handle: Remote, iterator: Remote, client: ProgramClient) -> Iterator[Any]:
    """Yield the items of an object. If a test also reads the length, the number of items must equal it."""
    length, count, is_all = client.known_length(handle), 0, False
    try:
        while not is_all:
            try:
                item = client.next_of(iterator)
            except StopIteration:
                is_all = True
            else:
                count += 1
                yield item
    finally:
        client.note_items(handle, count, is_all)
        if length is not None and (count > length or is_all):
            client.note_length(handle, length)


def _between_remotes(name: str) -> Callable[[Remote, object], Any]:
    get = object.__getattribute__

    def operate(self: Remote, other: object) -> Any:
        plain = get(self, "_Remote__plain")
        if plain is not _NOTHING:
            theirs = get(other, "_Remote__plain") if isinstance(other, Remote) else other
            return NotImplemented if theirs is _NOTHING else getattr(operator, f"__{name}__")(plain, theirs)
        return (
            get(self, "_Remote__client").ask([self, other], special=name)
            if isinstance(other, Remote)
            else NotImplemented
        )

    return operate


for _name in ("lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"):
    setattr(Remote, f"__{_name}__", _between_remotes(_name))


def _reads_attributes(template: str) -> bool:
    """Return True if a template for `str.format` has a field with an attribute, such as `{0.name}`."""
    import string

    try:
        fields = list(string.Formatter().parse(template))
    except ValueError:  # no template
        return False
    return any("." in (name or "") or _reads_attributes(spec or "") for _, name, spec, _ in fields)


def _equals_everything(value: Any) -> bool:
    try:
        return bool(value == object())
    except Exception:  # its comparison accepts only its own type
        return False


def _is_of_tests(kind: type) -> bool:
    """Return True for a class that the tests define, with only such classes as bases."""
    bases = [one.__dict__.get("__module__") for one in kind.__mro__[:-1]]
    return bool(bases) and bases[0] == "__main__" and set(bases) <= {"__main__", "abc", "typing"}


def _may_call(target: Any) -> bool:
    """Return True for functions and classes that the tests define, and for methods of their containers and mocks."""
    if isinstance(target, types.FunctionType):
        return target.__code__.co_filename == TEST_FILE
    if isinstance(target, types.MethodType):
        return _may_call(target.__func__)
    if isinstance(target, types.BuiltinMethodType):
        return type(target.__self__) in (*MUTABLE, str)
    if isinstance(target, type):
        return _is_of_tests(target)
    if isinstance(target, staticmethod | functools._lru_cache_wrapper):
        return _may_call(target.__wrapped__)
    mock = sys.modules.get("unittest.mock")
    return _is_of_tests(type(target)) or (mock is not None and isinstance(target, mock.Mock))


def _attribute(target: Any, name: str) -> Any:
    """Return an attribute of an instance of a test's class. It never leads to the tests' variables."""
    kind = type(target)
    if not name.startswith("__") and _is_of_tests(kind):
        if name in vars(target):
            return vars(target)[name]
        written = next((one.__dict__[name] for one in kind.__mro__ if name in one.__dict__), None)
        if _may_call(written) or (isinstance(written, property) and _may_call(written.fget)):
            return getattr(target, name)
        if type(written) in (bool, int, float, str):
            return written
    raise AttributeError(name)


def _set_attribute(target: Any, name: str, value: Any) -> None:
    """Set an attribute of an instance of a test's class; refuse to replace a method."""
    kind = type(target)
    written = next((one.__dict__[name] for one in kind.__mro__ if name in one.__dict__), None)
    if name.startswith("__") or not _is_of_tests(kind) or callable(written) or hasattr(written, "__get__"):
        raise AttributeError(name)
    vars(target)[name] = value


def _library_name(value: Any) -> list[str] | None:
    """Return the standard library module and the names in it that lead to a value; None if there are none."""
    if isinstance(value, types.ModuleType):
        return [value.__name__] if value.__name__.partition(".")[0] in sys.stdlib_module_names else None
    module = getattr(value, "__module__", None) or getattr(getattr(value, "__objclass__", None), "__module__", None)
    name = getattr(value, "__qualname__", None)
    if not (isinstance(module, str) and isinstance(name, str) and module in sys.stdlib_module_names):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return [module, *name.split(".")] if found is value and callable(value) else None


def _parts_of(value: Any) -> tuple[Any, list[Any], dict[str, Any]]:
    if isinstance(value, functools.partial):
        return functools.partial, [value.func, *value.args], dict(value.keywords)
    make, args = value.__reduce__()[:2]
    return make, list(args), {}
