"""Expansion of `±` into the values that it denotes."""

import math
from functools import lru_cache
from itertools import product as cartesian

from agent_tunix.rewards.answers.tree import Node, negative, walk

_MOST_ITEMS = 64


@lru_cache(maxsize=4096)
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
    found = []
    walk(node, lambda part: found.append(part) if part.kind == "plusminus" else None)
    return bool(found)


def _signed(node: Node, sign: int) -> Node:
    if node.kind == "plusminus":
        inner = _signed(node.args[0], sign)
        return inner if node.args[1] * sign > 0 else negative(inner)
    return Node(node.kind, tuple(_signed(part, sign) if isinstance(part, Node) else part for part in node.args))
