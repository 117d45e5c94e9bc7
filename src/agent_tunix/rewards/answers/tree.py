r"""The tree that an answer is read as."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Node(NamedTuple):
    """A part of an answer.

    Attributes:
        kind: One of the kinds below.
        args: Its parts, as the kind demands.

    Values:

    - `number`: a Fraction, and how many digits were written after a decimal point
    - `symbol`: a name: a letter, with its subscript, primes and accents
    - `infinity`: nothing
    - `sum`: terms
    - `negative`: one term
    - `product`: factors
    - `quotient`: numerator, denominator
    - `power`: base, exponent
    - `call`: the name of a function, then its arguments
    - `percent`, `degrees`: one expression
    - `plusminus`: a term, and its sign: +1 for ±, -1 for ∓
    - `quantity`: an expression, and its unit as text
    - `based`: digits and base, as text and int

    Relations and collections:

    - `relation`: the operators as a tuple of text, then the operands, one more than operators
    - `list`: the word that joins the items (`,`, `or` or `and`), then the items
    - `bracket`: the two brackets as text, then the items: a tuple or an interval
    - `set`: items
    - `builder`: the variable, the condition: {x | x > 0}
    - `operation`: `union`, `intersection` or `difference`, then sets
    - `named`: the name of a set: `R`, `Z`, `empty`
    - `matrix`: rows, each a tuple of nodes
    - `ratio`: terms
    """

    kind: str
    args: tuple[Any, ...]


def negative(node: Node) -> Node:
    """Return the node with the other sign."""
    return Node("negative", (node,))


def product(one: Node, other: Node) -> Node:
    """Return the product of two nodes, flat."""
    factors = one.args if one.kind == "product" else (one,)
    return Node("product", (*factors, other))


def walk(node: Node, visit: Callable[[Node], None]) -> None:
    """Call `visit` with the node and all its parts."""
    visit(node)
    for part in node.args:
        if isinstance(part, Node):
            walk(part, visit)
        elif isinstance(part, tuple):
            for inner in part:
                if isinstance(inner, Node):
                    walk(inner, visit)


def depth_of(node: Node) -> int:
    """Return how many levels a tree has, matrices not counted."""
    depth, level = 0, [node]
    while level:
        depth += 1
        level = [part for one in level for part in one.args if isinstance(part, Node)]
    return depth
