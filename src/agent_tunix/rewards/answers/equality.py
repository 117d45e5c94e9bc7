r"""Equality of two answers that the grammar has read: by their structure, and of expressions by evaluation.

- Collections are compared part by part: tuples and matrices in order, lists and sets in any order.
- Inequalities in one unknown, intervals and unions of them are compared as sets of real numbers.
- Equations are equal if one is a constant multiple of the other, or if what one solves for solves the other.
- `x = 5` and `5` are the same answer; `x = 5` and `y = 5` are not.
- A decimal equals an irrational number if it gives six digits after the point, or six in all, and they are right.
"""

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import product as cartesian

from agent_tunix.rewards.answers.evaluation import (
    UndefinedError,
    are_equal,
    functions,
    number_of,
    rational,
    rational_at,
    symbols,
    value_at,
)
from agent_tunix.rewards.answers.grammar import Node, negative, walk
from agent_tunix.rewards.answers.matrices import folded
from agent_tunix.rewards.answers.sets import possible_set, real_set, same_set

_MOST_ITEMS = 64
_FEWEST_DIGITS = 6
_SCALARS = frozenset(
    ("number", "symbol", "sum", "negative", "product", "quotient", "power", "call", "percent", "degrees", "quantity")
) | {"based"}
_ONE_WAY = frozenset(("→", "~", "≡", "⊥", "∥", "⊂", "⊆", "∝"))
_FLIPPED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤"}
# Names of units, and the one that they mean.
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


@lru_cache(maxsize=8192)
def compare(given: Node, true: Node) -> bool | None:
    """Compare an answer with the reference.

    Returns:
        True if they are equal, False if they are different, None if neither is found out.
    """
    if given == true:
        return True
    given, true = folded(_expanded(given)), folded(_expanded(true))
    if given == true:
        return True
    for one, other in ((real_set, possible_set), (possible_set, real_set)):
        sets = one(true), other(given)
        if sets[0] is not None and sets[1] is not None:
            return same_set(sets[0], sets[1]) and _same_subjects(given, true)
    if true.kind == "relation" or given.kind == "relation":
        return _compare_relations(given, true)
    if true.kind in ("list", "set") or given.kind in ("list", "set"):
        return _compare_collections(given, true)
    return _compare_values(given, true)


def _compare_values(given: Node, true: Node) -> bool | None:
    if true.kind == "based" or given.kind == "based":
        return False
    if true.kind in _SCALARS and given.kind in _SCALARS:
        return _compare_scalars(given, true)
    if "ratio" in (given.kind, true.kind):
        return _compare_ratios(given, true)
    given, true = _as_vector(given, true), _as_vector(true, given)
    if given.kind != true.kind:
        return False
    if true.kind == "bracket":
        if given.args[0] != true.args[0]:
            return False
        return _in_order(given.args[1:], true.args[1:])
    if true.kind == "matrix":
        if [len(row) for row in given.args] != [len(row) for row in true.args]:
            return False
        return _in_order([x for row in given.args for x in row], [x for row in true.args for x in row])
    if true.kind == "operation" and given.args[0] == true.args[0]:
        if true.args[0] == "difference":
            return _in_order(given.args[1:], true.args[1:])
        return _in_any_order(_operands(given), _operands(true))
    if true.kind == "builder":
        return _in_order(given.args, true.args)
    return False if true.kind in ("named", "infinity") else None


def _as_vector(node: Node, other: Node) -> Node:
    """A matrix of one column or row beside a tuple, as a tuple."""
    if node.kind == "matrix" and other.kind == "bracket" and other.args[0] == "()":
        if len(node.args) == 1:
            return Node("bracket", ("()", *node.args[0]))
        if all(len(row) == 1 for row in node.args):
            return Node("bracket", ("()", *(row[0] for row in node.args)))
    return node


def _operands(node: Node) -> list[Node]:
    operation = node.args[0]
    found: list[Node] = []
    for part in node.args[1:]:
        found += _operands(part) if part.kind == "operation" and part.args[0] == operation else [part]
    return found


