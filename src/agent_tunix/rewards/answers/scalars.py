"""Equality of single values: numbers, expressions, quantities and ratios."""

import re
from collections.abc import Sequence
from fractions import Fraction

from agent_tunix.rewards.answers.evaluation import are_equal, has_values, number_of, rational, symbols
from agent_tunix.rewards.answers.tree import Node, constant

_FEWEST_DIGITS = 6
SCALARS = frozenset(
    [
        "number",
        "symbol",
        "sum",
        "negative",
        "product",
        "quotient",
        "power",
        "call",
        "percent",
        "degrees",
        "quantity",
        "based",
    ]
)
# Names of units, each with its usual name.
UNITS = {
    **dict.fromkeys(("m", "meter", "meters", "metre", "metres"), "m"),
    **dict.fromkeys(("cm", "centimeter", "centimeters"), "cm"),
    **dict.fromkeys(("mm", "millimeter", "millimeters"), "mm"),
    **dict.fromkeys(("km", "kilometer", "kilometers"), "km"),
    **dict.fromkeys(("kg", "kilogram", "kilograms"), "kg"),
    **dict.fromkeys(("g", "gram", "grams"), "g"),
    **dict.fromkeys(("mg", "milligram", "milligrams"), "mg"),
    **dict.fromkeys(("ft", "foot", "feet"), "ft"),
    **dict.fromkeys(("in", "inch", "inches"), "in"),
    **dict.fromkeys(("yd", "yard", "yards"), "yd"),
    **dict.fromkeys(("mi", "mile", "miles"), "mi"),
    **dict.fromkeys(("s", "sec", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "day"),
    **dict.fromkeys(("week", "weeks"), "week"),
    **dict.fromkeys(("year", "years"), "year"),
    **dict.fromkeys(("cent", "cents"), "cent"),
    **dict.fromkeys(("dollar", "dollars"), "dollar"),
    **dict.fromkeys(("ml", "mL"), "mL"),
    **dict.fromkeys(("l", "L", "liter", "liters", "litre", "litres"), "L"),
}
_UNIT_NAME = re.compile(r"[A-Za-z]+")


def compare_scalars(given: Node, true: Node) -> bool | None:
    """Compare two numbers, quantities or expressions."""
    if "based" in (given.kind, true.kind):
        return given == true
    if not same_units(given, true):
        return False
    given, true = bare(given), bare(true)
    percents = given.kind == "percent", true.kind == "percent"
    if percents[0] != percents[1]:
        inner = given.args[0] if percents[0] else true.args[0]
        if are_equal(inner, true if percents[0] else given):
            return True
    elif percents[0]:
        given, true = given.args[0], true.args[0]
    equal = are_equal(given, true)
    if equal is False and _is_rounded(given, true):
        return True
    return equal


def bare(node: Node) -> Node:
    """Return a value without its unit or degree sign."""
    while node.kind in ("quantity", "degrees"):
        node = node.args[0]
    return node


def same_units(given: Node, true: Node) -> bool:
    """Return False for quantities with units that differ."""
    return given.kind != "quantity" or true.kind != "quantity" or not units_differ(given.args[1], true.args[1])


def units_differ(given: str, true: str) -> bool:
    """Return True if two units differ. An unknown name differs only from a known one, if either is a letter."""
    names = [_UNIT_NAME.findall(unit) for unit in (given, true)]
    if all(name in UNITS for name in (*names[0], *names[1])):
        one, other = (_UNIT_NAME.sub(lambda found: UNITS[found[0]], unit) for unit in (given, true))
        return one != other
    return len(names[0]) == len(names[1]) and any(map(_names_differ, *names))


def _names_differ(given: str, true: str) -> bool:
    known = [name for name in (given, true) if name in UNITS]
    if len(known) == 2:
        return UNITS[given] != UNITS[true]
    return len(known) == 1 and min(len(given), len(true)) == 1


def _is_rounded(given: Node, true: Node) -> bool:
    """Return True if one is a decimal of at least six digits and the other an irrational number that it rounds."""
    if symbols(given) or symbols(true):
        return False
    for decimal, other in ((given, true), (true, given)):
        digits = _decimals(decimal)
        if digits is None or rational(other) is not None:
            continue
        value = number_of(other)
        exact = rational(decimal)
        if value is None or exact is None:
            continue
        return bool(abs(value * 10**digits - exact.numerator * 10**digits / exact.denominator) < 0.6)
    return False


def _decimals(node: Node) -> int | None:
    """Return the number of digits after the point of a decimal, or None if it has too few to identify a number."""
    node = node.args[0] if node.kind == "negative" else node
    if node.kind != "number" or not node.args[1]:
        return None
    value: Fraction = node.args[0]
    digits: int = node.args[1]
    significant = len(str(abs(int(value * 10**digits))))
    return digits if digits >= _FEWEST_DIGITS or significant >= _FEWEST_DIGITS else None


def compare_ratios(given: Node, true: Node) -> bool | None:
    """Compare two ratios, or a ratio with a fraction."""
    if given.kind != true.kind:
        ratio, other = (given, true) if given.kind == "ratio" else (true, given)
        if len(ratio.args) == 2 and other.kind in SCALARS:
            return are_equal(Node("quotient", ratio.args), bare(other))
        return False
    if len(given.args) != len(true.args):
        return False
    first = [are_equal(one, other) for one, other in zip(given.args, true.args, strict=True)]
    if all(first):
        return True
    if any(_is_zero(part) for part in (*given.args, *true.args)):
        return all_true(first)
    if not all(has_values(part, Node("product", true.args)) for part in given.args):
        return False
    pairs = zip(given.args[1:], true.args[1:], strict=True)
    crossed = [
        are_equal(Node("product", (given.args[0], other)), Node("product", (true.args[0], one))) for one, other in pairs
    ]
    return all_true(crossed)


def _is_zero(node: Node) -> bool:
    return are_equal(node, constant(0)) is not False


def all_true(verdicts: Sequence[bool | None]) -> bool | None:
    """Return False if a verdict is False, else None if one is None, else True."""
    if False in verdicts:
        return False
    return None if None in verdicts else True
