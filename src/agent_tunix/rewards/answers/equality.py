r"""Equality of two parsed answers: by structure, and of expressions by evaluation.

- Collections are compared part by part: tuples and matrices in order, lists and sets in any order.
- Inequalities in one unknown, intervals and their unions are compared as sets of real numbers.
- Equations are equal if one is a constant multiple of the other, or if the solution of one solves the other.
- `x = 5` and `5` are the same answer; `x = 5` and `y = 5` are not, nor are `2x = 10` and the reference `x = 5`.
- Operations on finite sets are worked out, and the parameters of an answer get the names of the reference's.
- A decimal equals the irrational number that it rounds if it has at least six digits, in all or after the point.
"""

from collections.abc import Sequence

from agent_tunix.rewards.answers.equations import FLIPPED, Pair, compare_differences, expanded
from agent_tunix.rewards.answers.evaluation import functions, rational, symbols
from agent_tunix.rewards.answers.matrices import folded
from agent_tunix.rewards.answers.scalars import (
    SCALARS,
    all_true,
    compare_ratios,
    compare_scalars,
    result_of,
    same_units,
)
from agent_tunix.rewards.answers.sets import possible_set, real_set, same_set
from agent_tunix.rewards.answers.tree import Node, negative, replaced, walk
from agent_tunix.rewards.answers.work import charge, remembered

_MOST_ITEMS = 64
_SETS = frozenset(("set", "operation", "named", "builder"))
_NAMED_BY = frozenset(("abs", "union", "intersection", "difference"))
_ONE_WAY = frozenset(("→", "~", "≡", "⊥", "∥", "⊂", "⊆", "∝"))


@remembered(8192)
def compare(answer: Node, true: Node) -> bool | None:
    """Return True if an answer equals the reference, False if not, None if this cannot be decided."""
    charge(10)
    if answer == true:
        return True
    answer, true = (finite(folded(expanded(node))) for node in (answer, true))
    answer = _with_names_of(answer, true)
    if answer == true:
        return True
    for one, other in ((real_set, possible_set), (possible_set, real_set)):
        sets = one(true), other(answer)
        if sets[0] is not None and sets[1] is not None:
            return same_set(sets[0], sets[1]) and _same_subjects(answer, true)
    if true.kind == "relation" or answer.kind == "relation":
        return _compare_relations(answer, true)
    if true.kind in ("list", "set") or answer.kind in ("list", "set"):
        return _compare_collections(answer, true)
    return _compare_values(answer, true)


def _compare_values(answer: Node, true: Node) -> bool | None:
    if true.kind in SCALARS and answer.kind in SCALARS:
        return compare_scalars(answer, true)
    if "ratio" in (answer.kind, true.kind):
        return compare_ratios(answer, true)
    answer, true = _as_vector(answer, true), _as_vector(true, answer)
    if answer.kind != true.kind:
        return False
    if true.kind == "bracket":
        if answer.args[0] != true.args[0]:
            return False
        return _in_order(answer.args[1:], true.args[1:])
    if true.kind == "matrix":
        if [len(row) for row in answer.args] != [len(row) for row in true.args]:
            return False
        return _in_order([x for row in answer.args for x in row], [x for row in true.args for x in row])
    if true.kind == "operation" and answer.args[0] == true.args[0]:
        if true.args[0] == "difference":
            return _in_order(answer.args[1:], true.args[1:])
        return _in_any_order(_operands(answer), _operands(true))
    if true.kind in ("builder", "case"):
        return _in_order(answer.args, true.args)
    return False if true.kind in ("named", "infinity") else None


def finite(node: Node) -> Node:
    """Return the set that an operation on finite sets results in; other nodes as they are."""
    if node.kind != "operation":
        return node
    operation, *parts = node.args
    operands = [Node("set", ()) if part == _EMPTY else finite(part) for part in parts]
    if any(part.kind != "set" for part in operands):
        return Node("operation", (operation, *(part if part.args else _EMPTY for part in operands)))
    one, other = (list(part.args) for part in operands)
    if operation == "union":
        items = _distinct(one + other)
    else:
        items = [item for item in one if _is_among(item, other) == (operation == "intersection")]
    return Node("set", tuple(items)) if items else _EMPTY


