"""Equality of two relations, which are equal if they have the same solutions, and expansion of `±`."""

import math
from fractions import Fraction
from itertools import product as cartesian
from typing import Any

from agent_tunix.rewards.answers.evaluation import (
    REAL_POINTS,
    UndefinedError,
    are_equal,
    is_real_only,
    rational_at,
    symbols,
    value_at,
)
from agent_tunix.rewards.answers.scalars import all_true, compare_scalars
from agent_tunix.rewards.answers.tree import Node, constant, negative, replaced, walk
from agent_tunix.rewards.answers.work import charge, remembered

FLIPPED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤"}
# Values of an unknown at which a factor of an equation may vanish.
_SIMPLE = (*range(-5, 6), Fraction(1, 2), Fraction(-1, 2))
# Of an expression at a root and beside it.
_LARGEST_RATIO = 1e-15
Pair = tuple[Node, str, Node]


def compare_differences(answer: Pair, true: Pair) -> bool | None:
    """Compare `left - right` of two relations: one must be a multiple of the other, for inequalities a positive one."""
    one = Node("sum", (answer[0], negative(answer[2])))
    other = Node("sum", (true[0], negative(true[2])))
    if not symbols(one) and not symbols(other):
        if true[1] != "=":
            return None
        return all_true([compare_scalars(answer[0], true[0]), compare_scalars(answer[2], true[2])])
    if symbols(one) != symbols(other):
        return False
    ratio = _constant_ratio(one, other)
    if ratio is not None:
        return ratio > 0 if true[1] in FLIPPED else True
    if true[1] in FLIPPED:
        return False
    return _solves(answer, other) or _solves(true, one)


def _constant_ratio(one: Node, other: Node) -> float | None:
    """Return the constant ratio of two expressions, or None if there is none."""
    try:
        exact = [(rational_at(one, number), rational_at(other, number)) for number in range(4)]
    except UndefinedError:  # an expression is undefined at a point, so real values decide
        exact = []
    if exact and all(first is not None and second for first, second in exact):
        ratios = {first / second for first, second in exact if first is not None and second}
        return float(ratios.pop()) if len(ratios) == 1 and 0 not in ratios else None
    numbers = [(value_at(one, number, True), value_at(other, number, True)) for number in range(8)]
    numbers_known = [(first.number, second.number) for first, second in numbers if first and second and second.number]
    if len(numbers_known) < 2:
        return None
    first_ratio = numbers_known[0][0] / numbers_known[0][1]
    if not first_ratio or any(abs(x / y - first_ratio) > abs(first_ratio) * 1e-20 for x, y in numbers_known):
        return None
    return float(first_ratio.real)


def _solves(pair: Pair, other: Node) -> bool:
    """Return True if `y = …` solves another equation that is linear in y."""
    for subject, value in ((pair[0], pair[2]), (pair[2], pair[0])):
        if subject.kind != "symbol" or subject.args[0] in symbols(value):
            continue
        parts = _linear_parts(other, subject)
        beside = Node("sum", (value, constant(1)))
        if parts and _is_root(replaced(other, subject, value), replaced(other, subject, beside)):
            return not _vanish_together(*parts)
    return False


def _linear_parts(node: Node, y: Node) -> tuple[Node, Node] | None:
    """Return a and b of an expression that is written as `a y + b`; None if y is in a function, a power or a divisor.

    In such an expression the value of y does not decide whether it is defined.
    """
    charge(1)
    if node == y:
        return constant(1), constant(0)
    if y.args[0] not in symbols(node):
        return constant(0), node
    if node.kind == "negative" and (parts := _linear_parts(node.args[0], y)):
        return negative(parts[0]), negative(parts[1])
    if node.kind == "quotient" and y.args[0] not in symbols(node.args[1]) and (parts := _linear_parts(node.args[0], y)):
        return Node("quotient", (parts[0], node.args[1])), Node("quotient", (parts[1], node.args[1]))
    if node.kind == "sum":
        terms = [_linear_parts(term, y) for term in node.args]
        known_terms = [term for term in terms if term is not None]
        if len(known_terms) == len(terms):
            return Node("sum", tuple(term[0] for term in known_terms)), Node(
                "sum", tuple(term[1] for term in known_terms)
            )
    if node.kind == "product":
        places = [place for place, factor in enumerate(node.args) if y.args[0] in symbols(factor)]
        if len(places) == 1 and (parts := _linear_parts(node.args[places[0]], y)):
            before, after = node.args[: places[0]], node.args[places[0] + 1 :]
            return Node("product", (*before, parts[0], *after)), Node("product", (*before, parts[1], *after))
    return None


