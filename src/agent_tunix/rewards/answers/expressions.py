"""Parser of expressions: sums, products, powers, units and symbols, on a cursor over tokens."""

import re
from abc import ABC, abstractmethod
from fractions import Fraction

from agent_tunix.rewards.answers.numbers import MOST_DIGITS
from agent_tunix.rewards.answers.tokens import (
    CONDITIONAL_WORDS,
    RELATIONS,
    SET_OPERATIONS,
    STOPPING,
    VULGAR,
    Token,
    UnreadableError,
)
from agent_tunix.rewards.answers.tree import Node, constant, negative, product
from agent_tunix.rewards.answers.work import charge

DEEPEST = 40
_END = Token("end", "", False)
# Words after a number that are not its unit.
_SCALES = re.compile(
    r"""\b(?: hundred | thousand | million | billion | trillion | lakh | crore | dozen | half | mil | mio | mn | bn | tn
      | third | fourth | fifth | tenth | squared | cubed | times | factorial
      | not | isn | never | but | except | unless | wrong | incorrect | false )s?\b""",
    re.VERBOSE | re.IGNORECASE,
)


class Cursor(ABC):
    r"""A position in a list of tokens, with the current depth of nesting.

    Attributes:
        bars: Number of open `|`.
        in_cases: True within cases, whose rows `\\` separates; elsewhere it is a set difference.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = [*tokens, _END, _END]
        self.place = 0
        self.depth = 0
        self.bars = 0
        self.in_cases = False

    def peek(self) -> str:
        """Return the text of the next token. For words, return a space and the kind, so that no sign equals them."""
        token = self.tokens[self.place]
        return token.text if token.kind not in ("words", "upright", "word") else f" {token.kind}"

    def kind(self) -> str:
        """Return the kind of the next token."""
        return self.tokens[self.place].kind

    def is_words(self, ahead: int = 0) -> bool:
        """Return True if the next token, or the one `ahead` places after it, consists of words."""
        return self.tokens[self.place + ahead].kind in ("words", "upright")

    def take(self) -> Token:
        """Return the next token and move past it."""
        token = self.tokens[self.place]
        self.place += 1
        return token

    def skip(self, text: str) -> bool:
        """Move past the next token and return True if it has this text."""
        if self.peek() == text:
            self.place += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Move past the next token, which must have this text."""
        if not self.skip(text):
            raise UnreadableError(f"{text!r} is missing")

    def descend(self) -> None:
        """Go one level deeper; raise UnreadableError beyond the deepest level."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise UnreadableError("too deep")

    def ascend(self) -> None:
        """Go one level up."""
        self.depth -= 1

    @abstractmethod
    def items(self) -> Node:
        """Read one item, or several with separators between them."""

    @abstractmethod
    def item(self) -> Node:
        """Read a relation, a ratio, a set or an expression."""

    @abstractmethod
    def bracketed(self) -> Node:
        """Read a group in brackets, a tuple or an interval."""

    @abstractmethod
    def braced(self) -> Node:
        """Read a set in braces."""

    @abstractmethod
    def command(self) -> Node:
        """Read a command, with its arguments."""

    @abstractmethod
    def conditional(self, value: Node) -> Node:
        """Read the condition of a value, if any."""


class ExpressionParser(Cursor):
    """A recursive descent parser. Each method reads one level of precedence."""

    def sum(self) -> Node:
        """Read a sum of terms."""
        terms = [self.term()]
        while self.peek() in ("+", "-", "\\pm", "\\mp"):
            terms.append(self.term())
        return terms[0] if len(terms) == 1 else Node("sum", tuple(terms))

    def term(self) -> Node:
        """Read a term with its sign, if any."""
        sign = self.peek()
        if sign in ("+", "-", "\\pm", "\\mp"):
            self.take()
            self.descend()
            inner = self.term() if self.peek() in ("+", "-") else self.product()
            self.ascend()
            if sign == "+":
                return inner
            if sign == "-":
                return negative(inner)
            return Node("plusminus", (inner, 1 if sign == "\\pm" else -1))
        return self.product()

    def product(self) -> Node:
        """Read factors, joined by operators or side by side, with a unit, if any."""
        value = self.factor()
        while True:
            text = self.peek()
            if text in ("*", "\\cdot", "\\times", "\\bullet"):
                self.take()
                value = product(value, self.signed_factor())
            elif text in ("/", "\\div"):
                self.take()
                value = Node("quotient", (value, self.signed_factor()))
            elif self.is_condition():
                return value
            elif self.is_words() or (text == "(" and self.is_words(1)):
                return self.unit(value)
            elif self.starts_factor():
                value = self.juxtaposed(value)
            else:
                return value

    def signed_factor(self) -> Node:
        """Read a factor after its signs, if any."""
        if self.peek() in ("-", "+"):
            return negative(self.signed_factor()) if self.take().text == "-" else self.signed_factor()
        return self.factor()

    def starts_factor(self) -> bool:
        """Return True if the next token can start a factor."""
        text, kind = self.peek(), self.kind()
        if kind == "command":
            return text not in RELATIONS and text not in SET_OPERATIONS and text not in STOPPING
        if text == "|":
            return self.bars == 0
        return kind in ("number", "letter") or text in ("(", "[", "{", "\\{", "√") or text in VULGAR

    def juxtaposed(self, value: Node) -> Node:
        """Read a factor that follows without an operator, or the fraction of a mixed number."""
        text, kind = self.peek(), self.kind()
        whole = value.kind == "number" and value.args[0].denominator == 1 and not value.args[1]
        negated = value.kind == "negative" and value.args[0].kind == "number"
        if text in VULGAR and (whole or negated):
            self.take()
            return _mixed(value, VULGAR[text])
        if text == "\\frac" and (whole or negated):
            fraction = self.factor()
            if fraction.kind == "quotient" and all(part.kind == "number" for part in fraction.args):
                top, bottom = (part.args[0] for part in fraction.args)
                if bottom and 0 < top / bottom < 1:
                    return _mixed(value, top / bottom)
            return product(value, fraction)
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
        """Read the fraction of a mixed number in plain notation, such as `1 1/2`."""
        top = self.take()
        self.take()
        bottom = self.take()
        if not (top.text.isdecimal() and bottom.text.isdecimal() and 0 < int(top.text) < int(bottom.text)):
            raise UnreadableError("two numbers side by side")
        return _mixed(value, Fraction(int(top.text), int(bottom.text)))

    def is_condition(self) -> bool:
        """Return True if the next token is a word that a condition begins with."""
        return self.is_words() and self.tokens[self.place].text.lower() in CONDITIONAL_WORDS

    def unit(self, value: Node) -> Node:
        """Read the unit of a value: the words after it, up to the end of the item."""
        words = []
        while True:
            text = self.peek()
            if self.is_condition():
                break
            if self.is_words():
                words.append(self.take().text)
            elif text == "(" and self.is_words(1):
                self.take()
                words.append(self.unit_in_brackets())
            elif text == "/" and (self.is_words(1) or self.tokens[self.place + 1].kind == "letter"):
                words.append(self.take().text)
            elif text == "^":
                self.take()
                exponent = text_of(negative(self.argument()) if self.skip("-") else self.argument())
                if exponent not in ("2", "3", "-1", "-2", "-3"):
                    raise UnreadableError("a unit to another power")
                words.append("^" + exponent)
            elif words and self.kind() == "letter" and words[-1] in ("/", "per"):
                words.append(self.take().text)
            else:
                break
        name = " ".join(words)
        if name.lower() in ("percent", "pct", "percentage"):
            return Node("percent", (value,))
        if _SCALES.search(" ".join(words)) is not None:
            raise UnreadableError("a multiple in words")
        return Node("quantity", (value, name))

    def unit_in_brackets(self) -> str:
        """Read the rest of a unit in round brackets."""
        words = []
        while not self.skip(")"):
            if not self.is_words() and self.kind() not in ("word", "letter"):
                raise UnreadableError("a bracket is not closed")
            words.append(self.take().text)
        return "".join(words)

    def factor(self) -> Node:
        """Read a value with its exponents and other suffixes."""
        return self.postfix(self.atom())

    def postfix(self, value: Node) -> Node:
        """Read the suffixes of a value: exponent, degrees, factorial, percent sign, primes."""
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
        """Read the exponent of a base, or primes in its place."""
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
        """Read an exponent: a group, a letter, a call, or all digits of a number, as in plain text: `2^10`."""
        if self.kind() == "number":
            return number_node(self.take().text)
        if self.peek() == "+":
            self.take()
        argument = self.argument()
        if not self.skip("^"):
            return argument
        self.descend()
        exponent = self.exponent()
        self.ascend()
        return Node("power", (argument, exponent))

    def primed(self, base: Node) -> Node:
        """Return a symbol with one more prime."""
        if base.kind != "symbol":
            raise UnreadableError("a prime")
        return Node("symbol", (base.args[0] + "'",))

    def argument(self) -> Node:
        r"""Read the argument of a command: a group, or a single digit or letter, as in `\frac12`."""
        if self.peek() == "{":
            return self.group()
        if self.kind() == "number":
            token = self.tokens[self.place]
            if token.text[0] == ".":
                raise UnreadableError("a point is no digit")
            if len(token.text) > 1:
                return number_node(self.first_digit())
        return self.atom()

    def first_digit(self) -> str:
        """Return the first digit of the next token, a number, and leave the others."""
        text = self.tokens[self.place].text
        if text[1] in ".eE":
            raise UnreadableError("a point or an exponent after an argument")
        self.tokens[self.place] = Token("number", text[1:], False)
        return text[0]

    def group(self) -> Node:
        """Read a group in braces."""
        self.take()
        self.descend()
        bars, self.bars = self.bars, 0
        node = self.items()
        self.bars = bars
        self.ascend()
        self.expect("}")
        return node

    def atom(self) -> Node:
        """Read a number, a symbol, a command, a bracket, a set or an absolute value."""
        charge(5)
        token = self.tokens[self.place]
        if token.kind == "number":
            self.take()
            if self.peek() == "_":
                return self.based(token.text)
            return number_node(token.text)
        if token.kind == "letter":
            self.take()
            return self.symbol(token.text)
        if token.kind == "command":
            return self.command()
        if token.text == "√":
            self.take()
            return Node("call", ("root", self.root_argument(), number_node("2")))
        if token.text in VULGAR and token.kind == "symbol":
            self.take()
            return constant(VULGAR[token.text])
        if token.text == "{":
            return self.group()
        if token.text in ("(", "["):
            return self.bracketed()
        if token.text == "]":
            return self.bracketed()
        if token.text == "\\{":
            return self.braced()
        if token.text == "|" and token.kind == "symbol":
            self.take()
            self.bars += 1
            self.descend()
            inside = self.sum()
            self.ascend()
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
        """Read the argument of `√`: a number or an atom."""
        if self.kind() == "number":
            return number_node(self.take().text)
        self.descend()
        atom = self.atom()
        self.ascend()
        return atom

    def based(self, digits: str) -> Node:
        """Read the base of a number from its subscript."""
        self.take()
        base = self.argument()
        if base.kind != "number" or base.args[0].denominator != 1:
            raise UnreadableError("a base that is no number")
        return Node("based", (digits, int(base.args[0])))

    def symbol(self, name: str) -> Node:
        """Read the subscript and the end of a symbol."""
        if self.peek() == "_":
            self.take()
            name = f"{name}_{self.raw_argument()}"
        return self.symbol_end(name)

    def raw_argument(self) -> str:
        """Return the text of an argument that is part of a name: a subscript, or the text below an accent."""
        if self.kind() == "end":
            raise UnreadableError("a name without its end")
        if self.peek() != "{":
            token = self.take()
            if token.kind == "number" and len(token.text) > 1:
                self.place -= 1
                return self.first_digit()
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
        """Read the primes of a symbol and a number in brackets after it."""
        while self.skip("'"):
            name += "'"
        argument = self.tokens[self.place : self.place + 3]
        if [token.text for token in argument[::2]] == ["(", ")"] and argument[1].kind == "number":
            self.place += 3  # f(0) is not a product
            name += f"({argument[1].text})"
        return Node("symbol", (name,))


def number_node(text: str) -> Node:
    """Return the node of a number as written."""
    _, _, exponent = text.lower().partition("e")
    if len(text) > 2 * MOST_DIGITS or abs(int(exponent or 0)) > MOST_DIGITS:
        raise UnreadableError("too many digits")
    return constant(Fraction(text), len(text.partition("e")[0].partition(".")[2]))


def _mixed(whole: Node, part: Fraction) -> Node:
    if whole.kind == "negative":
        return negative(constant(whole.args[0].args[0] + part))
    return constant(whole.args[0] + part)


def text_of(node: Node) -> str:
    """Return a number or a symbol as text with its sign; `?` for others."""
    if node.kind == "negative":
        return "-" + text_of(node.args[0])
    return str(node.args[0]) if node.kind in ("number", "symbol") else "?"