_EMPTY = Node("named", ("empty",))


def _is_among(item: Node, items: list[Node]) -> bool:
    return any(compare(item, other) for other in items)


def _with_names_of(answer: Node, true: Node) -> Node:
    """Give the parameters of an answer, as k in `kπ, k ∈ Z`, the names that they have in the reference."""
    names, names_of_reference = _parameters(answer), _parameters(true)
    if (
        names == names_of_reference
        or len(names) != len(names_of_reference)
        or not set(names_of_reference).isdisjoint(_symbols_within(answer))
    ):
        return answer
    for name, new in zip(names, names_of_reference, strict=True):
        answer = replaced(answer, name, new)
    return answer


def _parameters(node: Node) -> list[Node]:
    """Return the names that a list declares with ∈, or that a set in braces is about."""
    conditions: tuple[Node, ...] = ()
    if node.kind == "builder":
        if node.args[0].kind == "symbol":
            return [node.args[0]]
        conditions = node.args[1].args[1:] if node.args[1].kind == "list" else (node.args[1],)
    elif node.kind == "list":
        conditions = node.args[2:]
    declared = [
        part.args[1]
        for part in conditions
        if part.kind == "relation" and part.args[0] == ("∈",) and part.args[2].kind == "named"
    ]
    used = _symbols_within(node.args[0] if node.kind == "builder" else node.args[1]) if declared else set()
    return [name for name in declared if name in used]


def _symbols_within(node: Node) -> set[Node]:
    symbols_found: set[Node] = set()
    walk(node, lambda part: symbols_found.add(part) if part.kind == "symbol" else None)
    return symbols_found


def _as_vector(node: Node, other: Node) -> Node:
    """Return a matrix of one row or column as a tuple, if it is compared with a tuple."""
    if node.kind == "matrix" and other.kind == "bracket" and other.args[0] == "()":
        if len(node.args) == 1:
            return Node("bracket", ("()", *node.args[0]))
        if all(len(row) == 1 for row in node.args):
            return Node("bracket", ("()", *(row[0] for row in node.args)))
    return node


def _operands(node: Node) -> list[Node]:
    operation = node.args[0]
    operands: list[Node] = []
    for part in node.args[1:]:
        operands += _operands(part) if part.kind == "operation" and part.args[0] == operation else [part]
    return operands


# --- collections ---


def _compare_collections(answer: Node, true: Node) -> bool | None:
    one, other = _items(answer), _items(true)
    ordered = next((node for node in (answer, true) if node.kind in ("bracket", "matrix")), None)
    if ordered is not None:  # a tuple is compared with a list without brackets
        list_side = true if ordered is answer else answer
        if ordered.kind != "bracket" or ordered.args[0] != "()" or list_side.kind != "list":
            return False if ordered.kind == "bracket" and len(one) != len(other) else None
        if list_side.args[0] == "or" or _has_one_subject(_items(list_side)):
            return False  # several values of one unknown are not a point
        return _in_order(list(ordered.args[1:]), list(list_side.args[1:]))
    if max(len(one), len(other)) > _MOST_ITEMS:
        return None
    if "named" in (answer.kind, true.kind):
        return False  # a named set, such as R, equals no set of items, not even {R}
    if answer.kind == "set" or true.kind == "set":
        one, other = _distinct(one), _distinct(other)
    subjects = [{_subject(item) for item in items} for items in (one, other)]
    if any(len(found - {None}) > 1 for found in subjects) and {None} in subjects:
        one, other = [_solution(item) for item in one], [_solution(item) for item in other]
        return _in_order(one, other)
    if 2 * len(other) >= len(one) > len(other) == len(_distinct(other)) and len({item.kind for item in one}) == 1:
        one = _distinct(one)  # the answer repeats items
    if len(one) != len(other):
        return False
    return _in_any_order(one, other)


