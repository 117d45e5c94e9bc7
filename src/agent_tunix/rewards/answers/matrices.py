"""Arithmetic of matrices. A sum or product becomes one matrix, and a determinant becomes one sum."""

from agent_tunix.rewards.answers.tree import Node, negative, walk
from agent_tunix.rewards.answers.work import charge

_MOST_ENTRIES = 64
_MOST_ROWS = 4

Rows = tuple[tuple[Node, ...], ...]


def folded(node: Node) -> Node:
    """Expand the sums, products, quotients and determinants of matrices in a node."""
    if not any(_has_matrix(part) for part in node.args):
        return node
    if node.kind == "matrix":
        return node
    args = tuple(folded(part) if isinstance(part, Node) else part for part in node.args)
    if node.kind == "negative" and args[0].kind == "matrix":
        return Node("matrix", tuple(tuple(map(negative, row)) for row in args[0].args))
    if node.kind == "quotient" and args[0].kind == "matrix":
        return Node("matrix", tuple(tuple(Node("quotient", (part, args[1])) for part in row) for row in args[0].args))
    if node.kind == "sum" and all(part.kind == "matrix" for part in args):
        return _sum([part.args for part in args]) or Node(node.kind, args)
    if node.kind == "call" and args[0] in ("det", "abs") and args[1].kind == "matrix":
        rows = args[1].args
        return _determinant(rows) if len(rows) == len(rows[0]) <= _MOST_ROWS else Node(node.kind, args)
    if node.kind == "product":
        return _product(list(args)) or Node(node.kind, args)
    return Node(node.kind, args)


def _has_matrix(part: object) -> bool:
    charge(1)
    if isinstance(part, Node):
        return part.kind == "matrix" or any(map(_has_matrix, part.args))
    return isinstance(part, tuple) and any(map(_has_matrix, part))


def _determinant(rows: Rows) -> Node:
    """Return the expansion along the first row."""
    if len(rows) == 1:
        return rows[0][0]
    terms = []
    for column, entry in enumerate(rows[0]):
        minor = _determinant(tuple(row[:column] + row[column + 1 :] for row in rows[1:]))
        term = Node("product", (entry, minor))
        terms.append(negative(term) if column % 2 else term)
    determinant = Node("sum", tuple(terms))
    _charge_size(((determinant,),))
    return determinant


def _sum(terms: list[Rows]) -> Node | None:
    if len({(len(rows), len(rows[0])) for rows in terms}) != 1:
        return None
    size, width = len(terms[0]), len(terms[0][0])
    return Node(
        "matrix",
        tuple(
            tuple(Node("sum", tuple(rows[row][column] for rows in terms)) for column in range(width))
            for row in range(size)
        ),
    )


def _product(factors: list[Node]) -> Node | None:
    scalars = [factor for factor in factors if factor.kind != "matrix"]
    matrices = [factor.args for factor in factors if factor.kind == "matrix"]
    if not matrices or any(map(_has_matrix, scalars)):
        return None
    result: Rows = matrices[0]
    for other in matrices[1:]:
        if len(result[0]) != len(other) or len(result) * len(other[0]) > _MOST_ENTRIES:
            return None
        result = tuple(
            tuple(
                Node("sum", tuple(Node("product", (row[k], other[k][column])) for k in range(len(other))))
                for column in range(len(other[0]))
            )
            for row in result
        )
        _charge_size(result)
    if scalars:
        result = tuple(tuple(Node("product", (*scalars, part)) for part in row) for row in result)
    return Node("matrix", result)


def _charge_size(rows: Rows) -> None:
    """Count the nodes of a product, whose number may double with each factor, because all that follows visits them."""
    for row in rows:
        for part in row:
            walk(part, lambda _: charge(10))