# --- scalars ---


def _compare_scalars(given: Node, true: Node) -> bool | None:
    if not _same_units(given, true):
        return False
    given, true = _bare(given), _bare(true)
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


def _bare(node: Node) -> Node:
    while node.kind in ("quantity", "degrees"):
        node = node.args[0]
    return node


def _same_units(given: Node, true: Node) -> bool:
    """Return False for two units that are known and differ; words that are no known unit are not compared."""
    if given.kind != "quantity" or true.kind != "quantity":
        return True
    names = [_UNIT_NAME.findall(node.args[1]) for node in (given, true)]
    if not all(name in UNITS for name in (*names[0], *names[1])):
        return True
    one, other = (_UNIT_NAME.sub(lambda found: UNITS[found[0]], node.args[1]) for node in (given, true))
    return one == other


def _is_rounded(given: Node, true: Node) -> bool:
    """Return True if one is a decimal of at least six digits that gives the other, an irrational number, rightly."""
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
    """Return the number of digits after the point of a decimal, if they are enough to recognise a number by."""
    node = node.args[0] if node.kind == "negative" else node
    if node.kind != "number" or not node.args[1]:
        return None
    value: Fraction = node.args[0]
    digits: int = node.args[1]
    significant = len(str(abs(int(value * 10**digits))))
    return digits if digits >= _FEWEST_DIGITS or significant >= _FEWEST_DIGITS else None


def _compare_ratios(given: Node, true: Node) -> bool | None:
    if given.kind != true.kind:
        ratio, other = (given, true) if given.kind == "ratio" else (true, given)
        if len(ratio.args) == 2 and other.kind in _SCALARS:
            return are_equal(Node("quotient", ratio.args), _bare(other))
        return False
    if len(given.args) != len(true.args):
        return False
    first = [are_equal(one, other) for one, other in zip(given.args, true.args, strict=True)]
    if all(first):
        return True
    if any(_is_zero(part) for part in (*given.args, *true.args)):
        return _all(first)
    pairs = zip(given.args[1:], true.args[1:], strict=True)
    crossed = [
        are_equal(Node("product", (given.args[0], other)), Node("product", (true.args[0], one))) for one, other in pairs
    ]
    return _all(crossed)


def _is_zero(node: Node) -> bool:
    return are_equal(node, Node("number", (Fraction(0), 0))) is not False


# --- collections ---


def _compare_collections(given: Node, true: Node) -> bool | None:
    one, other = _items(given), _items(true)
    ordered = next((node for node in (given, true) if node.kind in ("bracket", "matrix")), None)
    if ordered is not None:  # a tuple beside a list without brackets
        listed = true if ordered is given else given
        if ordered.kind != "bracket" or ordered.args[0] != "()" or listed.kind != "list":
            return False if ordered.kind == "bracket" and len(one) != len(other) else None
        if listed.args[0] == "or" or _has_one_subject(listed.args[1:]):
            return False  # several values of one unknown are no point
        return _in_order(list(ordered.args[1:]), list(listed.args[1:]))
    if max(len(one), len(other)) > _MOST_ITEMS:
        return None
    if given.kind == "set" or true.kind == "set":
        one, other = _distinct(one), _distinct(other)
    subjects = [{_subject(item) for item in items} for items in (one, other)]
    if any(len(found - {None}) > 1 for found in subjects) and {None} in subjects:
        one, other = [_solution(item) for item in one], [_solution(item) for item in other]
        return _in_order(one, other)
    if 2 * len(other) >= len(one) > len(other) == len(_distinct(other)) and len({item.kind for item in one}) == 1:
        one = _distinct(one)  # said twice
    if len(one) != len(other):
        return False
    return _in_any_order(one, other)


def _items(node: Node) -> list[Node]:
    if node.kind == "list":
        return _with_subject(list(node.args[1:]))
    return list(node.args) if node.kind == "set" else [node]


