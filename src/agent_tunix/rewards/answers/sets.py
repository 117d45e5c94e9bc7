r"""Sets of real numbers in one form: intervals, inequalities in one unknown, and combinations of them.

A set is a tuple of pieces, in order and without overlap. `x > 2`, `2 < x`, `(2, \infty)` and `\{x | x > 2\}` have the
same pieces.
"""

from typing import Any, NamedTuple

from agent_tunix.rewards.answers.evaluation import are_equal, number_of, symbols
from agent_tunix.rewards.answers.tree import Node, constant, negative
from agent_tunix.rewards.answers.work import charge

_INFINITE = "oo"
_FLIPPED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤"}


class Bound(NamedTuple):
    """An end of a piece: its node and its value. Without a node, the value is infinite."""

    value: Any
    node: Node | None

    def equals(self, other: "Bound") -> bool:
        """Return True if both are the same number."""
        if self.node is None or other.node is None:
            return self.node is other.node and self.value == other.value
        return are_equal(self.node, other.node) is True


class Piece(NamedTuple):
    """An interval. A single point has the same bound twice, closed."""

    low: Bound
    low_closed: bool
    high: Bound
    high_closed: bool

    @property
    def empty(self) -> bool:
        """True if it contains no number."""
        if self.low.equals(self.high):
            return not (self.low_closed and self.high_closed)
        return bool(self.low.value > self.high.value)


Pieces = tuple[Piece, ...]
_MINUS_INFINITY = Bound(float("-inf"), None)
_INFINITY = Bound(float("inf"), None)
_ALL: Pieces = (Piece(_MINUS_INFINITY, False, _INFINITY, False),)


def real_set(node: Node) -> Pieces | None:
    """Return the set of real numbers that a node certainly denotes, or None.

    A pair such as `(1, 2)` may be a point, and equations may be several answers. Both give None.
    """
    return _pieces(node, certain=True)


def possible_set(node: Node) -> Pieces | None:
    """Return the result of `real_set`, or the interval that a pair in brackets may denote."""
    return _pieces(node, certain=False)


def same_set(one: Pieces, other: Pieces) -> bool:
    """Return True if two sets have the same members."""
    return len(one) == len(other) and all(
        first.low_closed == second.low_closed
        and first.high_closed == second.high_closed
        and first.low.equals(second.low)
        and first.high.equals(second.high)
        for first, second in zip(one, other, strict=True)
    )


def _pieces(node: Node, *, certain: bool) -> Pieces | None:
    kind, args = node
    if kind == "bracket":
        return _interval(node, certain=certain)
    if kind == "named":
        return {"R": _ALL, "empty": ()}.get(args[0])
    if kind == "operation":
        return _operation(args[0], args[1], args[2])
    if kind == "relation":
        return _relation(node)
    if kind == "builder":
        condition = _pieces(args[1], certain=True)
        return condition if condition is not None and _unknown(args[1]) == symbols(args[0]) else None
    if kind == "list":
        return _list(args[0], args[1:])
    return None


def _unknown(node: Node) -> frozenset[str]:
    if node.kind == "relation":
        return frozenset().union(*(symbols(part) for part in node.args[1:] if not _is_set(part)))
    if node.kind == "list":
        return frozenset().union(*(_unknown(part) for part in node.args[1:]))
    return symbols(node)


def _is_set(node: Node) -> bool:
    return node.kind in ("named", "set", "builder", "operation", "bracket")


def _bound(node: Node) -> Bound | None:
    if node.kind == "infinity":
        return _INFINITY
    if node.kind == "negative" and node.args[0].kind == "infinity":
        return _MINUS_INFINITY
    value = number_of(node) if not _is_set(node) and node.kind not in ("list", "relation", "matrix") else None
    return None if value is None else Bound(value, node)


def _interval(node: Node, *, certain: bool) -> Pieces | None:
    brackets, *items = node.args
    if len(items) != 2:
        return None
    low, high = _bound(items[0]), _bound(items[1])
    if low is None or high is None or (low.node is None and brackets[0] == "["):
        return None
    if high.node is None and brackets[1] == "]":
        return None
    infinite = low.node is None or high.node is None
    if brackets in ("()", "[]") and certain and not infinite:
        return None
    if high.value < low.value:
        return None
    piece = Piece(low, brackets[0] == "[" and low.node is not None, high, brackets[1] == "]" and high.node is not None)
    return None if piece.empty else (piece,)  # [1, 1) is not an interval


def _operation(operation: str, one: Node, other: Node) -> Pieces | None:
    first, second = _member(one), _member(other)
    if first is None or second is None:
        return None
    if operation == "union":
        return _union(first + second)
    if operation == "difference":
        second = _complement(second)
    return _intersection(first, second)


def _member(node: Node) -> Pieces | None:
    """Return the set of an operand of a set operation. A pair is an interval here, and braces hold points."""
    if node.kind == "set":
        bounds = [_bound(item) for item in node.args]
        points = [Piece(bound, True, bound, True) for bound in bounds if bound is not None]
        return _union(tuple(points)) if len(points) == len(bounds) else None
    return _pieces(node, certain=False)


