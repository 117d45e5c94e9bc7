"""Limit on the work of one comparison, so that no answer of a model keeps the process busy.

Work is counted in units of about a microsecond instead of measured, so that an answer has the same score on every
machine. What a cache remembers counts as if it were computed again, so the score does not depend on earlier answers.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

# Equal answers in the tests need up to 7,000.
MOST_UNITS = 100_000
# A cache is emptied when its entries took more work than this, because work is a measure of their size: the trees of
# long answers would take gigabytes.
_MOST_REMEMBERED_UNITS = 500_000
_LONGEST_SHORT = 200

P = ParamSpec("P")
T = TypeVar("T")


class TooMuchWorkError(Exception):
    """A comparison exceeds its limit. Only `limited` handles it: nothing else may draw a conclusion from it."""


class _Counter(threading.local):
    units = 0
    most: float = float("inf")


_counter = _Counter()


def charge(units: int) -> None:
    """Count work of this thread; raise TooMuchWorkError if it exceeds the limit."""
    _counter.units += units
    if _counter.units > _counter.most:
        raise TooMuchWorkError


def charge_number(bits: int) -> None:
    """Count an operation on a number of this many bits, whose time grows with their square."""
    charge(1 + bits * bits // 500_000)


def limited(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Return what a function returns; None if its work exceeds the limit, or its calls Python's."""
    outside = _counter.units, _counter.most
    _counter.units, _counter.most = 0, MOST_UNITS
    try:
        return function(*args, **kwargs)
    except (TooMuchWorkError, RecursionError):
        return None
    finally:
        _counter.units, _counter.most = outside


def remembered(maxsize: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return `functools.lru_cache`, which also remembers and counts the work of what it remembers."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        total = 0

        @functools.lru_cache(maxsize)
        def measured(*args: Any) -> tuple[T, int]:
            nonlocal total
            before = _counter.units
            result = function(*args)  # type: ignore[call-arg]
            units = _counter.units - before
            total += units
            return result, units

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            nonlocal total
            if total > _MOST_REMEMBERED_UNITS:
                measured.cache_clear()
                total = 0
            before = _counter.units
            result, units = measured(*args, **kwargs)  # type: ignore[arg-type]
            _counter.units = before
            charge(units)
            return result

        return call

    return decorate


def remembered_by_length(function: Callable[P, T]) -> Callable[P, T]:
    """Return `functools.lru_cache` for a function whose first argument is a text, with few entries for long texts."""
    short, long = (functools.lru_cache(maxsize)(function) for maxsize in (4096, 64))

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        cache = short if len(args[0]) <= _LONGEST_SHORT else long  # type: ignore[arg-type]
        return cache(*args, **kwargs)  # type: ignore[arg-type]

    return call
