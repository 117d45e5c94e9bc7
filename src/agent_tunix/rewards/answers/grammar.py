r"""The grammar of mathematical answers: text, LaTeX, Unicode and plain notation become one kind of tree.

`parse` reads a whole answer: an expression, a relation, a list, a tuple, an interval, a set, a matrix or a ratio. It
raises `UnreadableError` for everything else, prose above all, and never guesses: `parse(r"\frac12 x")`,
`parse("x/2")` and `parse("½x")` are trees of the same value, and `parse("the value")` is none.

A tree is made of `Node`s; `KINDS` lists them.
"""

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from agent_tunix.rewards.answers.numbers import MOST_DIGITS
from agent_tunix.rewards.answers.tokens import (
    ACCENTS,
    ALIASES,
    FUNCTIONS,
    GREEK_COMMANDS,
    IGNORED_COMMANDS,
    RELATIONS,
    SET_OPERATIONS,
    STOPPING,
    VULGAR,
    Token,
    UnreadableError,
    tokens_of,
)

__all__ = ["KINDS", "LONGEST", "Node", "UnreadableError", "negative", "parse", "product", "walk"]

LONGEST = 2000
_DEEPEST = 40


class Node(NamedTuple):
    """A part of an answer.

    Attributes:
        kind: One of `KINDS`.
        args: Its parts: nodes, or plain values where `KINDS` says so.
    """

    kind: str
    args: tuple[Any, ...]


KINDS = {
    "number": "a Fraction, and how many digits were written after a decimal point",
    "symbol": "a name: a letter, with its subscript, primes and accents",
    "infinity": "nothing",
    "sum": "terms",
    "negative": "one term",
    "product": "factors",
    "quotient": "numerator, denominator",
    "power": "base, exponent",
    "call": "the name of a function, then its arguments",
    "percent": "one expression",
    "degrees": "one expression",
    "plusminus": "a term, and its sign: +1 for ±, -1 for ∓",
    "quantity": "an expression, and its unit as text",
    "based": "digits and base, as text and int",
    "relation": "the operators as a tuple of text, then the operands, one more than operators",
    "list": "the word that joins the items (',', 'or' or 'and'), then the items",
    "bracket": "the two brackets as text, then the items: a tuple or an interval",
    "set": "items",
    "builder": "the variable, the condition: {x | x > 0}",
    "operation": "'union', 'intersection' or 'difference', then sets",
    "named": "the name of a set: 'R', 'Z', 'empty'",
    "matrix": "rows, each a tuple of nodes",
    "ratio": "terms",
}


@lru_cache(maxsize=4096)
def parse(text: str, commas: str = "number") -> Node:
    """Read a whole answer.

    Args:
        text: The answer as it is written, with or without LaTeX delimiters.
        commas: What a comma (or a space) before three digits means: part of a `number` or a `separator`. With
            `decimal`, the only comma is a decimal point.

    Raises:
        UnreadableError: It cannot be read without doubt.

    >>> parse("(1, x]").kind, parse(r"x^2 < 4").kind, parse("1, 2 and 3").kind
    ('bracket', 'relation', 'list')
    """
    if len(text) > LONGEST:
        raise UnreadableError("too long")
    tokens = tokens_of(text, commas)
    if not tokens:
        raise UnreadableError("empty")
    try:
        node = _Parser(tokens).answer()
    except RecursionError:
        raise UnreadableError("too deep") from None
    if _depth(node) > 2 * _DEEPEST:
        raise UnreadableError("too deep")
    return node


def _depth(node: Node) -> int:
    depth, level = 0, [node]
    while level:
        depth += 1
        level = [part for one in level for part in one.args if isinstance(part, Node)]
    return depth


_END = Token("end", "", False)
_CLOSING = {"(": ")", "[": "]", "{": "}", "\\{": "\\}"}


