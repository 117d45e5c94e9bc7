"""Standard library names that tests may use without importing them, because programs import them.

The tests' process uses its own objects for these names. A program that rebinds one has no effect on the tests.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Modules that are always available by name. Every other standard library module is available if a test uses one of its
# attributes.
TEST_MODULES = frozenset(
    {
        "cmath",
        "collections",
        "datetime",
        "decimal",
        "fractions",
        "functools",
        "heapq",
        "itertools",
        "json",
        "math",
        "os",
    }
    | {"random", "re", "statistics", "sys", "typing", "unittest"}
)
# Names that tests use without the module's name, by module. Names that programs often give their own functions, such as
# `add` and `count`, are left out.
_NAMES = {
    "abc": "ABC abstractmethod",
    "bisect": "bisect bisect_left bisect_right insort",
    "collections": "ChainMap Counter OrderedDict defaultdict deque namedtuple",
    "contextlib": "redirect_stdout suppress",
    "copy": "copy deepcopy",
    "dataclasses": "asdict astuple dataclass",
    "datetime": "date datetime time timedelta timezone",
    "decimal": "Decimal getcontext",
    "enum": "Enum IntEnum",
    "fractions": "Fraction",
    "functools": "cmp_to_key lru_cache partial reduce",
    "heapq": "heapify heappop heappush nlargest nsmallest",
    "io": "BytesIO StringIO",
    "itertools": "accumulate chain combinations combinations_with_replacement groupby islice permutations product"
    " starmap zip_longest",
    "json": "dumps loads",
    "math": "acos asin atan atan2 ceil comb copysign cos degrees e exp fabs factorial floor fsum gcd hypot inf isclose"
    " isfinite isinf isnan isqrt lcm log log10 log2 nan perm pi prod radians sin sqrt tan tau trunc",
    "operator": "attrgetter itemgetter methodcaller",
    "random": "choice randint randrange sample shuffle uniform",
    "statistics": "mean median mode pstdev pvariance stdev variance",
    "string": "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits punctuation",
    "sys": "maxsize",
    "types": "SimpleNamespace",
    "typing": "Any Callable Dict Iterable Iterator List Optional Sequence Set Tuple Union",
    "unittest": "TestCase",
    "unittest.mock": "ANY MagicMock Mock call patch",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}


def is_library(name: str, value: Any) -> bool:
    """Return True if a program's name has the library's own value: the module, or the object listed in `_NAMES`."""
    if name in sys.stdlib_module_names and value is sys.modules.get(name):
        return True
    module = sys.modules.get(_MODULE_OF.get(name, ""))
    return module is not None and getattr(module, name, None) is value


def is_known(name: str) -> bool:
    """Return True if the name can refer to something in the library."""
    return name in _MODULE_OF or name in sys.stdlib_module_names


def find(name: str, uses: set[str]) -> tuple[Any, bool]:
    """Return the library object that a name refers to in tests, or None; and True if it is a module.

    Args:
        name: A name that the tests do not define.
        uses: Attributes that the tests read from it, and `__call__` if they call it. `datetime` is the module
            if `datetime.date` is read, and the class if it is called.
    """
    module = _import(name) if name in sys.stdlib_module_names else None
    place = _MODULE_OF.get(name)
    value = getattr(_import(place), name, None) if place else None
    fits = sum(hasattr(module, use) or _import(f"{name}.{use}") is not None for use in uses) if module else 0
    if value is not None and (not uses or sum(hasattr(value, use) for use in uses) > fits):
        return value, False
    return (module, True) if fits or (name in TEST_MODULES and not uses) else (None, False)


def _import(name: str) -> Any:
    try:
        __import__(name)
    except Exception:  # the module is for another system, or missing here
        return None
    return sys.modules[name]
