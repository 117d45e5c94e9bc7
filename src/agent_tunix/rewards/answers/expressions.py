r"""Exact values beyond single numbers: radicals, π, unknowns, and tuples, sets and intervals of these.

An expression is brought into the form Σ cᵢ · √dᵢ · mᵢ, with cᵢ rational, dᵢ square-free and mᵢ a product of powers of
unknowns, π among them. This form is unique: square roots of different square-free numbers are linearly independent
over the rationals, and π is transcendental. So two expressions that are read here are equal exactly if their forms
are, and no approximation is made on the way. Whatever has another operation in it (functions, factorials, sums,
matrices, e, i, inequalities) or can be taken in two ways (`1/2x`, `sin x`) is left unread.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import gcd

from agent_tunix.rewards.answers.numbers import ascii_signs

# A product of powers of unknowns, sorted: (("x", 2), ("π", 1)).
Monomial = tuple[tuple[str, int], ...]
# From the square-free number under the root and the monomial to the coefficient, which is not 0.
Terms = dict[tuple[int, Monomial], Fraction]

_LONGEST = 200
_MOST_TERMS = 30
_LARGEST_EXPONENT = 64
_LARGEST_RADICAND = 10**7
_DEEPEST = 20
_MOST_BITS = 4000

_TOKEN = re.compile(
    r"""\s*+ (?:
        (?P<number> \d{1,40}(?:\.\d{1,40})? | \.\d{1,40} )
      | (?P<command> \\[A-Za-z]+ )
      | (?P<letter> [A-Za-zαβγθλμφω] )
      | (?P<symbol> [-+*/^(){}\[\]·×÷√π²³] )
    )""",
    re.VERBOSE | re.ASCII,
)
_TIDY = (
    (re.compile(r"\\(?:left|right|[bB]igg?[lr]?)(?![A-Za-z])"), ""),
    (re.compile(r"(?<=\d)(?:\{,\}|\\!,|,\\!)(?=\d{3})", re.ASCII), ","),
    (re.compile(r"\\[,;:! ]|~|\\q?quad(?![A-Za-z])|\\displaystyle(?![A-Za-z])"), " "),
    (re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])"), "π"),
    (re.compile(r"(?<=[\w)}])\s?\*\*\s?(?=[\w(])"), "^"),
    (re.compile(r"(?<![\d,.])([1-9]\d{0,2})((?:,\d{3})+)(?![\d,])", re.ASCII), r"\1\2"),
)
_COMMANDS = {"\\cdot": "*", "\\times": "*", "\\div": "÷", "\\pi": "π"}
_FRACTIONS = ("\\frac", "\\dfrac", "\\tfrac", "\\cfrac")
# e and i are numbers as often as unknowns; d and f often mean something else again.
_NOT_UNKNOWNS = frozenset("eiEIjJdDfFgG")
_NUMERIC = frozenset("0123456789.")
_WORD = re.compile(r"(?<!\\)(?<![A-Za-z\\])[A-Za-z]{2,}")
_SEPARATOR = re.compile(r",(?!\d)|;|\s(?:and|or)\s", re.ASCII)
_THOUSANDS = re.compile(r"(?<!\d)\d{1,3},\d{3}(?!\d)", re.ASCII)
_COMMAND_NAME = re.compile(r"\\[A-Za-z]+")


class _UnreadableError(Exception):
    """The expression has something in it that is not read here."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An exact value.

    Attributes:
        terms: The unique form, as pairs, sorted.
        has_decimals: Whether a decimal point was written, so that the writer may have rounded.
    """

    terms: tuple[tuple[tuple[int, Monomial], Fraction], ...]
    has_decimals: bool = False


@dataclass(frozen=True, slots=True)
class Collection:
    """Several values between brackets, or in a list.

    Attributes:
        brackets: "()", "[]", "(]", "[)", "{}", or "" for a list without brackets.
        items: The values; a string for an infinite bound, "oo" or "-oo".
    """

    brackets: str
    items: "tuple[Expression | str, ...]"


@lru_cache(maxsize=4096)
def read_value(text: str) -> Expression | Collection | None:
    """The exact value of an answer, or None if it cannot be read without doubt."""
    if len(text) > _LONGEST:
        return None
    text = _tidy(text)
    collection = _read_collection(text)
    return collection if collection is not None else _read_expression(text)


def _tidy(text: str) -> str:
    text = ascii_signs(text.strip())
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if text.startswith(opening) and text.endswith(closing) and len(text) >= len(opening) + len(closing):
            text = text[len(opening) : -len(closing)]
            break
    for pattern, replacement in _TIDY:
        text = pattern.sub(replacement, text)
    return text.strip().removesuffix(".").strip()


def _read_expression(text: str) -> Expression | None:
    if _WORD.search(_COMMAND_NAME.sub(" ", text)):
        return None
    try:
        parser = _Parser(list(_tokens(text)))
        return Expression(tuple(sorted(parser.whole().items())), "." in text)
    except _UnreadableError:
        return None


def _read_collection(text: str) -> Collection | None:
    text = re.sub(r"\\[lr]brace(?![A-Za-z])", lambda found: "\\{" if found[0] == "\\lbrace" else "\\}", text)
    text = text.replace("\\{", "⦃").replace("\\}", "⦄")
    pair = text[:1] + text[-1:]
    brackets = {"()": "()", "[]": "[]", "(]": "(]", "[)": "[)", "⦃⦄": "{}", "{}": "{}"}.get(pair, "")
    body = text[1:-1] if brackets else text
    parts = _split(body)
    if parts is None or (len(parts) < 2 and brackets not in ("{}",)):
        return None
    if not brackets and len(parts) < 3 and not _SEPARATOR.search(text):
        return None  # 12,34 may be one number
    if _THOUSANDS.search(body):
        return None  # so may 1,234
    items: list[Expression | str] = []
    for part in parts:
        infinite = re.fullmatch(r"([-+]?)\s*(?:\\infty|∞)", part)
        item = f"{infinite[1].strip('+')}oo" if infinite else _read_expression(part)
        if item is None:
            return None
        items.append(item)
    return Collection(brackets, tuple(items))


def _split(text: str) -> list[str] | None:
    """The parts between commas outside all brackets; None if brackets do not match or a part is empty."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        if character in "([{⦃":
            depth += 1
        elif character in ")]}⦄":
            depth -= 1
            if depth < 0:
                return None
        elif depth == 0 and character in ",;":
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    parts = [
        piece.strip()
        for part in parts
        for piece in re.split(r"\s(?:and|or)\s|\A(?:and|or)\s", part)
        if piece.strip() or not re.search(r"\b(?:and|or)\s", part)
    ]
    return parts if depth == 0 and all(parts) else None


def _tokens(text: str) -> Iterator[str]:
    place = 0
    text = text.rstrip()
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            raise _UnreadableError
        place = token.end()
        yield _COMMANDS.get(token[0].strip(), token[0].strip())


class _Parser:
    """A recursive descent over the tokens; each method reads one level of precedence."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = [*tokens, ""]
        self.place = 0
        self.depth = 0

    def whole(self) -> Terms:
        value = self.sum()
        if self.peek():
            raise _UnreadableError
        return value

    def peek(self) -> str:
        return self.tokens[self.place]

    def take(self, expected: str | None = None) -> str:
        token = self.tokens[self.place]
        if (expected is not None and token != expected) or not token:
            raise _UnreadableError
        self.place += 1
        return token

    def sum(self) -> Terms:
        value: Terms = {}
        sign = 1
        if self.peek() in ("+", "-"):
            sign = -1 if self.take() == "-" else 1
        while True:
            value = _add(value, self.product(), sign)
            if self.peek() not in ("+", "-"):
                return value
            sign = -1 if self.take() == "-" else 1

    def product(self) -> Terms:
        value = self.signed_power()
        divided = False
        while True:
            token = self.peek()
            if token in ("*", "·", "×"):
                self.take()
                value = _multiply(value, self.signed_power())
            elif token in ("/", "÷"):
                self.take()
                value = _divide(value, self.signed_power())
                divided = True
            elif token and token not in "+-)}]^":
                if divided or token[0] in _NUMERIC:
                    raise _UnreadableError  # 1/2x, or two numbers side by side
                if token in _FRACTIONS and self._is_number(self.place - 1):
                    value = _add(value, self._fraction_of_numbers(), 1)  # a mixed number
                else:
                    value = _multiply(value, self.power())
            else:
                return value

    def signed_power(self) -> Terms:
        if self.peek() == "-":
            self.take()
            return _multiply({(1, ()): Fraction(-1)}, self.power())
        return self.power()

    def power(self) -> Terms:
        base = self.atom()
        token = self.peek()
        if token in ("²", "³"):
            self.take()
            return _power(base, Fraction(2 if token == "²" else 3))
        if token != "^":
            return base
        self.take()
        exponent = self._argument() if self.peek() in ("{", "(") else self._exponent_digit()
        if self.peek() == "^":
            raise _UnreadableError
        if not exponent:
            return _power(base, Fraction(0))
        if list(exponent) != [(1, ())]:
            raise _UnreadableError
        return _power(base, exponent[1, ()])

    def atom(self) -> Terms:
        token = self.take()
        if token[0] in _NUMERIC:
            value = Fraction(token)
            return {(1, ()): value} if value else {}
        if token == "π" or (len(token) == 1 and token.isalpha()):
            if token in _NOT_UNKNOWNS:
                raise _UnreadableError
            return {(1, ((token, 1),)): Fraction(1)}
        if token in ("(", "{", "["):
            self.depth += 1
            if self.depth > _DEEPEST:
                raise _UnreadableError
            inside = self.sum()
            self.take({"(": ")", "{": "}", "[": "]"}[token])
            self.depth -= 1
            return inside
        if token in _FRACTIONS:
            return _divide(self._argument(), self._argument())
        if token in ("\\sqrt", "√"):
            root = 2
            if token == "\\sqrt" and self.peek() == "[":
                self.take()
                degree = self.take()
                self.take("]")
                root = int(degree) if degree in _NUMERIC - {"."} else 0
            return _root(self._argument(), root)
        raise _UnreadableError

    def _argument(self) -> Terms:
        r"""A braced or bracketed group, or one digit or letter: `\frac12`, `\sqrt2`."""
        token = self.peek()
        if token in ("{", "("):
            return self.atom()
        if token[:1] == ".":
            raise _UnreadableError  # a point is no digit
        if token and token[0] in _NUMERIC and len(token) > 1:
            self.tokens[self.place : self.place + 1] = [token[0], token[1:]]
        if token and (token[0] in _NUMERIC or token == "π" or (len(token) == 1 and token.isalpha())):
            return self.atom()
        raise _UnreadableError

    def _exponent_digit(self) -> Terms:
        token = self.peek()
        if token == "-":
            raise _UnreadableError
        if token and token[0] in _NUMERIC and len(token) > 1:
            raise _UnreadableError  # 2^10 in plain text is ten, in LaTeX one
        return self._argument()

    def _is_number(self, place: int) -> bool:
        return self.tokens[place].isdecimal()

    def _fraction_of_numbers(self) -> Terms:
        self.take()
        part = _divide(self._argument(), self._argument())
        if list(part) != [(1, ())] or not 0 < part[1, ()] < 1:
            raise _UnreadableError
        return part


def _add(one: Terms, other: Terms, sign: int) -> Terms:
    total = dict(one)
    for key, coefficient in other.items():
        total[key] = total.get(key, Fraction(0)) + sign * coefficient
    return _checked({key: value for key, value in total.items() if value})


def _multiply(one: Terms, other: Terms) -> Terms:
    total: Terms = {}
    for (radicand, monomial), coefficient in one.items():
        for (other_radicand, other_monomial), other_coefficient in other.items():
            common = gcd(radicand, other_radicand)  # √a · √b = g · √(ab/g²), square-free again
            inside = radicand * other_radicand // common**2
            powers = dict(monomial)
            for unknown, exponent in other_monomial:
                powers[unknown] = powers.get(unknown, 0) + exponent
            key = inside, tuple(sorted((unknown, exponent) for unknown, exponent in powers.items() if exponent))
            total[key] = total.get(key, Fraction(0)) + coefficient * other_coefficient * common
    return _checked({key: value for key, value in total.items() if value})


def _divide(one: Terms, other: Terms) -> Terms:
    if len(other) == 2 and all(not monomial for _, monomial in other):
        (first, a), (second, b) = other.items()  # a√m + b√n: multiply both by its conjugate
        conjugate = {first: a, second: -b}
        one, other = _multiply(one, conjugate), _multiply(other, conjugate)
    if len(other) != 1:
        raise _UnreadableError
    ((radicand, monomial), coefficient) = next(iter(other.items()))
    if any(unknown != "π" for unknown, _ in monomial):
        raise _UnreadableError  # the quotient is not defined everywhere
    inverse = tuple((unknown, -exponent) for unknown, exponent in monomial)
    return _multiply(one, {(radicand, inverse): 1 / (coefficient * radicand)})


def _power(base: Terms, exponent: Fraction) -> Terms:
    if exponent.denominator == 2 and abs(exponent.numerator) <= _LARGEST_EXPONENT:
        base, exponent = _root(base, 2), Fraction(exponent.numerator)
    if exponent.denominator != 1 or abs(exponent) > _LARGEST_EXPONENT or (exponent <= 0 and not base):
        raise _UnreadableError
    value: Terms = {(1, ()): Fraction(1)}
    for _ in range(abs(int(exponent))):
        value = _multiply(value, base)
    return value if exponent >= 0 else _divide({(1, ()): Fraction(1)}, value)


def _root(base: Terms, degree: int) -> Terms:
    if not base and degree >= 2:
        return {}
    if degree < 2 or list(base) != [(1, ())]:
        raise _UnreadableError
    value = base[1, ()]
    if degree == 2 and value > 0:
        outside, inside = _extract_square(value.numerator * value.denominator)
        return {(inside, ()): outside / value.denominator}
    top, bottom = _exact_root(abs(value.numerator), degree), _exact_root(value.denominator, degree)
    if top is None or bottom is None or (value < 0 and degree % 2 == 0):
        raise _UnreadableError
    return {(1, ()): Fraction(top if value > 0 else -top, bottom)}


def _extract_square(number: int) -> tuple[Fraction, int]:
    """`number` = outside² × inside, with a square-free inside."""
    if number == 1:
        return Fraction(1), 1
    if number > _LARGEST_RADICAND:
        raise _UnreadableError
    outside, inside, factor = 1, 1, 2
    while factor * factor <= number:
        while number % (factor * factor) == 0:
            number //= factor * factor
            outside *= factor
        if number % factor == 0:
            number //= factor
            inside *= factor
        factor += 1
    return Fraction(outside), inside * number


def _exact_root(number: int, degree: int) -> int | None:
    if number.bit_length() > 200:
        return None
    guess = round(number ** (1 / degree))
    return next((root for root in (guess - 1, guess, guess + 1) if root**degree == number), None)


def _checked(terms: Terms) -> Terms:
    if len(terms) > _MOST_TERMS or any(
        max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS for value in terms.values()
    ):
        raise _UnreadableError
    return terms
