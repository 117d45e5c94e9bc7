"""Equality of single values: numbers, expressions, quantities and ratios."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from agent_tunix.rewards.answers.evaluation import are_equal, has_values, number_of, rational, symbols
from agent_tunix.rewards.answers.tree import BOUND_NAME, Node, constant
from agent_tunix.rewards.answers.units import parse_unit, units_differ

_FEWEST_DIGITS = 6
# Digits that Python prints of a float that is not a short decimal, and the largest relative error of a few operations.
_FLOAT_DIGITS = 16
_LARGEST_FLOAT_ERROR = Fraction(1, 10**14)
# Words beside an unknown that are no unit.
_PROPERTIES = frozenset(
    ("even", "odd", "prime", "composite", "positive", "negative", "integer", "rational", "irrational", "not")
)
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
        "operator",
    ]
)


def compare_scalars(answer: Node, true: Node) -> bool | None:
    """Compare two numbers, quantities or expressions."""
    if _is_based(answer) or _is_based(true):
        return _based_value(answer) == _based_value(true) is not None
    if any(not name.startswith(BOUND_NAME) for name in symbols(answer) - symbols(true)):
        return False  # an unknown stands beside the answer
    if answer.kind == true.kind == "operator" and answer.args[0] == true.args[0]:
        return _compare_operators(answer, true)
    if not same_units(answer, true):
        return False
    answer, true = bare(answer), bare(true)
    percents = answer.kind == "percent", true.kind == "percent"
    if percents[0] != percents[1]:
        inner = answer.args[0] if percents[0] else true.args[0]
        if are_equal(inner, true if percents[0] else answer):
            return True
    elif percents[0]:
        answer, true = answer.args[0], true.args[0]
    equal = are_equal(answer, true)
    if equal is False and _is_rounded(answer, true):
        return True
    return False if equal is None and _has_power_of_zero(answer) else equal


def _compare_operators(answer: Node, true: Node) -> bool | None:
    """Return True for sums, products or integrals with the same bounds and the same terms; None for all others."""
    if len(answer.args) != len(true.args):
        return None
    pairs = zip(answer.args[1:], true.args[1:], strict=True)
    return all(one == other or compare_scalars(one, other) is True for one, other in pairs) or None


def _has_power_of_zero(node: Node) -> bool:
    """Return True if a power of zero with an unknown exponent stands in a value, which has no value then."""
    if node.kind == "power" and symbols(node.args[1]) and are_equal(node.args[0], constant(0)):
        return True
    return any(_has_power_of_zero(part) for part in node.args if isinstance(part, Node))


def is_number(node: Node) -> bool:
    """Return True for a number, and for several, as written: not for `2 + 3`, `2^3` or `√2`."""
    if node.kind == "relation":
        return node.args[0] == ("=",) and node.args[1].kind == "symbol" and is_number(node.args[2])
    if node.kind in ("quantity", "negative", "percent", "degrees"):
        return is_number(node.args[0])
    if node.kind in ("list", "bracket", "set", "quotient", "ratio"):
        return all(is_number(part) for part in node.args if isinstance(part, Node))
    return node.kind == "number" or _is_scientific(node)


def is_evaluated(node: Node) -> bool:
    """Return True if a value has no sum and no product, except a number times a power of ten: `3·10^4`."""
    if node.kind == "relation":
        result = result_of(node)
        if symbols(result):  # 7 = xy
            result = next((part for part in reversed(node.args[1:]) if not symbols(part)), result)
        return is_evaluated(result)
    if node.kind == "sum" or (node.kind == "product" and not _is_scientific(node)):
        return False
    return all(is_evaluated(part) for part in node.args if isinstance(part, Node))


def _is_scientific(node: Node) -> bool:
    if node.kind != "product" or len(node.args) != 2:
        return False
    number, power = node.args
    return is_number(number) and power.kind == "power" and power.args[0] == constant(10) and is_number(power.args[1])


def result_of(relation: Node) -> Node:
    """Return the result of a calculation, before rounding."""
    operators, *operands = relation.args
    place = len(operators)
    while place > 1 and operators[place - 1] == "≈":
        place -= 1
    result: Node = operands[place]
    return result


def _is_based(node: Node) -> bool:
    """Return True if a number with a base is part of a value."""
    return node.kind == "based" or any(_is_based(part) for part in node.args if isinstance(part, Node))


def _based_value(node: Node) -> int | None:
    """Return the value of a number with its base, and a sign if any; None for others."""
    if node.kind == "negative":
        value = _based_value(node.args[0])
        return None if value is None else -value
    return number_in_base(*node.args) if node.kind == "based" else None


def number_in_base(digits: str, base: int) -> int | None:
    """Return the value of digits in a base; None if a digit does not exist in it."""
    try:
        return int(digits, base)
    except ValueError:
        return None


def bare(node: Node) -> Node:
    """Return a value without its unit or degree sign."""
    while node.kind in ("quantity", "degrees"):
        node = node.args[0]
    return node


def same_units(answer: Node, true: Node) -> bool:
    """Return False for quantities with units that differ, and for an unknown with other properties: `n odd`."""
    if _properties(answer) != _properties(true):
        return False
    units = [parse_unit(node.args[1]) if node.kind == "quantity" else None for node in (answer, true)]
    return not units_differ(*units)


def _properties(node: Node) -> frozenset[str]:
    if node.kind != "quantity" or node.args[0].kind != "symbol":
        return frozenset()
    return _PROPERTIES.intersection(node.args[1].lower().split())


def is_float_of(decimal: Fraction, value: Fraction) -> bool:
    """Return True if a decimal has all digits that Python prints of a float, and equals a value up to rounding errors.

    >>> is_float_of(Fraction("0.30000000000000004"), Fraction("0.3")), is_float_of(Fraction("0.3333"), Fraction(1, 3))
    (True, False)
    """
    if decimal.denominator == 1 or abs(decimal - value) > _LARGEST_FLOAT_ERROR * abs(value):
        return False
    try:
        printed = repr(float(decimal))
    except OverflowError:
        return False
    digits = printed.partition("e")[0].replace(".", "").strip("-0")
    return len(digits) >= _FLOAT_DIGITS and Fraction(printed) == decimal


def _is_rounded(answer: Node, true: Node) -> bool:
    """Return True if one is a decimal and the other a number that it rounds.

    A decimal with at least six digits rounds an irrational number, and a float any number.
    """
    if symbols(answer) or symbols(true):
        return False
    for decimal, other in ((answer, true), (true, answer)):
        exact = rational(decimal) if _decimals(decimal) is not None else None
        if exact is None:
            continue
        value = rational(other)
        if value is not None:
            if is_float_of(exact, value):
                return True
            continue
        approximate = number_of(other)
        if approximate is not None:
            return _rounds(exact, _decimals(decimal) or 0, approximate)
    return False


def _rounds(decimal: Fraction, digits: int, value: Any) -> bool:
    """Return True if a decimal with so many digits after the point rounds an irrational value of mpmath."""
    off = abs(value * decimal.denominator - decimal.numerator)
    if off * 10**digits * 5 < decimal.denominator * 3:
        return True
    near = Fraction(int(value * 10**30), 10**30)
    return is_float_of(decimal, near)


def _decimals(node: Node) -> int | None:
    """Return the number of digits after the point of a decimal, or None if it has too few to identify a number."""
    node = node.args[0] if node.kind == "negative" else node
    if node.kind != "number" or not node.args[1]:
        return None
    value: Fraction = node.args[0]
    digits: int = node.args[1]
    significant = len(str(abs(int(value * 10**digits))))
    return digits if digits >= _FEWEST_DIGITS or significant >= _FEWEST_DIGITS else None


def compare_ratios(answer: Node, true: Node) -> bool | None:
    """Compare two ratios, or a ratio with a fraction."""
    if answer.kind != true.kind:
        ratio, other = (answer, true) if answer.kind == "ratio" else (true, answer)
        if len(ratio.args) == 2 and other.kind in SCALARS:
            return are_equal(Node("quotient", ratio.args), bare(other))
        return False
    if len(answer.args) != len(true.args) or not all(map(same_units, answer.args, true.args)):
        return False
    first = [are_equal(one, other) for one, other in zip(answer.args, true.args, strict=True)]
    if all(first):
        return True
    if any(_is_zero(part) for part in (*answer.args, *true.args)):
        return all_true(first)
    if not all(has_values(part, Node("product", true.args)) for part in answer.args):
        return False
    pairs = zip(answer.args[1:], true.args[1:], strict=True)
    crossed = [
        are_equal(Node("product", (answer.args[0], other)), Node("product", (true.args[0], one)))
        for one, other in pairs
    ]
    return all_true(crossed)


def _is_zero(node: Node) -> bool:
    return are_equal(node, constant(0)) is not False


def all_true(verdicts: Sequence[bool | None]) -> bool | None:
    """Return False if a verdict is False, else None if one is None, else True."""
    if False in verdicts:
        return False
    return None if None in verdicts else True