def _with_subject(items: list[Node]) -> list[Node]:
    """Return items of which the first alone names the unknown: `a = 4, -8` is `a = 4, a = -8`."""
    first = items[0]
    if first.kind != "relation" or first.args[0] != ("=",) or any(item.kind == "relation" for item in items[1:]):
        return items
    subject = first.args[1]
    if not _is_subject(subject.args[0] if subject.kind == "negative" else subject):
        return items
    return [first, *(Node("relation", (("=",), first.args[1], item)) for item in items[1:])]


def _subject(item: Node) -> Node | None:
    if item.kind == "relation" and item.args[0] == ("=",) and _is_subject(item.args[1]):
        subject: Node = item.args[1]
        return subject
    return None


def _has_one_subject(items: Sequence[Node]) -> bool:
    subjects = [_subject(item) for item in items]
    return None not in subjects and len(set(subjects)) < len(subjects)


def _solution(item: Node) -> Node:
    if _subject(item) is None:
        return item
    value: Node = item.args[2]
    return value


def _distinct(items: list[Node]) -> list[Node]:
    found: list[Node] = []
    for item in items:
        if not any(compare(item, other) for other in found):
            found.append(item)
    return found


def _in_order(one: Sequence[Node], other: Sequence[Node]) -> bool | None:
    if len(one) != len(other):
        return False
    return _all([compare(first, second) for first, second in zip(one, other, strict=True)])


def _in_any_order(one: Sequence[Node], other: Sequence[Node]) -> bool | None:
    """Equality is transitive, so the first partner that is found is as good as any."""
    if len(one) != len(other):
        return False
    left, unknown = list(other), False
    for item in one:
        verdicts = [compare(item, partner) for partner in left]
        if True in verdicts:
            del left[verdicts.index(True)]
        elif None in verdicts:
            unknown = True
        else:
            return False
    return None if unknown else True


def _all(verdicts: Sequence[bool | None]) -> bool | None:
    if False in verdicts:
        return False
    return None if None in verdicts else True


# --- relations ---


def _is_subject(node: Node) -> bool:
    """Return True for what may be named on the left of an equals sign: x, f(x), |AB|, a:b, (x, y)."""
    if node.kind == "symbol":
        return True
    if node.kind == "bracket" or node.kind == "ratio":
        return all(_is_subject(part) for part in node.args if isinstance(part, Node))
    if node.kind == "quotient":
        return all(_is_subject(part) for part in node.args)
    if node.kind == "product":  # f(x), AB: letters alone
        return all(_is_subject(part) or rational(part) is not None for part in node.args[1:]) and _is_subject(
            node.args[0]
        )
    if node.kind == "call":
        return node.args[0] == "abs" and _is_subject(node.args[1])
    return False


def _compare_relations(given: Node, true: Node) -> bool | None:
    if given.kind != "relation" or true.kind != "relation":
        relation, other = (given, true) if given.kind == "relation" else (true, given)
        if relation.args[0] == ("∈",):  # x ∈ {1, 2}
            return compare(other, relation.args[2])
        if other.kind == "list" and other.args[0] != "or" and len(relation.args[0]) > 1 and not _is_equation(relation):
            pairs = [pair for item in other.args[1:] if item.kind == "relation" for pair in _chain(item)]
            return _pairs_in_any_order(_chain(relation), pairs)
        if other.kind in ("list", "set"):
            return _compare_collections(given, true)
        return _compare_with_value(relation, other, is_reference=relation is true)
    pairs, true_pairs = _chain(given), _chain(true)
    if len(pairs) == 1 and len(true_pairs) == 1:
        return _compare_pairs(pairs[0], true_pairs[0])
    if _is_equation(given) and _is_equation(true):
        return _compare_chains(given, true)
    return _pairs_in_any_order(pairs, true_pairs)