class _Parser:
    """A recursive descent over the tokens; each method reads one level of precedence."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = [*tokens, _END, _END]
        self.place = 0
        self.depth = 0
        self.bars = 0

    # --- tokens ---

    def peek(self) -> str:
        token = self.tokens[self.place]
        return token.text if token.kind not in ("words", "upright", "word") else f" {token.kind}"

    def kind(self) -> str:
        return self.tokens[self.place].kind

    def is_words(self, ahead: int = 0) -> bool:
        return self.tokens[self.place + ahead].kind in ("words", "upright")

    def take(self) -> Token:
        token = self.tokens[self.place]
        self.place += 1
        return token

    def skip(self, text: str) -> bool:
        if self.peek() == text:
            self.place += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.skip(text):
            raise UnreadableError(f"{text!r} is missing")

    # --- the whole ---

    def answer(self) -> Node:
        node = self.items()
        if self.kind() != "end":
            raise UnreadableError(f"{self.tokens[self.place].text!r} is left over")
        return node

    def items(self) -> Node:
        """One item, or several with separators between them."""
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
                if self.kind() == "end":
                    break
            elif kind == "word":
                joiner = self.take().text
            else:
                break
            items.append(self.item())
        return Node("list", (",", *groups, _list(joiner, items))) if groups else _list(joiner, items)

    def item(self) -> Node:
        """A relation, a ratio, a set or an expression."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise UnreadableError("too deep")
        operands, operators = [self.operand()], []
        while (operator := RELATIONS.get(self.peek())) is not None:
            self.take()
            operators.append(operator)
            operands.append(self.operand())
        self.depth -= 1
        return Node("relation", (tuple(operators), *operands)) if operators else operands[0]

    def operand(self) -> Node:
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
        node = self.sum()
        if self.peek() == "\\\\":  # a set without another
            self.take()
            return Node("operation", ("difference", node, self.sum()))
        return node

    # --- expressions ---

    def sum(self) -> Node:
        terms = [self.term()]
        while self.peek() in ("+", "-", "\\pm", "\\mp"):
            terms.append(self.term())
        return terms[0] if len(terms) == 1 else Node("sum", tuple(terms))

    def term(self) -> Node:
        sign = self.peek()
        if sign in ("+", "-", "\\pm", "\\mp"):
            self.take()
            inner = self.term() if self.peek() in ("+", "-") else self.product()
            if sign == "+":
                return inner
            if sign == "-":
                return negative(inner)
            return Node("plusminus", (inner, 1 if sign == "\\pm" else -1))
        return self.product()

    def product(self) -> Node:
        value = self.factor()
        while True:
            text = self.peek()
            if text in ("*", "\\cdot", "\\times", "\\bullet"):
                self.take()
                value = product(value, self.signed_factor())
            elif text in ("/", "\\div"):
                self.take()
                value = Node("quotient", (value, self.signed_factor()))
            elif self.is_words() or (text == "(" and self.is_words(1)):
                return self.unit(value)
            elif self.starts_factor():
                value = self.juxtaposed(value)
            else:
                return value

    def signed_factor(self) -> Node:
        if self.peek() in ("-", "+"):
            return negative(self.signed_factor()) if self.take().text == "-" else self.signed_factor()
        return self.factor()

    def starts_factor(self) -> bool:
        text, kind = self.peek(), self.kind()
        if kind == "command":
            return text not in RELATIONS and text not in SET_OPERATIONS and text not in STOPPING
        if text == "|":
            return self.bars == 0
        return kind in ("number", "letter") or text in ("(", "[", "{", "\\{", "√") or text in VULGAR

    def juxtaposed(self, value: Node) -> Node:
        """A factor without a sign before it, or the fraction of a mixed number."""
        text, kind = self.peek(), self.kind()
        whole = value.kind == "number" and value.args[0].denominator == 1 and not value.args[1]
        negated = value.kind == "negative" and value.args[0].kind == "number"
        if text in VULGAR and (whole or negated):
            self.take()
            return _mixed(value, VULGAR[text])
        if text == "\\frac" and (whole or negated):
            start = self.place
            fraction = self.factor()
            if fraction.kind == "quotient" and all(part.kind == "number" for part in fraction.args):
                top, bottom = (part.args[0] for part in fraction.args)
                if bottom and 0 < top / bottom < 1:
                    return _mixed(value, top / bottom)
            self.place = start
        if kind == "number":
            if not whole and value.kind == "number":
                raise UnreadableError("two numbers side by side")
            if value.kind in ("number", "negative"):
                if (whole or negated) and self.tokens[self.place + 1].text == "/":
                    return self.plain_mixed(value)
                raise UnreadableError("two numbers side by side")
            if value.kind == "call" or not self.tokens[self.place].spaced:
                raise UnreadableError("a number after a factor")
        return product(value, self.factor())

    def plain_mixed(self, value: Node) -> Node:
        top = self.take()
        self.take()
        bottom = self.take()
        if bottom.kind != "number" or "." in top.text + bottom.text or not 0 < int(top.text) < int(bottom.text):
            raise UnreadableError("two numbers side by side")
        return _mixed(value, Fraction(int(top.text), int(bottom.text)))

    def unit(self, value: Node) -> Node:
        """The words after a value: its unit, up to the end of the item."""
        words = []
        while True:
            text = self.peek()
            if self.is_words():
                words.append(self.take().text)
            elif text == "(" and self.is_words(1):
                self.take()
                words.append(self.unit_in_brackets())
            elif text == "/" and self.is_words(1):
                words.append(self.take().text)
            elif text == "^":
                self.take()
                exponent = _text_of(negative(self.argument()) if self.skip("-") else self.argument())
                if exponent not in ("2", "3", "-1", "-2", "-3"):
                    raise UnreadableError("a unit to another power")
                words.append("^" + exponent)
            elif words and self.kind() == "letter" and words[-1] in ("/", "per"):
                words.append(self.take().text)
            else:
                break
        name = "".join(words)
        if name.lower() in ("percent", "pct", "percentage"):
            return Node("percent", (value,))
        if _SCALES.search(" ".join(words)) is not None:
            raise UnreadableError("a multiple in words")
        return Node("quantity", (value, name))

    def unit_in_brackets(self) -> str:
        words = []
        while not self.skip(")"):
            if not self.is_words() and self.kind() not in ("word", "letter"):
                raise UnreadableError("a bracket is not closed")
            words.append(self.take().text)
        return "".join(words)

    def factor(self) -> Node:
        return self.postfix(self.atom())

    def postfix(self, value: Node) -> Node:
        while True:
            text = self.peek()
            if text == "^":
                self.take()
                value = self.raised(value)
            elif text == "\\degrees":
                self.take()
                value = Node("degrees", (value,))
            elif text == "!":
                self.take()
                value = Node("call", ("factorial", value))
            elif text in ("%", "\\%"):
                self.take()
                value = Node("percent", (value,))
            elif text == "'" and value.kind == "symbol":
                self.take()
                value = Node("symbol", (value.args[0] + "'",))
            else:
                return value

    def raised(self, base: Node) -> Node:
        if self.skip("\\prime"):
            return self.primed(base)
        if self.peek() == "{" and self.tokens[self.place + 1].text in ("\\prime", "'"):
            self.take()
            while self.peek() in ("\\prime", "'"):
                self.take()
                base = self.primed(base)
            self.expect("}")
            return base
        if self.peek() == "-":
            self.take()
            return Node("power", (base, negative(self.exponent())))
        return Node("power", (base, self.exponent()))

    def exponent(self) -> Node:
        """A group, a letter, a call, or a whole number: `2^10` is read as plain text has it."""
        if self.kind() == "number":
            return _number(self.take().text)
        if self.peek() == "+":
            self.take()
        argument = self.argument()
        return Node("power", (argument, self.exponent())) if self.skip("^") else argument

    def primed(self, base: Node) -> Node:
        if base.kind != "symbol":
            raise UnreadableError("a prime")
        return Node("symbol", (base.args[0] + "'",))

    def argument(self) -> Node:
        r"""The argument of a command: a group, or a single digit or letter, as in `\frac12`."""
        if self.peek() == "{":
            return self.group("{")
        if self.kind() == "number":
            token = self.tokens[self.place]
            if token.text[0] == ".":
                raise UnreadableError("a point is no digit")
            if len(token.text) > 1:
                self.tokens[self.place] = Token("number", token.text[1:], False)
                if self.tokens[self.place].text[0] == ".":
                    raise UnreadableError("a point after an argument")
                return _number(token.text[0])
        return self.atom()

    def group(self, opening: str) -> Node:
        self.take()
        self.depth += 1
        if self.depth > _DEEPEST:
            raise UnreadableError("too deep")
        bars, self.bars = self.bars, 0
        node = self.items() if opening == "{" else self.item()
        self.bars = bars
        self.depth -= 1
        self.expect(_CLOSING[opening])
        return node

    def atom(self) -> Node:
        token = self.tokens[self.place]
        if token.kind == "number":
            self.take()
            if self.peek() == "_":
                return self.based(token.text)
            return _number(token.text)
        if token.kind == "letter":
            self.take()
            return self.symbol(token.text)
        if token.kind == "command":
            return self.command()
        if token.text == "√":
            self.take()
            return Node("call", ("root", self.root_argument(), _number("2")))
        if token.text in VULGAR and token.kind == "symbol":
            self.take()
            return _fraction(VULGAR[token.text])
        if token.text == "{":
            return self.group("{")
        if token.text in ("(", "["):
            return self.bracketed()
        if token.text == "]":
            return self.bracketed()
        if token.text == "\\{":
            return self.braced()
        if token.text == "|" and token.kind == "symbol":
            self.take()
            self.bars += 1
            inside = self.sum()
            self.bars -= 1
            self.expect("|")
            return Node("call", ("abs", inside))
        if token.kind == "upright":
            self.take()
            letters = [Node("symbol", (letter,)) for letter in token.text[:-1]]
            last = self.symbol(token.text[-1])
            return Node("product", (*letters, last)) if letters else last
        raise UnreadableError(f"{token.text!r} where a value is expected")

    def root_argument(self) -> Node:
        if self.kind() == "number":
            return _number(self.take().text)
        return self.atom()

    def based(self, digits: str) -> Node:
        self.take()
        base = self.argument()
        if base.kind != "number" or base.args[0].denominator != 1:
            raise UnreadableError("a base that is no number")
        return Node("based", (digits, int(base.args[0])))

    def symbol(self, name: str) -> Node:
        if self.peek() == "_":
            self.take()
            name = f"{name}_{self.raw_argument()}"
        return self.symbol_end(name)

    def raw_argument(self) -> str:
        """The text of an argument, which is part of a name: a subscript, or what stands below an accent."""
        if self.kind() == "end":
            raise UnreadableError("a name without its end")
        if self.peek() != "{":
            token = self.take()
            if token.kind == "number" and len(token.text) > 1:
                self.place -= 1
                self.tokens[self.place] = Token("number", token.text[1:], False)
                return token.text[0]
            return token.text
        texts: list[str] = []
        depth = 0
        while True:
            token = self.take()
            if token.kind == "end":
                raise UnreadableError("a brace is not closed")
            depth += (token.text == "{") - (token.text == "}")
            if not depth:
                return "".join(texts[1:])
            texts.append(token.text)

    def symbol_end(self, name: str) -> Node:
        while self.skip("'"):
            name += "'"
        argument = self.tokens[self.place : self.place + 3]
        if [token.text for token in argument[::2]] == ["(", ")"] and argument[1].kind == "number":
            self.place += 3  # f(0) is no product
            name += f"({argument[1].text})"
        return Node("symbol", (name,))

    def bracketed(self) -> Node:
        """A group in brackets, a tuple or an interval."""
        opening = self.take().text
        self.depth += 1
        if self.depth > _DEEPEST:
            raise UnreadableError("too deep")
        bars, self.bars = self.bars, 0
        inside = self.items()
        self.bars = bars
        self.depth -= 1
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
        r"""A set: `\{1, 2\}` or `\{x | x > 0\}`."""
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
        if inside.kind == "ratio" and len(inside.args) == 2 and inside.args[1].kind == "relation":
            return Node("builder", inside.args)
        return Node("set", inside.args[1:] if inside.kind == "list" else (inside,))

    def command(self) -> Node:
        name = self.take().text[1:]
        if name == "frac":
            return self.fraction()
        if name == "sqrt":
            return self.root()
        if name in FUNCTIONS:
            return self.call(ALIASES.get(name, name))
        if name in ("infty", "infinity", "inf", "oo"):
            return Node("infinity", ())
        if name in GREEK_COMMANDS:
            return self.symbol(name)
        if name in ("binom", "dbinom", "tbinom"):
            return Node("call", ("binomial", self.argument(), self.argument()))
        if name.startswith("set") and len(name) == 4:
            return self.named_set(name[3])
        if name in ("emptyset", "varnothing", "oslash"):
            return Node("named", ("empty",))
        if name in ACCENTS:
            inside = self.raw_argument()
            accent = "" if name in ("mathbf", "boldsymbol", "bm", "mathcal") else name + ":"
            return self.symbol(f"{accent}{inside}")
        if name in ("lfloor", "lceil", "lvert", "langle", "lbrace", "lvert"):
            return self.fenced(name)
        if "\\" + name in IGNORED_COMMANDS:
            return self.factor()
        if name == "begin":
            return self.environment()
        raise UnreadableError(f"\\{name} is not read")

    def fraction(self) -> Node:
        derivative = self.derivative()
        if derivative is not None:
            return derivative
        return Node("quotient", (self.argument(), self.argument()))

    def derivative(self) -> Node | None:
        r"""`\frac{dy}{dx}` as one symbol, so that the letters do not cancel."""
        texts: list[str] = []
        place, groups = self.place, 0
        while groups < 2 and place < len(self.tokens) and place - self.place < 12:
            token = self.tokens[place]
            texts.append(token.text)
            groups += token.text == "}"
            place += 1
        found = re.fullmatch(
            r"\{(d|\\partial)(?:\^\{?2\}?)?(\\?\w*)\}\{(d|\\partial)(\\?\w+)(?:\^\{?2\}?)?\}", "".join(texts)
        )
        if found is None:
            return None
        self.place = place
        return Node("symbol", ("".join(texts),))

    def root(self) -> Node:
        degree = _number("2")
        if self.peek() == "[":
            self.take()
            degree = self.item()
            self.expect("]")
        if self.peek() == "(":
            return Node("call", ("root", self.bracketed(), degree))
        return Node("call", ("root", self.argument(), degree))

    def call(self, name: str) -> Node:
        power: Node | None = None
        base: Node | None = None
        while self.peek() in ("^", "_"):
            if self.take().text == "_":
                base = self.argument()
            else:
                power = negative(self.exponent()) if self.skip("-") else self.exponent()
        if name in ("max", "min", "gcd", "lcm"):
            inside = self.bracketed() if self.peek() == "(" else self.braced()
            return Node("call", (name, *(inside.args[1:] if inside.kind == "bracket" else inside.args)))
        argument = self.call_argument()
        if power is not None and power == negative(_number("1")) and name in ("sin", "cos", "tan", "cot"):
            return Node("call", ("arc" + name, argument))
        arguments = (argument,) if base is None else (argument, base)
        value = Node("call", (name, *arguments))
        return value if power is None else Node("power", (value, power))

    def call_argument(self) -> Node:
        if self.peek() in ("(", "[", "|") and not (self.peek() == "|" and self.bars):
            return self.atom()
        if self.peek() == "-":
            self.take()
            return negative(self.call_argument())
        value = self.factor()
        while True:
            text = self.peek()
            if self.kind() == "command" and (text[1:] in FUNCTIONS or text in STOPPING or text in RELATIONS):
                return value
            if self.kind() not in ("letter", "command", "number") and text not in ("{", "√"):
                if text == "/" and self.tokens[self.place + 1].kind == "number" and not self.tokens[self.place].spaced:
                    self.take()
                    value = Node("quotient", (value, self.factor()))
                    continue
                return value
            if not self.starts_factor() or self.kind() == "number":
                return value
            value = product(value, self.factor())

    def named_set(self, name: str) -> Node:
        if self.skip("^"):
            return Node("named", (f"{name}^{_text_of(self.argument())}",))
        return Node("named", (name,))

    def fenced(self, name: str) -> Node:
        closing = {
            "lfloor": "\\rfloor",
            "lceil": "\\rceil",
            "lvert": "\\rvert",
            "langle": "\\rangle",
            "lbrace": "\\rbrace",
        }
        bars, self.bars = self.bars, 0
        inside = self.items()
        self.bars = bars
        self.expect(closing[name])
        if name == "langle":
            return Node("bracket", ("()", *inside.args[1:]))
        if name == "lbrace":
            return Node("set", inside.args[1:] if inside.kind == "list" else (inside,))
        return Node("call", ({"lfloor": "floor", "lceil": "ceiling", "lvert": "abs"}[name], inside))

    def environment(self) -> Node:
        """A matrix, row by row."""
        name = self.environment_name()
        if name not in ("pmatrix", "bmatrix", "vmatrix", "matrix", "array", "Bmatrix", "smallmatrix"):
            raise UnreadableError(f"the environment {name}")
        if name == "array":
            while self.kind() != "end" and self.take().text != "}":
                pass
        rows: list[tuple[Node, ...]] = []
        row: list[Node] = []
        while True:
            if self.peek() == "\\end":
                self.take()
                self.environment_name()
                break
            if self.skip("\\\\"):
                rows.append(tuple(row))
                row = []
                continue
            if self.skip("&") or self.skip(",") or self.skip("\\hline"):
                continue
            row.append(self.sum())
        if row:
            rows.append(tuple(row))
        if not rows or len({len(one) for one in rows}) != 1:
            raise UnreadableError("a matrix of unequal rows")
        return Node("call", ("det", Node("matrix", tuple(rows)))) if name == "vmatrix" else Node("matrix", tuple(rows))

    def environment_name(self) -> str:
        self.expect("{")
        name = ""
        while not self.skip("}"):
            if self.kind() == "end":
                raise UnreadableError("an environment without a name")
            name += self.take().text.lstrip("\\")
        return name