def _relation(node: Node) -> Pieces | None:
    operators, *operands = node.args
    result = _ALL
    unknown: Node | None = None
    for number, operator in enumerate(operators):
        left, right = operands[number], operands[number + 1]
        if operator in ("∈", "∉"):
            subject, pieces = left, _member(right)
            if pieces is not None and operator == "∉":
                pieces = _complement(pieces)
        elif operator in ("<", ">", "≤", "≥", "≠"):
            subject, pieces = _inequality(left, operator, right)
        else:
            return None
        if pieces is None or subject.kind not in ("symbol", "product") or not symbols(subject):
            return None
        if subject.kind == "product" and not _is_application(subject):
            return None
        if unknown is not None and subject != unknown:
            return None
        unknown = subject
        result = _intersection(result, pieces)
    return result


def _is_application(node: Node) -> bool:
    return len(node.args) == 2 and all(part.kind == "symbol" for part in node.args)


def _inequality(left: Node, operator: str, right: Node) -> tuple[Node, Pieces | None]:
    """Return the unknown of an inequality with a number on one side, and the set where the inequality holds."""
    bound = _bound(right)
    subject = left
    if bound is None:
        bound, subject, operator = _bound(left), right, _FLIPPED.get(operator, operator)
    if bound is None:
        return left, None
    if (distance := _distance(subject)) is not None and bound.node is not None:
        return distance[0], _within(distance[1], operator, bound.node)
    if operator == "≠":
        return subject, _complement((Piece(bound, True, bound, True),))
    closed = operator in ("≤", "≥") and bound.node is not None
    if operator in ("<", "≤"):
        return subject, (Piece(_MINUS_INFINITY, False, bound, closed),)
    return subject, (Piece(bound, closed, _INFINITY, False),)


def _distance(node: Node) -> tuple[Node, Node] | None:
    """Return the unknown and the centre of `|x|`, `|x - 3|` or `|x + 3|`; None for others."""
    if node.kind != "call" or node.args[0] != "abs":
        return None
    inner = node.args[1]
    if inner.kind == "symbol" and symbols(inner):
        return inner, constant(0)
    if inner.kind == "sum" and len(inner.args) == 2 and inner.args[0].kind == "symbol" and not symbols(inner.args[1]):
        return inner.args[0], negative(inner.args[1])
    return None


def _within(centre: Node, operator: str, radius: Node) -> Pieces | None:
    """Return the set where the distance from the centre has this relation to the radius."""
    low, high = _bound(Node("sum", (centre, negative(radius)))), _bound(Node("sum", (centre, radius)))
    size = _bound(radius)
    if low is None or high is None or size is None or size.value <= 0 or operator == "≠":
        return None
    inside = (Piece(low, operator in ("≤", ">"), high, operator in ("≤", ">")),)
    return inside if operator in ("<", "≤") else _complement(inside)


def _list(joiner: str, items: tuple[Node, ...]) -> Pieces | None:
    """Return the set of joined inequalities in one unknown, or of intervals joined by "or"."""
    if joiner == "or" and all(item.kind == "bracket" for item in items):
        intervals = [_interval(item, certain=True) for item in items]
        pieces_found = [pieces for pieces in intervals if pieces is not None]
        return (
            _union(tuple(piece for pieces in pieces_found for piece in pieces))
            if len(pieces_found) == len(items)
            else None
        )
    if not all(item.kind == "relation" for item in items):
        return None
    sets = [_relation(item) for item in items]
    if len({_unknown(item) for item in items}) != 1:
        return None
    known_sets = [pieces for pieces in sets if pieces is not None]
    if len(known_sets) != len(sets):
        return None
    met = known_sets[0]
    for pieces in known_sets[1:]:
        met = _intersection(met, pieces)
    if joiner == "or" or (joiner == "," and not met):
        return _union(tuple(piece for pieces in known_sets for piece in pieces))
    return met


def _union(pieces: Pieces) -> Pieces:
    """Merge pieces that touch or overlap."""
    ordered = sorted(
        (piece for piece in pieces if not piece.empty), key=lambda one: (one.low.value, not one.low_closed)
    )
    merged: list[Piece] = []
    for piece in ordered:
        charge(5)
        last = merged[-1] if merged else None
        touches = last is not None and last.high.equals(piece.low) and (last.high_closed or piece.low_closed)
        if last is None or not (touches or piece.low.value < last.high.value):
            merged.append(piece)
            continue
        if last.high.equals(piece.high):
            merged[-1] = last._replace(high_closed=last.high_closed or piece.high_closed)
        elif piece.high.value > last.high.value:
            merged[-1] = last._replace(high=piece.high, high_closed=piece.high_closed)
    return tuple(merged)


def _intersection(one: Pieces, other: Pieces) -> Pieces:
    pieces = []
    for first in one:
        for second in other:
            charge(10)
            if first.low.equals(second.low):
                low, low_closed = first.low, first.low_closed and second.low_closed
            else:
                later = max(first, second, key=lambda piece: piece.low.value)
                low, low_closed = later.low, later.low_closed
            if first.high.equals(second.high):
                high, high_closed = first.high, first.high_closed and second.high_closed
            else:
                sooner = min(first, second, key=lambda piece: piece.high.value)
                high, high_closed = sooner.high, sooner.high_closed
            pieces.append(Piece(low, low_closed, high, high_closed))
    return _union(tuple(pieces))


def _complement(pieces: Pieces) -> Pieces:
    gaps, low, low_closed = [], _MINUS_INFINITY, False
    for piece in pieces:
        gaps.append(Piece(low, low_closed, piece.low, not piece.low_closed and piece.low.node is not None))
        low, low_closed = piece.high, not piece.high_closed and piece.high.node is not None
    gaps.append(Piece(low, low_closed, _INFINITY, False))
    return tuple(gap for gap in gaps if not gap.empty)