def _is_root(here: Node, beside: Node) -> bool:
    """Return True if one expression is 0 at random points, and another, defined at the same points, nowhere there.

    What counts as 0 is relative to the other value, because an answer may choose both as small as it likes.
    """
    agreed = 0
    for number in range(5):
        try:
            values = rational_at(here, number), rational_at(beside, number)
        except UndefinedError:
            continue
        if None in values:
            break
        if values[0] or not values[1]:
            return False
        agreed += 1
        if agreed == 3:
            return True
    for real, points in ((False, 3), (True, REAL_POINTS)):
        if real or not is_real_only(here):
            verdicts = [_is_root_at(here, beside, number, real) for number in range(points)]
            if False not in verdicts and verdicts.count(True) >= 2:
                return True
    return False


def _is_root_at(here: Node, beside: Node, number: int, real: bool) -> bool | None:
    value, other = value_at(here, number, real), value_at(beside, number, real)
    if value is None and other is None:
        return None
    if value is None or other is None:
        return False
    slope = abs(other.number - value.number)
    if max(value.error, other.error) > _LARGEST_RATIO * slope:
        return None if slope else False
    return bool(abs(value.number) <= _LARGEST_RATIO * slope)


def _vanish_together(slope: Node, rest: Node) -> bool:
    """Return True if `slope · y + rest = 0` holds for every y at a simple point, as `x · y = x` does at x = 0."""
    for name in symbols(slope):
        unknown = Node("symbol", (name,))
        for value in _SIMPLE:
            there = [replaced(part, unknown, constant(value)) for part in (slope, rest)]
            if all(are_equal(part, constant(0)) for part in there):
                return True
    return False


_MOST_ITEMS = 64


@remembered(4096)
def expanded(node: Node) -> Node:
    """Expand `±`: `1 ± √2` becomes the list of `1 + √2` and `1 - √2`."""
    if not _has_plusminus(node):
        return node
    if node.kind in ("list", "set"):
        items: list[Node] = []
        for item in node.args:
            if isinstance(item, Node):
                inner = expanded(item)
                items += inner.args[1:] if inner.kind == "list" else [inner]
        return Node("set", tuple(items)) if node.kind == "set" else Node("list", (node.args[0], *items))
    if node.kind == "relation" and not any(_has_plusminus(operand) for operand in node.args[2:]):
        return node  # `a ± b = (1, 2)` names an interval
    if node.kind == "relation" and node.args[0] == ("=",):
        right = expanded(node.args[2])
        values = right.args[1:] if right.kind == "list" else (right,)
        return Node("list", (",", *(Node("relation", (("=",), node.args[1], value)) for value in values)))
    if node.kind == "bracket":
        parts = [expanded(part) for part in node.args[1:]]
        choices = [part.args[1:] if part.kind == "list" else (part,) for part in parts]
        if math.prod(map(len, choices)) > _MOST_ITEMS:
            return node
        return Node("list", (",", *(Node("bracket", (node.args[0], *choice)) for choice in cartesian(*choices))))
    return Node("list", (",", _signed(node, 1), _signed(node, -1)))


def _has_plusminus(node: Node) -> bool:
    signs = []
    walk(node, lambda part: signs.append(part) if part.kind == "plusminus" else None)
    return bool(signs)


def _signed(node: Node, sign: int) -> Node:
    if node.kind == "plusminus":
        inner = _signed(node.args[0], sign)
        return inner if node.args[1] * sign > 0 else negative(inner)
    return Node(node.kind, tuple(_signed_part(part, sign) for part in node.args))


def _signed_part(part: Any, sign: int) -> Any:
    if isinstance(part, Node):
        return _signed(part, sign)
    return tuple(_signed_part(inner, sign) for inner in part) if isinstance(part, tuple) else part
