"""Jinja for untrusted templates: the sandbox, with limits on the work and on the text of a rendering.

Jinja's own sandbox keeps a template away from Python, but lets it loop for hours and create text until memory is
exhausted. This environment counts every loop iteration, call, filter, comparison and operator, weighted by the size of
its operands. It refuses an operation that would create too large a text, list or number. To count, it changes the
syntax tree of a template while parsing it. The rendered text does not change.
"""

import codecs
import functools
import re
import threading
import time
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from enum import Enum, auto
from typing import Any, NamedTuple

from jinja2 import nodes, pass_context
from jinja2.exceptions import TemplateError
from jinja2.runtime import BlockReference, LoopContext, Macro, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

# Maximum characters of a text, or values of a list including all nested values.
MAX_SIZE = 4_000_000
# Maximum characters written in total, including those in blocks and macros.
MAX_OUTPUT = 4 * MAX_SIZE
# Maximum work in units, about two seconds. Each iteration, call, visited value and run of 32 characters costs some.
MAX_WORK = 20_000_000
# Maximum processor time of a rendering, in case the counts miss some work. No conversation needs a hundredth of it.
MAX_SECONDS = 10.0
_WORK_BETWEEN_LOOKS = 50_000
_CHARGES_BETWEEN_LOOKS = 1000
MAX_SOURCE = 100_000
# No conversation has larger numbers. Numbers above 2^61 may have equal hashes, and `unique` would take forever on them.
_MAX_BITS = 60
_MAX_DIGITS = 6
_FIELDS = 16
# Units of an iteration, of a call, and of a value that is visited for the first time.
_STEP, _CALL, _VISIT = 10, 100, 25
_MACRO = 500
# Two texts shorter than this cannot produce anything too large, except with a number.
_SHORT = 1000
_CHARACTERS = 32
_VALUES = 4

# Filters that are removed. No published chat template uses them, and their cost does not follow from the size of their
# arguments.
_LEFT_OUT = ("pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr")
# Filters and methods of text whose numeric arguments are sizes of their result.
# fmt: off
_SIZED = frozenset((
    "batch", "center", "expandtabs", "indent", "ljust", "rjust", "round", "slice", "to_bytes", "tojson", "truncate",
    "zfill",
))
# Filters, and tests, that do not visit the content of a value.
_FILTERS_AT_ONCE = frozenset(("attr", "count", "d", "default", "first", "last", "length"))
_TESTS_AT_ONCE = frozenset((
    "boolean", "callable", "defined", "escaped", "false", "filter", "float", "integer", "iterable", "mapping", "none",
    "number", "sameas", "sequence", "string", "test", "true", "undefined",
))
# fmt: on
# Filters and methods that may create large results from short texts.
# Filters that make as many values as their numeric argument says.
_DIVIDING = frozenset(("batch", "slice"))
# Filters that look up an attribute, or an attribute of an attribute, of each value.
_READING = frozenset(("groupby", "join", "map", "max", "min", "rejectattr", "selectattr", "sort", "sum", "unique"))
_MOST_DECIMALS = 300
_WIDENING = _SIZED | {"format", "format_map", "strftime"}
_SORTING = frozenset(("dictsort", "groupby", "max", "min", "sort", "unique"))
# Functions that hash values. Values with equal hashes (tuples of -1 and -2) are each compared with all the others.
_HASHING = frozenset(("Namespace", "dict", "fromkeys", "unique"))
_HASHED = 16
# Arguments that Jinja itself adds to a call.
_OF_JINJA = frozenset(("_loop_vars", "_block_vars"))
_STRIPPING = frozenset(("strip", "lstrip", "rstrip", "trim"))
_FORMATTING = frozenset(("format", "format_map"))
# Methods that may compare each position of one text with the whole of another text.
_BACKWARD = frozenset(("rfind", "rindex", "rpartition", "rsplit"))
_CODING = frozenset(("decode", "encode"))
# Encodings whose work is proportional to the length of the text. The work of punycode grows with its square.
_ENCODINGS = frozenset(("ascii", "iso8859-1", "utf-8", "utf-16", "utf-32"))
_TURNS, _WEIGHED, _MADE, _JOINED, _KEY = "counted turns", "weighed", "made", "joined", "key"
_DIGITS = re.compile(r"\d+")