def _compare_with_value(relation: Node, value: Node, *, is_reference: bool) -> bool | None:
    """Compare `x = 5` with `5`, and the end of a calculation with its result."""
    operators, *operands = relation.args
    if not set(operators) <= {"=", "≈"}:
        return None if any("abs" in functions(operand) for operand in operands) else False
    left = operands[0]
    named = _is_subject(left) and len(operands) > 1
    if is_reference and not named and any(symbols(operand) for operand in operands if operand.kind in _SCALARS):
        return False  # an equation is no value
    if named and value == left:
        return False
    candidates = operands[1:] if named else operands
    exact = [operand for number, operand in enumerate(operands) if number == 0 or operators[number - 1] == "="]
    candidates = [operand for operand in candidates if operand in exact] or candidates
    if is_reference:
        candidates = [*candidates, *(operand for operand in operands[1:] if operand not in exact)]
    else:
        candidates = candidates[-1:]
    verdicts = [compare(value, operand) for operand in candidates]
    return True if True in verdicts else _all(verdicts)


def _is_equation(node: Node) -> bool:
    return set(node.args[0]) <= {"=", "≈"}


def _compare_chains(given: Node, true: Node) -> bool | None:
    """Compare the ends of two calculations: `x = 3 · 5 = 15` with `x = 15`."""
    one, other = given.args[1], true.args[1]
    if symbols(one) and symbols(other) and compare(one, other) is False:
        return False
    return compare(_result(given), _result(true))


def _result(relation: Node) -> Node:
    """Return the result of a calculation, before it is rounded."""
    operators, *operands = relation.args
    place = len(operators)
    while place > 1 and operators[place - 1] == "≈":
        place -= 1
    result: Node = operands[place]
    return result


def _chain(node: Node) -> list[tuple[Node, str, Node]]:
    operators, *operands = node.args
    return [(operands[number], operator, operands[number + 1]) for number, operator in enumerate(operators)]


Pair = tuple[Node, str, Node]


