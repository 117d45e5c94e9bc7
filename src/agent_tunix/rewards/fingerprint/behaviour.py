"""Description of a Python object by what decides its behaviour: plain data, equal in every process.

    plain value     itself; sets are sorted
    function        its source, the values that it has caught, its defaults and attributes, and what it wraps
    method, partial the function, and the object or the arguments that it holds
    class           its source, attributes and methods, and those of its bases
    object          its class and its attributes, however they are stored
    array           its type, shape and a hash of its content

Code of installed packages is known by its name; the versions of the packages are told elsewhere. Objects that cannot be
copied to another process (locks, files, clients of a service), random generators and modules are known by their type or
name: nothing in them is equal in another process. Addresses, the order of sets and the place of a file never count.
"""

import copyreg
import functools
import hashlib
import inspect
import json
import sys
import textwrap
import types
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from agent_tunix.own_functions import is_of_main
from agent_tunix.rewards import sources
from agent_tunix.rewards.loading import shown_name

HASH_LENGTH = 16
_PACKAGE = Path(__file__).resolve().parents[2]
_DEEPEST = 60
_TENSORS = ("torch", "jax", "jaxlib")
_GENERATORS = ("Random", "SystemRandom", "Generator", "RandomState", "BitGenerator", "SeedSequence")
_SCALARS = (str, int, float, bool, type(None))
_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)


def describe(value: object) -> Any:
    """Return a description of a value, ready for JSON: a plain value as it is, anything else by kind, name and hash."""
    return _Describer().describe(value)


def modules_of(value: object) -> set[str]:
    """Return the names of the modules whose functions, classes and values decide a value's behaviour."""
    describer = _Describer()
    describer.describe(value)
    return describer.modules