class TemplateLimitError(TemplateError):
    """A template needed more work, or created more text, than any conversation requires."""


class _Size(NamedTuple):
    """The size of a value: the characters of its texts, and the number of values in it, itself included."""

    characters: int
    values: int

    @property
    def total(self) -> int:
        return self.characters + 2 * self.values

    @property
    def work(self) -> int:
        return 1 + self.characters // _CHARACTERS + self.values // _VALUES


class _Meter(threading.local):
    """The work of the current rendering in this thread."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._work = self._looked_at = self._charges = 0
        self._output = 0
        self._began_s = time.thread_time()
        # By id. The value is stored too, so that its id is not reused.
        self._sizes: dict[int, tuple[Any, _Size]] = {}

    def charge(self, units: int) -> None:
        self._work += units
        if self._work > MAX_WORK:
            raise TemplateLimitError("it exceeds the limit of operations, possibly by an endless loop")
        self._charges += 1
        if self._work > self._looked_at + _WORK_BETWEEN_LOOKS or self._charges > _CHARGES_BETWEEN_LOOKS:
            self._looked_at, self._charges = self._work, 0
            if time.thread_time() > self._began_s + MAX_SECONDS:
                raise TemplateLimitError(f"it takes more than {MAX_SECONDS:g} s")

    def write(self, value: Any) -> None:
        self._output += len(value) if self.looks_short(value) else self.made(value).characters
        if self._output > MAX_OUTPUT:
            raise TemplateLimitError(f"its output exceeds {MAX_OUTPUT:,} characters")

    def looks_short(self, value: Any) -> bool:
        """Count a short text and return True; return False, without counting, for everything else."""
        if type(value) is str and len(value) < _SHORT:
            self._work += 1 + len(value) // _CHARACTERS
            return True
        return False

    def made(self, value: Any, of: int = 0) -> _Size:
        """Count a value that was just created, and return its size.

        Args:
            value: The value.
            of: Number of values that it was created from; a lazy value yields as many.
        """
        if hasattr(value, "__next__"):
            self._sizes[id(value)] = (value, _Size(0, of))
        size = self.weigh(value)
        self.require(size.total)
        return size

    def weigh(self, value: Any) -> _Size:
        """Count the work of visiting a value and everything in it, and return its size."""
        size, _ = self._walk(value)
        self.charge(size.work)
        return size

    @staticmethod
    def require(size: int) -> None:
        """Refuse a size above `MAX_SIZE`."""
        if size > MAX_SIZE:
            raise TemplateLimitError(f"it builds a value of more than {MAX_SIZE:,} characters or values")

    @staticmethod
    def _require_bits(*numbers: int) -> None:
        if any(number.bit_length() > _MAX_BITS for number in numbers):
            raise TemplateLimitError(f"it computes a number of more than {_MAX_BITS} bits")

    def _walk(self, value: Any) -> tuple[_Size, bool]:
        """Return the size of a value, and True if it may change."""
        kind = _KINDS.get(type(value)) or _kind_of(value)
        if kind is _Kind.TEXT:
            return _Size(len(value), 1), False
        if kind is _Kind.NUMBER:
            self._require_bits(value)
            return _Size(1 + value.bit_length() // 3, 1), False
        if kind is _Kind.RANGE:
            self._require_bits(value.start, value.stop)
            return _Size(0, len(value)), False
        if kind is _Kind.NAMESPACE:
            # Jinja hides the content of a namespace from attribute access.
            held = object.__getattribute__(value, "_Namespace__attrs")
            return self._walk_all([*held, *held.values()])[0], True
        known = self._sizes.get(id(value))
        if known is not None:
            return known[1], False
        if kind is _Kind.OTHER:
            return _Size(10, 1), False
        size, may_change = self._walk_all([*value, *value.values()] if kind is _Kind.MAPPING else [*value])
        if not may_change and kind is not _Kind.VIEW:
            self._sizes[id(value)] = (value, size)
        return size, may_change

    def _walk_all(self, items: list[Any]) -> tuple[_Size, bool]:
        self.charge(_VISIT * len(items))
        characters, values, may_change = 0, 1, False
        for item in items:
            (inner_characters, inner_values), changes = self._walk(item)
            characters += inner_characters
            values += inner_values
            may_change |= changes
            if characters + 2 * values > MAX_SIZE:
                self.require(characters + 2 * values)
        return _Size(characters, values), may_change


class _Kind(Enum):
    TEXT = auto()
    NUMBER = auto()
    RANGE = auto()
    SEQUENCE = auto()
    MAPPING = auto()
    VIEW = auto()
    NAMESPACE = auto()
    OTHER = auto()


_TYPES: tuple[tuple[Any, _Kind], ...] = (
    ((str, bytes), _Kind.TEXT),
    (int, _Kind.NUMBER),
    (range, _Kind.RANGE),
    ((list, tuple, set, frozenset), _Kind.SEQUENCE),
    (Mapping, _Kind.MAPPING),
    ((KeysView, ValuesView, ItemsView), _Kind.VIEW),
    (Namespace, _Kind.NAMESPACE),
)
_SUBJECTS = (str, bytes, int, list, tuple, Mapping)
_KINDS: dict[type, _Kind] = {}


def _kind_of(value: Any) -> _Kind:
    """Return the kind of a value and cache it by type, because the type checks would take most of the time."""
    kind = next((kind for types, kind in _TYPES if isinstance(value, types)), _Kind.OTHER)
    _KINDS[type(value)] = kind
    return kind


class _Turns:
    """The items of a loop, with each iteration counted."""

    def __init__(self, items: Any, meter: _Meter, cost: int) -> None:
        self._items, self._meter, self._cost = items, meter, cost

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            self._meter.charge(self._cost)
            yield item

    def __len__(self) -> int:
        return len(self._items)


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox that counts work. `render` renders its templates."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self, **options: Any) -> None:
        self.meter = _Meter()
        super().__init__(**options, optimized=False, finalize=self._finalized, cache_size=0)
        self.globals.pop("lipsum", None)
        for name in _LEFT_OUT:
            del self.filters[name]
        self._cost = 0

    def from_text(self, source: str) -> Any:
        """Return the template of a source.

        Raises:
            TemplateError: The source is invalid, too long or too deep.
        """
        if len(source) > MAX_SOURCE:
            raise TemplateLimitError(f"it has {len(source):,} characters, above the limit of {MAX_SOURCE:,}")
        self.meter.begin()
        for functions, at_once in ((self.filters, _FILTERS_AT_ONCE), (self.tests, _TESTS_AT_ONCE)):
            given: dict[str, Any] = {name: function for name, function in functions.items() if name not in at_once}
            functions.update({name: self._counted(name, function) for name, function in given.items()})
        self.filters[_TURNS] = self._turns
        self.filters[_WEIGHED] = self._weighed
        self.filters[_MADE] = self._made
        self.filters[_JOINED] = self._joined
        self.filters[_KEY] = _without_tuples
        return self.from_string(source)

    def render(self, template: Any, variables: Mapping[str, Any]) -> str:
        """Return the text that a template writes.

        Raises:
            TemplateLimitError: The template needs too much work, or creates too large values.
        """
        self.meter.begin()
        return str(template.render(**variables))

    # --- hooks that Jinja calls ---------------------------------------------------------------------------------------

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        self._cost = _cost_of(tree)
        _Counting().visit(tree)
        return tree

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  # Jinja's signature
        """Make a template's call and count it."""
        self, obj = __self, __obj
        self.meter.charge(_CALL + _VISIT * (len(args) + len(kwargs)))
        if isinstance(obj, LoopContext | Macro | BlockReference):
            self.meter.charge(_MACRO + self._cost)
            if isinstance(obj, LoopContext) and args:
                args = (self._turns(args[0], self._cost), *args[1:])
        given = {key: value for key, value in kwargs.items() if key not in _OF_JINJA} if kwargs else kwargs
        method = getattr(obj, "__wrapped__", obj)
        subject = getattr(method, "__self__", None)
        if not isinstance(subject, _SUBJECTS):
            subject = ""
        of = self._expect(getattr(method, "__name__", ""), (subject, *args), given)
        result = super().call(__context, __obj, *args, **kwargs)
        if not self.meter.looks_short(result):
            self.meter.made(result, of)
        return result

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute an operator, unless its result would be too large."""
        meter = self.meter
        if operator == "+" and meter.looks_short(left) and meter.looks_short(right):
            return left + right
        sizes = meter.weigh(left).total, meter.weigh(right).total
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length(), right.bit_length()
            expected = bits[0] * max(right, 1) if operator == "**" and bits[1] < 64 else sum(bits)
            if expected > _MAX_BITS or (bits[1] >= 64 and operator == "**"):
                raise TemplateLimitError(f"it computes a number of more than {_MAX_BITS} bits")
        elif operator == "*":
            times = next((one for one in (left, right) if isinstance(one, int)), 1)
            meter.require(max(times, 0) * max(sizes))
        elif operator == "%" and isinstance(left, str | bytes):
            self._expect_format(left, right)
        result = super().call_binop(context, operator, left, right)
        meter.made(result)
        return result

    @pass_context  # otherwise Jinja would call it at compile time for constant expressions
    def _finalized(self, _: Any, value: Any) -> Any:
        self.meter.write(value)
        return value

    # --- counting -----------------------------------------------------------------------------------------------------

    def _turns(self, items: Any, cost: int) -> _Turns:
        return _Turns(items, self.meter, _STEP + cost)

    def _weighed(self, value: Any) -> Any:
        if not self.meter.looks_short(value):
            self.meter.weigh(value)
        return value

    def _made(self, value: Any) -> Any:
        if not self.meter.looks_short(value):
            self.meter.made(value)
        return value

    def _joined(self, values: list[Any]) -> str:
        """Return the values of the operator `~` as one text, unless it would be too large."""
        if not all(map(self.meter.looks_short, values)):
            self.meter.require(sum(self.meter.weigh(value).characters for value in values))
        return str(self._made(str_join(values)))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.meter.charge(_CALL)
            of = self._expect(name, args[skipped:], kwargs)
            result = function(*args, **kwargs)
            if not self.meter.looks_short(result):
                self.meter.made(result, of)
            return result

        return counted

    def _expect(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
        """Count the arguments of a filter, test or method, and refuse the call if its result would be too large.

        Args:
            name: Name of the filter, test or method.
            args: The value it applies to, then its arguments.
            kwargs: Its named arguments.

        Returns:
            The number of values it works on.
        """
        meter = self.meter
        if name in _CODING:
            _require_plain_encoding(*args[1:2], **kwargs)
        if name not in _WIDENING | _BACKWARD and not kwargs and all(map(meter.looks_short, args)):
            return 0
        subject = args[0] if args else None
        given = [*args[1:], *kwargs.values()]
        size, *others = [meter.weigh(one) for one in (subject, *given)]
        longest = max((other.characters for other in others), default=0)
        values = sum(other.values for other in others)
        if name in _HASHING:
            meter.charge(size.values**2 // _HASHED)
        if name in _SORTING:
            meter.charge(5 * size.work)
        elif name in _FORMATTING and isinstance(subject, str):
            self._expect_format(subject, given)
        elif name == "strftime" and given and isinstance(given[0], str):
            self._expect_format(given[0], ())
        elif name == "join":
            meter.require(size.total * (values if isinstance(subject, str | bytes) else 1) + longest * size.values)
            if isinstance(subject, str | bytes):
                meter.require(longest * len(subject))
        elif name == "translate":
            meter.require(size.characters * (1 + longest))
        elif name == "replace":
            meter.require(size.characters + _replaced(subject, given))
        elif name in _STRIPPING or name in _BACKWARD:
            meter.charge(size.characters * longest // _CHARACTERS)
        elif name == "sum" and not all(isinstance(one, int | float | str) for one in given):
            meter.charge(size.values * size.work)  # each partial sum of lists is a new list
        numbers = [abs(one) for one in given if isinstance(one, int | float)] if name in _SIZED else []
        number = max(numbers, default=0)
        if not number <= MAX_SIZE:
            raise TemplateLimitError(f"{name} gets a number above {MAX_SIZE:,}")
        if name == "round" and number > _MOST_DECIMALS:
            raise TemplateLimitError(f"round gets a number above {_MOST_DECIMALS}")
        if name in _READING:
            meter.charge(size.values * longest)
        if name in _DIVIDING:
            meter.charge(_VISIT * int(number))
            values += int(number)
        if name in ("indent", "expandtabs"):
            meter.require(size.characters + _lines(subject) * (int(number) + longest))
        elif name == "tojson":
            meter.charge(size.values)
            meter.require(size.total + size.values * (_depth(subject) * (int(number) + longest) + longest))
        return size.values + values

    def _expect_format(self, text: str | bytes, given: Any) -> None:
        """Refuse a format whose widths or repeated fields would create too long a text."""
        written = text.decode("latin-1") if isinstance(text, bytes) else text
        widths = _DIGITS.findall(written)
        if any(len(width) > _MAX_DIGITS for width in widths):
            raise TemplateLimitError("a format has a number of more than six digits")
        # `!a` writes up to ten characters for one.
        fields = (written.count("%") + written.count("{")) * (10 if "!" in written or "%a" in written else 1)
        total = sum(map(int, widths))
        if "*" in written or re.search(r"\{[^{}]*\{", written):
            total += fields * max((abs(number) for number in _numbers(given)), default=0)
        self.meter.require((total + fields * self.meter.weigh(given).total) // _FIELDS)


def _require_plain_encoding(encoding: Any = "utf-8", **_: Any) -> None:
    try:
        known = codecs.lookup(encoding).name
    except (LookupError, TypeError, ValueError):
        return  # the call itself reports the error
    if known not in _ENCODINGS:
        raise TemplateLimitError(f"it uses the encoding {known}; only {', '.join(sorted(_ENCODINGS))} are available")


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _numbers(item)


def _replaced(subject: Any, given: list[Any]) -> int:
    """Return the maximum number of characters that a replacement adds to a text."""
    if len(given) < 2 or not isinstance(subject, str | bytes):
        return 0
    old, new = given[0], given[1]
    same = type(subject) is type(old) or (isinstance(subject, str) and isinstance(old, str))
    count = subject.count(old) if same else len(subject) + 1
    return int(count * (len(new) if hasattr(new, "__len__") else 20))


def _lines(subject: Any) -> int:
    return 1 + len(subject.splitlines()) + subject.count("\t") if isinstance(subject, str) else 1


def _depth(value: Any) -> int:
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return 1 + max(map(_depth, items), default=0)


class _Counting(NodeTransformer):
    """Transformer that adds counting filters around expressions that Jinja compiles to plain Python."""

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Expr:  # noqa: N802
        return nodes.Const(node.data, lineno=node.lineno)  # text of the template is output too

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        cost = _cost_of(node)
        self.generic_visit(node)
        node.iter = _filtered(node.iter, _TURNS, nodes.Const(cost))
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:  # noqa: N802
        self.generic_visit(node)
        node.expr = _filtered(node.expr, _WEIGHED)
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, _WEIGHED)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), _JOINED)

    def visit_List(self, node: nodes.List) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, _MADE)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        for pair in node.items:
            pair.key = _as_key(pair.key)
        return _filtered(node, _MADE)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, _MADE) if node.ctx == "load" else node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            return _filtered(node, _MADE)
        node.arg = _as_key(node.arg)
        return node


def _filtered(node: Any, name: str, *args: nodes.Expr) -> nodes.Expr:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


def _as_key(node: Any) -> Any:
    return node if isinstance(node, nodes.Const) else _filtered(node, _KEY)


def _without_tuples(key: Any) -> Any:
    """Return a key; refuse a tuple, of which each lookup computes the hash again."""
    if isinstance(key, tuple):
        raise TemplateLimitError("it has a tuple as a key; only texts and numbers can be keys")
    return key


def _cost_of(node: nodes.Node) -> int:
    """Return the work of executing a part of a template once, without its calls."""
    characters = sum(len(one.data) for one in node.find_all(nodes.TemplateData))
    return sum(1 for _ in node.find_all(nodes.Node)) // 2 + characters // _CHARACTERS