def _items(node: Node) -> list[Node]:
    if node.kind == "list":
        return _with_subject([part for item in node.args[1:] for part in _split(item)])
    return list(node.args) if node.kind == "set" else _split(node)


def _split(item: Node) -> list[Node]:
    """Return an equation for each of several names that share a value: `x = y = 4`."""
    if item.kind != "relation" or not _is_equation(item):
        return [item]
    *names, value = item.args[1:]
    if len(names) < 2 or any(name.kind != "symbol" for name in names):
        return [item]
    return [Node("relation", (("=",), name, value)) for name in names]


def _with_subject(items: list[Node]) -> list[Node]:
    """Give all items the unknown of the first: `a = 4, -8` becomes `a = 4, a = -8`."""
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
    different: list[Node] = []
    for item in items:
        if not any(compare(item, other) for other in different):
            different.append(item)
    return different


def _in_order(one: Sequence[Node], other: Sequence[Node]) -> bool | None:
    if len(one) != len(other):
        return False
    return all_true([compare(first, second) for first, second in zip(one, other, strict=True)])


def _in_any_order(one: Sequence[Node], other: Sequence[Node]) -> bool | None:
    """Compare items in any order. Equality is transitive, so the first matching partner is as good as any."""
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


# --- relations ---


def _is_subject(node: Node) -> bool:
    """Return True for a name on the left of an equals sign: x, f(x), |AB|, a:b, (x, y)."""
    if node.kind == "symbol":
        return True
    if node.kind == "bracket" or node.kind == "ratio":
        return all(_is_subject(part) for part in node.args if isinstance(part, Node))
    if node.kind == "quotient":
        return all(_is_subject(part) for part in node.args)
    if node.kind == "product":  # f(x) and AB consist only of letters
        return all(_is_subject(part) or rational(part) is not None for part in node.args[1:]) and _is_subject(
            node.args[0]
        )
    if node.kind in ("call", "operation"):  # |AB| and A ∪ B
        return node.args[0] in _NAMED_BY and all(_is_subject(part) for part in node.args[1:])
    return False


def _compare_relations(answer: Node, true: Node) -> bool | None:
    if answer.kind != "relation" or true.kind != "relation":
        relation, other = (answer, true) if answer.kind == "relation" else (true, answer)
        if relation.args[0] == ("∈",):  # x ∈ {1, 2}
            return compare(other, relation.args[2])
        if other.kind == "list" and other.args[0] != "or" and len(relation.args[0]) > 1 and not _is_equation(relation):
            pairs = [pair for item in other.args[1:] if item.kind == "relation" for pair in _chain(item)]
            return _pairs_in_any_order(_chain(relation), pairs)
        operators, name, value = relation.args[:3]
        if operators == ("=",) and _is_subject(name) and value.kind in _SETS:
            return compare(value, other) if relation is answer else compare(other, value)
        if other.kind in ("list", "set"):
            return _compare_collections(answer, true)
        return _compare_with_value(relation, other, is_reference=relation is true)
    pairs, true_pairs = _chain(answer), _chain(true)
    if len(pairs) == 1 and len(true_pairs) == 1:
        return _compare_pairs(pairs[0], true_pairs[0])
    if _is_equation(answer) and _is_equation(true):
        return _compare_chains(answer, true)
    return _pairs_in_any_order(pairs, true_pairs)