_SCALES = re.compile(
    r"\b(?:hundred|thousand|million|billion|trillion|lakh|crore|dozen|half|third|fourth|fifth|tenth|not|isn|never|but|except|unless|wrong|incorrect|false|squared|cubed|times|factorial|mil|mio|mn|bn|tn)s?\b",
    re.IGNORECASE,
)


def negative(node: Node) -> Node:
    """Return the node with the other sign."""
    return Node("negative", (node,))


def product(one: Node, other: Node) -> Node:
    """Return the product of two nodes, flat."""
    factors = one.args if one.kind == "product" else (one,)
    return Node("product", (*factors, other))


def _list(joiner: str, items: list[Node]) -> Node:
    if not items:
        raise UnreadableError("an item is missing")
    return items[0] if len(items) == 1 else Node("list", (joiner, *items))


def _number(text: str) -> Node:
    _, _, exponent = text.lower().partition("e")
    if len(text) > 2 * MOST_DIGITS or abs(int(exponent or 0)) > MOST_DIGITS:
        raise UnreadableError("too many digits")
    return Node("number", (Fraction(text), len(text.partition("e")[0].partition(".")[2])))


def _fraction(value: Fraction) -> Node:
    return Node("number", (value, 0))


def _mixed(whole: Node, part: Fraction) -> Node:
    if whole.kind == "negative":
        return negative(_fraction(whole.args[0].args[0] + part))
    return _fraction(whole.args[0] + part)


def _text_of(node: Node) -> str:
    if node.kind == "negative":
        return "-" + _text_of(node.args[0])
    return str(node.args[0]) if node.kind in ("number", "symbol") else "?"


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