def digest(text: str) -> str:
    """Return a short hash of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_LENGTH]


def read_source(definition: Any) -> str | None:
    """Return the source of a function or class with line endings and indentation removed; None if there is none."""
    try:
        return textwrap.dedent(inspect.getsource(definition)).replace("\r\n", "\n").strip()
    except (OSError, TypeError, IndexError, SyntaxError):
        return None


class _OpaqueError(Exception):
    """An installed object holds something that exists in this process alone."""


class _Describer:
    """Walk over an object and what it holds. Objects that hold themselves are described once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, Any]] = {}  # keeps the objects, so that no id is used twice
        self._path: list[int] = []
        self.modules: set[str] = set()  # of the objects that were described
        self._in_foreign = False  # True within an object of an installed package

    def describe(self, value: object) -> Any:
        if type(value) in _SCALARS:
            return value
        if id(value) in self._known:
            return self._known[id(value)][1]
        if id(value) in self._path:
            return f"<the object {len(self._path) - self._path.index(id(value))} above>"
        if len(self._path) >= _DEEPEST:
            return f"<{_name_of(type(value))}>"
        self._path.append(id(value))
        in_foreign = self._in_foreign
        try:
            found = self._describe(value)
        finally:
            self._path.pop()
            self._in_foreign = in_foreign
        self._known[id(value)] = (value, found)
        return found

    def _describe(self, value: Any) -> Any:
        kind = type(value)
        if kind in (list, tuple):
            return [self.describe(item) for item in value]
        if kind in (set, frozenset):
            return sorted((self.describe(item) for item in value), key=_text)
        if kind is dict:
            return self._mapping(value)
        if kind is bytes:
            return ["bytes", hashlib.sha256(value).hexdigest()[:HASH_LENGTH]]
        if isinstance(value, Path):
            return value.name
        if isinstance(value, np.ndarray | np.generic):
            return self._array(value)
        if kind.__module__.partition(".")[0] in _TENSORS and hasattr(value, "shape"):
            return self._tensor(value)
        if isinstance(value, types.ModuleType | types.FunctionType | type):
            module = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
            self.modules.add(str(module))
        if isinstance(value, types.ModuleType):
            return f"<module {_plain_module(value)}>"
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        return self._object(value)

    def _node(self, kind: str, named: Any, parts: object) -> str:
        """Return the description of a value that is more than data."""
        return f"<{kind} {_name_of(named)} {digest(_text(self.describe(parts)))}>"

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        if all(type(key) is str for key in value):
            return {key: self.describe(item) for key, item in value.items()}
        pairs = [[self.describe(key), self.describe(item)] for key, item in value.items()]
        return {"pairs": sorted(pairs, key=_text)}

    def _array(self, value: Any) -> Any:
        if value.dtype.hasobject:
            return ["array", list(value.shape), self.describe(value.tolist())]
        content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:HASH_LENGTH]
        return ["array", str(value.dtype), list(value.shape), content]

    def _tensor(self, value: Any) -> Any:
        """Describe an array of another library; one whose content NumPy cannot take is known by type and shape."""
        try:
            return self._array(np.asarray(value.detach().cpu() if hasattr(value, "detach") else value))
        except Exception:  # each library has its own error for what NumPy cannot take
            return [_known_as(type(value)), str(getattr(value, "dtype", "")), str(value.shape)]

    def _function(self, function: types.FunctionType) -> str:
        code, caught = function.__code__, [_content_of_cell(cell) for cell in function.__closure__ or ()]
        if _is_foreign(function):  # a wrapper that a package made has caught what it wraps
            return self._node("function", function, [code.co_qualname, caught]) if caught else _known_as(function)
        self._in_foreign = False
        parts = {
            "code": _code(function),
            "caught": caught,
            "defaults": [function.__defaults__, function.__kwdefaults__],
            "attributes": vars(function),
        }
        if is_of_main(function) or "__file__" not in function.__globals__:  # of a notebook or script: no file says all
            used = {name for name in _names_in(code) if name in function.__globals__}
            parts["globals"] = {name: function.__globals__[name] for name in used}
        return self._node("function", function, parts)

    def _class(self, cls: type) -> str:
        if _is_foreign(cls):
            return _known_as(cls)
        self._in_foreign = False
        held = {
            name: _unwrapped(value)
            for name, value in vars(cls).items()
            if name != "_abc_impl" and not isinstance(value, _DESCRIPTORS) and (_is_code(value) or not _is_dunder(name))
        }
        return self._node("class", cls, [read_source(cls), held, list(cls.__bases__)])

    def _object(self, value: Any) -> str:
        kind = type(value)
        if _is_generator(kind):
            return _known_as(kind)
        if isinstance(value, Enum):
            return self._node("member", kind, [kind, value.name])
        if isinstance(value, types.MethodType | types.BuiltinMethodType | types.MethodWrapperType):
            of_module = value.__self__ is None or isinstance(value.__self__, types.ModuleType)
            return self._node("method", value, [] if of_module else [_function_of(value), value.__self__])
        if isinstance(value, functools.partial):
            return self._node("partial", kind, [value.func, value.args, value.keywords, vars(value)])
        wrapped = inspect.getattr_static(value, "__wrapped__", None)
        if callable(wrapped) and _is_foreign(kind):  # such as that of `functools.cache`
            return self._node("wrapper", kind, wrapped)
        if not _is_foreign(kind):
            self._in_foreign = False
            return self._node("object", kind, [kind, _content_of(value), _attributes_of(value)])
        return self._foreign_object(value)

    def _foreign_object(self, value: Any) -> str:
        """Describe an object of an installed package by what a copy of it is made from.

        If a part cannot be copied, the whole object is known by its type.
        """
        is_part, self._in_foreign = self._in_foreign, True
        try:
            return self._node("object", type(value), _reduced(value))
        except _OpaqueError:
            if is_part:
                raise
            return _known_as(type(value))


def _reduced(value: Any) -> Any:
    reduce = copyreg.dispatch_table.get(type(value))
    try:
        reduced: Any = reduce(value) if reduce else value.__reduce_ex__(4)
    except Exception as error:  # code of any package decides what it raises
        raise _OpaqueError from error
    if isinstance(reduced, str):
        return reduced
    made_by, args, state, items, pairs = (*reduced[:5], None, None, None)[:5]
    return [made_by, args, state, list(items or ()), dict(pairs or ())]


