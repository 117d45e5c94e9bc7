r"""The grammar of mathematical answers. It reads text, LaTeX, Unicode and plain notation as one kind of tree.

`parse` reads a whole answer: an expression, a relation, a list, a tuple, an interval, a set, a matrix or a ratio. It
never guesses, and raises `UnreadableError` for everything else, such as prose. `parse(r"\frac12 x")`, `parse("x/2")`
and `parse("½x")` return trees of the same value. The docstring of `Node` lists the kinds of nodes.
"""

from agent_tunix.rewards.answers.commands import CommandParser
from agent_tunix.rewards.answers.expressions import DEEPEST
from agent_tunix.rewards.answers.tokens import CONDITIONAL_WORDS, RELATIONS, SET_OPERATIONS, UnreadableError, tokens_of
from agent_tunix.rewards.answers.tree import Node, depth_of
from agent_tunix.rewards.answers.work import limited, remembered_by_length

__all__ = ["LONGEST", "UnreadableError", "parse"]

LONGEST = 2000
_SETS = frozenset("RZNQC")


def parse(text: str, commas: str = "number") -> Node:
    """Read a whole answer.

    Args:
        text: The answer as written, with or without LaTeX delimiters.
        commas: `number`: a comma or a space before three digits is part of a number. `separator`: it separates items.
            `decimal`: the only comma is a decimal point.

    Raises:
        UnreadableError: The text cannot be read unambiguously.

    >>> parse("(1, x]").kind, parse(r"x^2 < 4").kind, parse("1, 2 and 3").kind
    ('bracket', 'relation', 'list')
    """
    if len(text) > LONGEST:
        raise UnreadableError("too long")
    read = _read(text, commas)
    if isinstance(read, str):
        raise UnreadableError(read)
    return read


@remembered_by_length
def _read(text: str, commas: str) -> Node | str:
    """Return the tree of an answer, or the reason why it cannot be read."""
    try:
        tokens = tokens_of(text, commas)
        if not tokens:
            return "empty"
        node = limited(_Parser(tokens).answer)
    except UnreadableError as error:
        return str(error)
    except RecursionError:
        return "too deep"
    if node is None:
        return "too complicated"
    return node if depth_of(node) <= 2 * DEEPEST else "too deep"


class _Parser(CommandParser):
    """A parser of whole answers: items and their separators."""

    def answer(self) -> Node:
        """Read a whole answer."""
        node = self.items()
        if self.kind() != "end":
            raise UnreadableError(f"{self.tokens[self.place].text!r} is left over")
        return node

    def items(self) -> Node:
        """Read one item, or several with separators between them."""
        items, joiner = [self.item()], ""
        groups: list[Node] = []
        commas = False
        while True:
            kind, text = self.kind(), self.peek()
            if text in (",", ";"):
                self.take()
                commas = commas or text == ","
                joiner = joiner or ","
                if text == ";" and commas:
                    groups.append(_list(joiner, items))
                    items, joiner = [], ""
                if self.kind() == "word":
                    joiner = self.take().text
                if items and self.is_condition():  # x + 1, for x > 0
                    items.append(self.conditional(items.pop()))
                    continue
                if self.kind() == "end":
                    break
            elif kind == "word":
                joiner = self.take().text
            else:
                break
            items.append(self.item())
        return Node("list", (",", *groups, _list(joiner, items))) if groups else _list(joiner, items)

    def item(self) -> Node:
        """Read a relation, a ratio, a set or an expression."""
        self.descend()
        operands, operators = [self.operand()], []
        while (operator := RELATIONS.get(self.peek())) is not None:
            self.take()
            operators.append(operator)
            operand = self.operand()
            is_set = operator in ("∈", "∉") and operand.kind == "symbol" and operand.args[0] in _SETS
            operands.append(Node("named", operand.args) if is_set else operand)
        self.ascend()
        node = Node("relation", (tuple(operators), *operands)) if operators else operands[0]
        return self.conditional(node)

    def conditional(self, value: Node) -> Node:
        """Read the condition of a value, if any: `x for x > 0`, `0 otherwise`."""
        word = self.tokens[self.place].text.lower() if self.is_words() else ""
        if word in ("otherwise", "elsewhere"):
            self.take()
            return Node("case", (value, Node("named", ("otherwise",))))
        if word not in CONDITIONAL_WORDS:
            return value
        self.take()
        condition = self.item()
        if condition.kind == "relation" and condition.args[0] == ("∈",):  # `kπ for k ∈ Z` is `kπ, k ∈ Z`
            return Node("list", (",", value, condition))
        return Node("case", (value, condition))

    def operand(self) -> Node:
        """Read an operand of a relation: a set operation, a ratio or an expression."""
        first = self.set_operand()
        while (operation := SET_OPERATIONS.get(self.peek())) is not None:
            self.take()
            first = Node("operation", (operation, first, self.set_operand()))
        if self.peek() == ":":
            terms = [first]
            while self.skip(":"):
                terms.append(self.set_operand())
            return Node("ratio", tuple(terms))
        return first

    def set_operand(self) -> Node:
        """Read an operand of a set operation."""
        node = self.sum()
        if self.peek() == "\\\\" and not self.in_cases:  # a set difference
            self.take()
            return Node("operation", ("difference", node, self.sum()))
        return node

    def bracketed(self) -> Node:
        """Read a group in brackets, a tuple or an interval."""
        opening = self.take().text
        self.descend()
        bars, self.bars = self.bars, 0
        inside = self.items()
        self.bars = bars
        self.ascend()
        closing = self.take().text
        if closing not in (")", "]", "["):
            raise UnreadableError("a bracket is not closed")
        opening = "(" if opening == "]" else opening
        closing = ")" if closing == "[" else closing
        if inside.kind == "list":
            if inside.args[0] not in (",",):
                raise UnreadableError("words in a tuple")
            return Node("bracket", (opening + closing, *inside.args[1:]))
        if opening + closing not in ("()", "[]"):
            raise UnreadableError("brackets do not match")
        return inside

    def braced(self) -> Node:
        r"""Read a set: `\{1, 2\}` or `\{x | x > 0\}`."""
        self.take()
        if self.skip("\\}"):
            return Node("named", ("empty",))
        bars, self.bars = self.bars, 1
        inside = self.items()
        self.bars = bars
        if self.peek() in ("|", "\\mid", ":"):
            self.take()
            condition = self.items()
            self.expect("\\}")
            return Node("builder", (inside, condition))
        self.expect("\\}")
        if (split := _at_colon(inside)) is not None:
            return Node("builder", split)
        return Node("set", inside.args[1:] if inside.kind == "list" else (inside,))


def _list(joiner: str, items: list[Node]) -> Node:
    if not items:
        raise UnreadableError("an item is missing")
    return items[0] if len(items) == 1 else Node("list", (joiner, *items))


def _at_colon(inside: Node) -> tuple[Node, Node] | None:
    """Return the value and the condition of `2k : k ∈ Z`, where the colon was read as that of a ratio."""
    first, *others = inside.args[1:] if inside.kind == "list" else (inside,)
    if first.kind != "relation":
        return None
    operators, *operands = first.args
    place = next((number for number, operand in enumerate(operands) if operand.kind == "ratio"), len(operators))
    if place == len(operators) or len(operands[place].args) != 2:
        return None
    value, name = operands[place].args
    if place:
        value = Node("relation", (operators[:place], *operands[:place], value))
    condition = Node("relation", (operators[place:], name, *operands[place + 1 :]))
    return value, _list(",", [condition, *others])
