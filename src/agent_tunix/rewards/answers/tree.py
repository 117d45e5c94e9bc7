r"""The tree of a parsed answer."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from agent_tunix.rewards.answers.work import charge

# The first sign of the names of variables that have no meaning outside a sum or an integral.
BOUND_NAME = "#"


class Node(NamedTuple):
    """A node of a parsed answer. `args` depends on `kind`.

    Values:

    - `number`: a Fraction, the number of digits written after a decimal point, and a hash of the Fraction as text
    - `symbol`: a name: a letter with its subscript, primes and accents
    - `infinity`: nothing
    - `sum`: terms
    - `negative`: one term
    - `product`: factors
    - `quotient`: numerator, denominator
    - `power`: base, exponent
    - `call`: the name of a function, then its arguments
    - `percent`, `degrees`: one expression
    - `plusminus`: a term and its sign: +1 for ±, -1 for ∓
    - `operator`: `sum`, `prod`, `int` and the like, then what it is applied to and its bounds, with `BOUND_NAME` in
      place of the names of its own variables
    - `quantity`: an expression, and its unit as text
    - `based`: digits and base, as text and int

    Relations and collections:

    - `relation`: a tuple of operators as text, then the operands, one more than operators
    - `list`: the word that joins the items (`,`, `or` or `and`), then the items
    - `bracket`: the two brackets as text, then the items of a tuple or an interval
    - `set`: items
    - `builder`: variable, condition: {x | x > 0}
    - `operation`: `union`, `intersection` or `difference`, then sets
    - `named`: the name of a set: `R`, `Z`, `empty`
    - `matrix`: rows, each a tuple of nodes
    - `ratio`: terms
    - `case`: value, condition: `x for x > 0`; the condition `otherwise` is a name
    """

    kind: str
    args: tuple[Any, ...]


def constant(value: Fraction | int, digits: int = 0) -> Node:
    """Return the node of a number.

    Nobody can make the hashes of texts equal on purpose, which would slow down caches: Python salts them, but not those
    of numbers.
    """
    value = Fraction(value)
    return Node("number", (value, digits, hash(f"{value.numerator:x}/{value.denominator:x}")))


def negative(node: Node) -> Node:
    """Return the negative of a node."""
    return Node("negative", (node,))


def product(one: Node, other: Node) -> Node:
    """Return the product of two nodes, without nesting the first."""
    factors = one.args if one.kind == "product" else (one,)
    return Node("product", (*factors, other))


def replaced(node: Node, old: Node, new: Node) -> Node:
    """Return a node with one part in place of another."""
    charge(1)
    if node == old:
        return new
    return Node(node.kind, tuple(replaced(part, old, new) if isinstance(part, Node) else part for part in node.args))


def walk(node: Node, visit: Callable[[Node], None]) -> None:
    """Call `visit` with the node and all its parts."""
    charge(1 + node.args[0].numerator.bit_length() // 64 if node.kind == "number" else 1)
    visit(node)
    for part in _parts(node):
        walk(part, visit)


def depth_of(node: Node) -> int:
    """Return the number of levels of a tree."""
    depth, level = 0, [node]
    while level:
        depth += 1
        level = [part for one in level for part in _parts(one)]
    return depth


def _parts(node: Node) -> Iterator[Node]:
    for part in node.args:
        for inner in part if type(part) is tuple else (part,):  # the rows of a matrix
            if isinstance(inner, Node):
                yield inner