def _pairs_in_any_order(one: list[Pair], other: list[Pair]) -> bool:
    left = list(other)
    if len(one) != len(other):
        return False
    for pair in one:
        found = next((partner for partner in left if _compare_pairs(pair, partner)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _compare_pairs(given: Pair, true: Pair) -> bool | None:
    if given[1] != true[1]:
        flipped = _FLIPPED.get(given[1])
        if flipped != true[1]:
            return False if {given[1], true[1]} != {"=", "≈"} else _sides(given, true)
        given = given[2], flipped, given[0]
    if _sides(given, true):
        return True
    if true[1] in _ONE_WAY or true[1] in ("∈", "∉", "≈"):
        return False
    if any(side.kind not in _SCALARS for side in (given[0], given[2], true[0], true[2])):
        if true[1] != "=":
            return False
        same = compare(given[0], true[0])
        return False if same is False else _all([same, compare(given[2], true[2])])
    return _compare_differences(given, true)


def _sides(given: Pair, true: Pair) -> bool:
    if compare(given[0], true[0]) and compare(given[2], true[2]):
        return True
    return true[1] in ("=", "≠") and bool(compare(given[0], true[2]) and compare(given[2], true[0]))


def _compare_differences(given: Pair, true: Pair) -> bool | None:
    """Compare `left - right` of both: they must be multiples of each other, of one sign where that matters."""
    one = Node("sum", (given[0], negative(given[2])))
    other = Node("sum", (true[0], negative(true[2])))
    if not symbols(one) and not symbols(other):
        return None if true[1] != "=" else _all([compare(given[0], true[0]), compare(given[2], true[2])])
    if symbols(one) != symbols(other):
        return False
    ratio = _constant_ratio(one, other)
    if ratio is not None:
        return ratio > 0 if true[1] in _FLIPPED else True
    if true[1] in _FLIPPED:
        return False
    return _solves(given, other) or _solves(true, one)


def _constant_ratio(one: Node, other: Node) -> float | None:
    """Return by what number an expression is a multiple of another, or None if it is none."""
    try:
        exact = [(rational_at(one, number), rational_at(other, number)) for number in range(4)]
    except UndefinedError:  # at one of the points: the other way decides
        exact = []
    if exact and all(first is not None and second for first, second in exact):
        ratios = {first / second for first, second in exact if first is not None and second}
        return float(ratios.pop()) if len(ratios) == 1 and 0 not in ratios else None
    numbers = [(value_at(one, number, True), value_at(other, number, True)) for number in range(8)]
    known = [(first.number, second.number) for first, second in numbers if first and second and second.number]
    if len(known) < 2:
        return None
    first_ratio = known[0][0] / known[0][1]
    if not first_ratio or any(abs(x / y - first_ratio) > abs(first_ratio) * 1e-20 for x, y in known):
        return None
    return float(first_ratio.real)


def _solves(pair: Pair, other: Node) -> bool:
    """Return True if `y = …` makes another equation true in which y stands to the first power."""
    for subject, value in ((pair[0], pair[2]), (pair[2], pair[0])):
        if subject.kind != "symbol" or subject.args[0] in symbols(value):
            continue
        zero = Node("number", (Fraction(0), 0))
        if not are_equal(_replaced(other, subject, value), zero):
            continue
        shifts = [Node("sum", (value, Node("number", (Fraction(step), 0)))) for step in (1, 2)]
        once, twice = (_replaced(other, subject, shift) for shift in shifts)
        doubled = Node("product", (Node("number", (Fraction(2), 0)), once))
        if are_equal(twice, doubled) and not are_equal(once, zero):
            return True
    return False


def _replaced(node: Node, old: Node, new: Node) -> Node:
    if node == old:
        return new
    return Node(node.kind, tuple(_replaced(part, old, new) if isinstance(part, Node) else part for part in node.args))


def _same_subjects(given: Node, true: Node) -> bool:
    """Return False for inequalities in two different unknowns."""
    found = [_set_subjects(node) for node in (given, true)]
    return not found[0] or not found[1] or found[0] == found[1]


def _set_subjects(node: Node) -> frozenset[str]:
    if node.kind == "relation":
        return frozenset().union(*(symbols(part) for part in node.args[1:]))
    if node.kind == "list":
        return frozenset().union(*(_set_subjects(part) for part in node.args[1:]))
    return frozenset()


# --- plus and minus ---


@lru_cache(maxsize=4096)
def _expanded(node: Node) -> Node:
    """Write out `±`: `1 ± √2` is the list of `1 + √2` and `1 - √2`."""
    if not _has_plusminus(node):
        return node
    if node.kind in ("list", "set"):
        items: list[Node] = []
        for item in node.args:
            if isinstance(item, Node):
                expanded = _expanded(item)
                items += expanded.args[1:] if expanded.kind == "list" else [expanded]
        return Node("set", tuple(items)) if node.kind == "set" else Node("list", (node.args[0], *items))
    if node.kind == "relation" and node.args[0] == ("=",):
        right = _expanded(node.args[2])
        values = right.args[1:] if right.kind == "list" else (right,)
        return Node("list", (",", *(Node("relation", (("=",), node.args[1], value)) for value in values)))
    if node.kind == "bracket":
        parts = [_expanded(part) for part in node.args[1:]]
        choices = [part.args[1:] if part.kind == "list" else (part,) for part in parts]
        if math.prod(map(len, choices)) > _MOST_ITEMS:
            return node
        return Node("list", (",", *(Node("bracket", (node.args[0], *choice)) for choice in cartesian(*choices))))
    return Node("list", (",", _signed(node, 1), _signed(node, -1)))


def _has_plusminus(node: Node) -> bool:
    found = []
    walk(node, lambda part: found.append(part) if part.kind == "plusminus" else None)
    return bool(found)


def _signed(node: Node, sign: int) -> Node:
    if node.kind == "plusminus":
        inner = _signed(node.args[0], sign)
        return inner if node.args[1] * sign > 0 else negative(inner)
    return Node(node.kind, tuple(_signed(part, sign) if isinstance(part, Node) else part for part in node.args))