def _code(function: types.FunctionType) -> Any:
    """Return the source of a function, or its instructions. A line may have several lambdas, so these have both."""
    source = read_source(function.__code__)  # of a function, `inspect` would return the source of what it wraps
    if source is not None and function.__name__ != "<lambda>":
        return source
    return [source, _instructions(function.__code__)]


def _instructions(code: types.CodeType) -> Any:
    constants = [_instructions(one) if isinstance(one, types.CodeType) else one for one in code.co_consts]
    return [code.co_code.hex(), constants, list(code.co_names), list(code.co_varnames), list(code.co_freevars)]


def _names_in(code: types.CodeType) -> set[str]:
    inner = [name for one in code.co_consts if isinstance(one, types.CodeType) for name in _names_in(one)]
    return {*code.co_names, *inner}


def _content_of_cell(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return "<empty>"


def _unwrapped(value: Any) -> object:
    """Return the function of a descriptor of a class."""
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    return value.func if isinstance(value, functools.cached_property) else value


def _is_code(value: object) -> bool:
    return isinstance(value, types.FunctionType | staticmethod | classmethod | property)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _function_of(method: Any) -> object:
    return getattr(method, "__func__", method.__name__)


def _content_of(value: Any) -> object:
    """Return the items or the number of an object whose class derives from a built-in one."""
    bases: tuple[Any, ...] = (dict, list, tuple, set, frozenset, str, bytes, int, float)
    base = next((base for base in bases if isinstance(value, base)), None)
    content: object = None if base is None else base(value)
    return content


def _attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, also those in slots.

    Results of cached properties follow from the others, and names that a wrapper took over from what it wraps (its
    module, for example) decide nothing.
    """
    found: dict[str, Any] = {}
    for cls in reversed(type(value).__mro__):
        for name, member in vars(cls).items():
            if isinstance(member, types.MemberDescriptorType):
                try:
                    found[name] = member.__get__(value, cls)
                except AttributeError:  # not set
                    continue
    found |= getattr(value, "__dict__", {})
    cached = {name for cls in type(value).__mro__ for name, one in vars(cls).items() if _is_cached(one)}
    return {
        name: held
        for name, held in found.items()
        if name not in cached and (name == "__wrapped__" or not _is_dunder(name))
    }


def _is_cached(member: object) -> bool:
    return isinstance(member, functools.cached_property)


def _is_generator(kind: type) -> bool:
    names = {cls.__name__ for cls in kind.__mro__}
    return kind.__module__.partition(".")[0] in ("random", "numpy") and not names.isdisjoint(_GENERATORS)


def _is_foreign(definition: Any) -> bool:
    """Return True if a function or class belongs to Python, to an installed package, or to this package."""
    code = definition.__code__ if isinstance(definition, types.FunctionType) else None
    module = sys.modules.get(str(getattr(definition, "__module__", None)))
    file = code.co_filename if code is not None else getattr(module, "__file__", None)
    if file is not None and not file.startswith("<"):
        path = Path(file).resolve()
        return sources.is_installed(path) or path.is_relative_to(_PACKAGE)
    name = str(getattr(definition, "__module__", None)).partition(".")[0]
    return name != "__main__" and name in sys.stdlib_module_names


def _known_as(definition: Any) -> str:
    return f"<{_name_of(definition)}>"


def _name_of(definition: Any) -> str:
    """Return `module.qualified_name`; the path in the module name of a loaded file is left out."""
    module = shown_name(str(getattr(definition, "__module__", None) or ""))
    name = getattr(definition, "__qualname__", type(definition).__qualname__)
    return f"{module}.{name}" if module else name


def _plain_module(module: types.ModuleType) -> str:
    return shown_name(module.__name__)


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True)