def _compare_with_value(relation: Node, value: Node, *, is_reference: bool) -> bool | None:
    """Compare `x = 5` with `5`, or the result of a calculation with a value."""
    operators, *operands = relation.args
    if not set(operators) <= {"=", "≈"}:
        return None if any("abs" in functions(operand) for operand in operands) else False
    if operators == ("=",) and operands[1].kind == "symbol" and not symbols(operands[0]):
        operands.reverse()  # 2 = x
    left = operands[0]
    has_subject = _is_subject(left) and len(operands) > 1
    if is_reference and not has_subject and any(symbols(operand) for operand in operands if operand.kind in SCALARS):
        return False  # an equation is not a value
    if has_subject and value == left:
        return False
    candidates = operands[1:] if has_subject else operands
    exact = [operand for number, operand in enumerate(operands) if number == 0 or operators[number - 1] == "="]
    candidates = [operand for operand in candidates if operand in exact] or candidates
    if is_reference:
        candidates = [*candidates, *(operand for operand in operands[1:] if operand not in exact)]
    else:
        candidates = candidates[-1:]
    verdicts = [compare(value, operand) if is_reference else compare(operand, value) for operand in candidates]
    return True if True in verdicts else all_true(verdicts)


def _is_equation(node: Node) -> bool:
    return set(node.args[0]) <= {"=", "≈"}


def _compare_chains(answer: Node, true: Node) -> bool | None:
    """Compare the results of two calculations: `x = 3 · 5 = 15` with `x = 15`."""
    one, other = answer.args[1], true.args[1]
    names = _split(answer), _split(true)
    if len(names[1]) > 1:
        return _in_any_order(*names)
    if folded(negative(one)) == other or one == folded(negative(other)):
        return False
    if symbols(one) and symbols(other) and compare(one, other) is False:
        return False
    return compare(result_of(answer), result_of(true))


def _chain(node: Node) -> list[tuple[Node, str, Node]]:
    operators, *operands = node.args
    return [(operands[number], operator, operands[number + 1]) for number, operator in enumerate(operators)]


def _pairs_in_any_order(one: list[Pair], other: list[Pair]) -> bool:
    left = list(other)
    if len(one) != len(other):
        return False
    for pair in one:
        match = next((partner for partner in left if _compare_pairs(pair, partner)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _compare_pairs(answer: Pair, true: Pair) -> bool | None:
    if answer[1] != true[1]:
        flipped = FLIPPED.get(answer[1])
        if flipped != true[1]:
            return False if {answer[1], true[1]} != {"=", "≈"} else _sides(answer, true)
        answer = answer[2], flipped, answer[0]
    if _is_unsolved(answer, true):
        return False
    if _sides(answer, true):
        return True
    if not (same_units(answer[0], true[0]) and same_units(answer[2], true[2])):
        return False
    if true[1] in _ONE_WAY or true[1] in ("∈", "∉", "≈"):
        return False
    if any(side.kind not in SCALARS for side in (answer[0], answer[2], true[0], true[2])):
        if true[1] != "=":
            return False
        same = compare(answer[0], true[0])
        return False if same is False else all_true([same, compare(answer[2], true[2])])
    return compare_differences(answer, true)


def _is_unsolved(answer: Pair, true: Pair) -> bool:
    """Return True if a reference states the value of an unknown, and the answer leaves it to be found: `2x = 10`."""
    for name, value in ((true[0], true[2]), (true[2], true[0])):
        if name.kind == "symbol" and symbols(name) and value.kind in SCALARS and not symbols(value):
            sides = ((answer[0], answer[2]), (answer[2], answer[0]))
            return not any(
                one in (name, negative(name)) and symbols(other).isdisjoint(symbols(name)) for one, other in sides
            )
    return False


def _sides(answer: Pair, true: Pair) -> bool:
    if compare(answer[0], true[0]) and compare(answer[2], true[2]):
        return True
    return true[1] in ("=", "≠") and bool(compare(answer[0], true[2]) and compare(answer[2], true[0]))


def _same_subjects(answer: Node, true: Node) -> bool:
    """Return False for inequalities in different unknowns."""
    subjects = [_set_subjects(node) for node in (answer, true)]
    return not subjects[0] or not subjects[1] or subjects[0] == subjects[1]


def _set_subjects(node: Node) -> frozenset[str]:
    if node.kind == "relation":
        return frozenset().union(*(symbols(part) for part in node.args[1:]))
    if node.kind == "list":
        return frozenset().union(*(_set_subjects(part) for part in node.args[1:]))
    return frozenset()
