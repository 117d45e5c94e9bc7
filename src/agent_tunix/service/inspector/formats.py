"""Template filters that format numbers and times."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

MINUS = "\N{MINUS SIGN}"
NONE = "\N{EN DASH}"
_LARGEST = 1e300


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with at most `digits` decimals; tiny and huge ones in scientific notation.

    >>> number(0.25), number(-1234.5678), number(None), number(0.00001234), number(12)
    ('0.25', '−1234.568', '–', '1.23e-05', '12')
    """
    if value is None or not -_LARGEST < value < _LARGEST:  # False for NaN and for integers beyond floats
        return NONE
    size = abs(value)
    if size and (size < 0.5 * 10**-digits or size >= 1e7):
        return f"{value:.3g}".replace("-", MINUS, 1) if value < 0 else f"{value:.3g}"
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"
    return "0" if text == "-0" else text.replace("-", MINUS)


def signed(value: float | None, digits: int = 3) -> str:
    """Return a number like `number`, with a `+` if it is positive.

    >>> signed(0.5), signed(0), signed(-0.5)
    ('+0.5', '0', '−0.5')
    """
    return f"+{number(value, digits)}" if value is not None and value > 0 else number(value, digits)


def percent(value: float | None) -> str:
    r"""Return a share as a percentage.

    >>> percent(0.125)
    '12.5\xa0%'
    """
    return NONE if value is None else f"{number(100 * value, 1)}\N{NO-BREAK SPACE}%"


def count(value: int | None) -> str:
    """Return an integer with thousands separators.

    >>> count(1000000)
    '1,000,000'
    """
    return NONE if value is None else f"{value:,}"


def moment(value: datetime | float) -> str:
    """Return a datetime or Unix time to the minute, in UTC.

    >>> moment(0)
    '1970-01-01 00:00 UTC'
    """
    return _time(value).strftime("%Y-%m-%d %H:%M UTC")


def iso(value: datetime | float) -> str:
    """Return a datetime or Unix time in ISO 8601, in UTC.

    >>> iso(0)
    '1970-01-01T00:00:00Z'
    """
    return _time(value).strftime("%Y-%m-%dT%H:%M:%SZ")


def words(value: str) -> str:
    """Return an identifier as words.

    >>> words("dead_groups")
    'dead groups'
    """
    return value.replace("_", " ")


def _time(value: datetime | float) -> datetime:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return datetime.fromtimestamp(min(max(value, 0), _LAST_SECOND), UTC)


_LAST_SECOND = 253_402_300_799  # of the year 9999, the last that a datetime can have


FILTERS: dict[str, Callable[..., Any]] = {
    "count": count,
    "iso": iso,
    "moment": moment,
    "number": number,
    "percent": percent,
    "signed": signed,
    "words": words,
}
