r"""Comparing an answer with the reference: exactly where that can be proved, thoroughly otherwise.

The exact tier says equal or different only when it can prove it: from numbers read as fractions, from expressions in a
unique form (radicals, π, polynomials), and from tuples, sets and intervals of these. What it cannot read it hands to
the thorough one, math-verify. `Comparison.tier` and `Comparison.detail` tell which of them answered.

- A percentage equals the same percentage, the fraction it denotes (50% = 0.5 = 1/2), and the bare number before its
  sign (50% = 50), for a question that asks "what percentage" is answered in either way. But 0.5% does not equal 50%.
- Digits are not rounded: 0.333333 is not 1/3.
- A list of numbers without brackets is a set: `1, 2` equals `2, 1` and `\{1, 2\}`.
- Words around the one number of an answer are its unit and are not compared: `18 dollars` equals `18 apples`. Words
  without any number are no number, and neither are words with several.
"""

import enum
import re
import reprlib
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from agent_tunix.errors import BadReferenceError
from agent_tunix.rewards.answers.expressions import Collection, Expression, read_value
from agent_tunix.rewards.answers.numbers import Number, read_number, undressed
from agent_tunix.rewards.answers.thorough import LONGEST_THOROUGH, Verdict, ask

_NO_NUMBER_IN_IT = re.compile(
    r"(?: [^\W\d_πeiEI] | I(?=[ ][a-z]{2}) | [^\W\d_]{2,} | [\s.,;:!?'\"()*#-] )*+", re.VERBOSE
)
_PROSE = re.compile(
    r"(?: [A-Za-z]{2,}+ | a(?=\ ) | [$]?\d++(?:[.,]\d++)*+%?+ | [\s.,;:!?'\"] | (?<=[A-Za-z])-(?=[A-Za-z]) )*+",
    re.VERBOSE | re.ASCII,
)
_LONGEST_REMEMBERED = 80
_SPACED_THOUSANDS = re.compile(r"\d\s\d{3}(?!\d)", re.ASCII)
_DIGITS = re.compile(r"\d++", re.ASCII)
_SYMBOL_OF_NUMBERS = re.compile(r"[\d½-⅞]|\\(?!text|mathrm|mbox|quad)[A-Za-z]|[π∞√∅∪∩ℝ]")
_EMPTY_SET = re.compile(r"\\varnothing(?![A-Za-z])|\A\s*\\\{\s*\\\}\s*\Z|\A\s*∅\s*\Z")
_BASE = re.compile(r"([0-9A-Za-z]{1,100})_(?:(\d)|\{(\d{1,2})\})", re.ASCII)
_INFINITY = re.compile(r"\\infty(?![A-Za-z])")
_NAME = re.compile(r"[A-Za-z]\w{0,2}")
_WORD = re.compile(r"\\?[A-Za-z]{2,}")
_MATHEMATICAL_WORDS = frozenset(
    word
    for words in (
        "sin cos tan cot sec csc log ln exp sqrt pi mod max min deg det gcd lcm",
        "infty infinity inf and if cup cap",
    )
    for word in words.split()
)
_TEXT_COMMAND = re.compile(r"\\(?:text|mathrm|mbox|operatorname|begin|end)\{[^{}]*+\}")
_SIGN_OF_A_FORMULA = re.compile(r"\\[A-Za-z]|[<>≤≥=^_|!∪∩√π∞]|\d[,:]\d|\d[A-Za-df-z(]")


class Tier(enum.StrEnum):
    """Who compared."""

    EXACT = "exact"
    THOROUGH = "math-verify"


# A member of an enumeration is found through its class's metaclass.
_EQUAL, _DIFFERENT, _EXACT = Verdict.EQUAL, Verdict.DIFFERENT, Tier.EXACT


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity, so that it is a quick key of the cache below
class Reference:
    """A row's reference answer, read once.

    Attributes:
        text: As it is written.
        number: The one number it denotes, if it does.
        value: Its exact value, where it is a formula that can be read.
    """

    text: str
    number: Number | None
    value: Expression | Collection | None


class Comparison(NamedTuple):
    """An answer beside its reference.

    Attributes:
        verdict: Equal; different; or undecided, where neither tier could tell.
        detail: The comparison in words, with the tier.
        tier: Which tier answered.
        is_number: Whether the answer was read as one number.
        numbers: The answer and the reference, where both are numbers; of a percentage the reading that is nearest.
        timed_out: Whether it is undecided for lack of time.
    """

    verdict: Verdict
    detail: str
    tier: Tier = Tier.EXACT
    is_number: bool = False
    numbers: tuple[Fraction, Fraction] | None = None
    timed_out: bool = False

    @property
    def equal(self) -> bool:
        """Whether the answer is right."""
        return self.verdict is Verdict.EQUAL

    @property
    def relative_error(self) -> Fraction | None:
        """|answer − reference| / |reference|; None unless both are numbers, or if only the reference is 0."""
        if self.verdict is Verdict.EQUAL:
            return Fraction(0)
        return None if self.numbers is None else _relative_error(*self.numbers)

    def within(self, share: Fraction) -> bool:
        """Whether the answer lies within a share of the reference, at most."""
        if self.numbers is None:
            return self.verdict is Verdict.EQUAL
        given, true = self.numbers
        a, b, c, d = given.numerator, given.denominator, true.numerator, true.denominator
        # |a/b − c/d| ≤ share · |c/d|, both sides times b·d: no fraction has to be brought to its lowest terms.
        off, room = abs(a * d - c * b) * share.denominator, abs(c) * b * share.numerator
        return off <= room if c else a == 0


def read_reference(reference: Any) -> Reference:
    r"""A row's reference: a number, or a formula such as `\sqrt{2}`, `(1, 2)` or `x^2 + 1`.

    Raises:
        BadReferenceError: It is missing, empty, prose, or has more than one number outside a formula.
    """
    if isinstance(reference, str):
        read = _read_reference_text(reference)
        if read is not None:
            return read
    elif isinstance(reference, int | float) and not isinstance(reference, bool):
        try:
            number = read_number(str(reference))
        except ValueError:  # an int of more digits than Python will print
            number = None
        if number is not None:
            return Reference(number.text, number, None)
    raise BadReferenceError(f"the reference {excerpt(reference)} is not a number or a formula")


def compare_answers(answer: str | None, reference: Reference, *, thorough: bool = True) -> Comparison:
    """Compare a response's answer with the reference.

    Args:
        answer: As `extract_answer` gives it.
        reference: As `read_reference` gives it.
        thorough: Whether to ask the thorough tier where the exact one proves nothing.

    Returns:
        The comparison. Undecided only where neither tier could tell: where the thorough one ran out of time, or failed.
    """
    if answer is None:
        return _NO_ANSWER
    short = len(answer) <= _LONGEST_REMEMBERED
    exact = _compare_short(answer, reference) if short else _compare_exactly(answer, reference)
    if exact.verdict is not Verdict.UNDECIDED or not thorough:
        return exact
    verdict, reason, timed_out = ask(answer, reference.text)
    detail = _describe(answer, reference, verdict, Tier.THOROUGH) + (f": {reason}" if reason else "")
    return Comparison(verdict, detail, Tier.THOROUGH, exact.is_number, timed_out=timed_out)


_NO_ANSWER = Comparison(Verdict.DIFFERENT, "no answer was found")


def _compare_exactly(answer: str, reference: Reference) -> Comparison:
    number = read_number(answer)
    if number is not None and reference.number is not None and _same_subject(number, reference.number):
        return _compare_numbers(number, reference.number)
    verdict = _compare_formulas(answer, number, reference)
    return Comparison(verdict, _describe(answer, reference, verdict, Tier.EXACT), Tier.EXACT, number is not None)


# The completions of a group share their reference, and give few different answers.
_compare_short = lru_cache(maxsize=8192)(_compare_exactly)


def _describe(answer: str, reference: Reference, verdict: Verdict, tier: Tier) -> str:
    return f"the answer {excerpt(answer)} is {_RELATIONS[verdict]} {excerpt(reference.text)} ({tier})"


_RELATIONS = {
    Verdict.EQUAL: "equal to",
    Verdict.DIFFERENT: "different from",
    Verdict.UNDECIDED: "not comparable with",
}


def excerpt(value: object) -> str:
    """A value as it may stand in a message, however long it is."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else repr(value[:60]) + "…"
    try:
        return reprlib.repr(value)
    except ValueError:  # an int of more digits than Python will print
        return f"of type {type(value).__name__}"


@lru_cache(maxsize=4096)
def _read_reference_text(reference: str) -> Reference | None:
    text = reference.rpartition("####")[2].strip()
    number = read_number(text)
    if number is not None:
        return Reference(number.text, number, None)
    return Reference(text, None, read_value(text)) if _is_formula(text) else None


def _is_formula(text: str) -> bool:
    """Whether a text is mathematics rather than prose or a number gone wrong (`3/0`, `1.2.3`, `1e999999`)."""
    bare = _TEXT_COMMAND.sub(" ", text)
    if any(word.lower() not in _MATHEMATICAL_WORDS for word in _WORD.findall(bare) if not word.startswith("\\")):
        return False
    value = read_value(text)
    if not _SYMBOL_OF_NUMBERS.search(bare):
        return isinstance(value, Collection) or (isinstance(value, Expression) and len(value.terms) > 1)
    return value is not None or "\\begin{" in text or _SIGN_OF_A_FORMULA.search(bare) is not None


def _same_subject(one: Number, other: Number) -> bool:
    """Whether two numbers may answer the same: not `y = 5` and `x = 5`, nor `3` and `x + y = 3`."""
    if one.subject == other.subject or not _has_letters(other.subject):
        return True
    return not _has_letters(one.subject) and _NAME.fullmatch(other.subject) is not None


def _has_letters(text: str) -> bool:
    return any(character.isalpha() for character in text)


def _compare_numbers(number: Number, reference: Number) -> Comparison:
    if number.percent == reference.percent:
        numbers = number.written, reference.written
    else:  # just one has a percent sign, and may be meant in either way
        numbers = _nearest((number.written, reference.written), (number.value, reference.value))
    equal = numbers[0] == numbers[1]
    relation = "equal to" if equal else "different from"
    detail = f"the answer {excerpt(number.text)} is {relation} {excerpt(reference.text)} (exact)"
    return Comparison(_EQUAL if equal else _DIFFERENT, detail, _EXACT, True, numbers)


def _nearest(*readings: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    """The reading of two numbers in which they are nearest to each other."""
    errors = [_relative_error(*reading) for reading in readings]
    known = [error for error in errors if error is not None]
    return readings[errors.index(min(known))] if known else readings[0]


def _relative_error(given: Fraction, true: Fraction) -> Fraction | None:
    if given == true:
        return Fraction(0)
    return abs(given - true) / abs(true) if true else None


def _compare_formulas(answer: str, number: Number | None, reference: Reference) -> Verdict:
    """What can be proved where not both are single numbers."""
    if len(answer) <= LONGEST_THOROUGH and _canonical(answer) == _canonical(reference.text):
        return Verdict.EQUAL
    if (given_base := _in_base(answer)) and (true_base := _in_base(reference.text)):
        return Verdict.EQUAL if given_base == true_base else Verdict.DIFFERENT
    if number is None and reference.number is not None and (_holds_no_number(answer) or _is_prose(answer)):
        return Verdict.DIFFERENT
    if (number is not None and (number.percent or number.subject)) or (
        reference.number is not None and (reference.number.percent or reference.number.subject)
    ):
        return Verdict.UNDECIDED
    given = _value_of(number) if number is not None else read_value(answer)
    true = _value_of(reference.number) if reference.number is not None else reference.value
    if given is None or true is None:
        return Verdict.UNDECIDED
    return _compare_values(given, true)


def _in_base(text: str) -> tuple[int] | None:
    """The value of a number whose base is written below it, as in `1010_2`. math-verify takes no notice of the base."""
    found = _BASE.fullmatch(text.strip("$ .")) if "_" in text else None
    if found is None or not 2 <= (base := int(found[2] or found[3])) <= 36:
        return None
    try:
        return (int(found[1], base),)
    except ValueError:  # a digit that the base has not
        return None


def _value_of(number: Number) -> Expression:
    terms = (((1, ()), number.written),) if number.written else ()
    return Expression(terms, "." in number.text)


def _holds_no_number(text: str) -> bool:
    """Whether a text is words alone, or nothing at all."""
    return len(text) <= 2000 and _NO_NUMBER_IN_IT.fullmatch(undressed(text)) is not None


def _is_prose(text: str) -> bool:
    """Whether a text is words with several numbers among them, and no formula: `12 eggs for 5 people`."""
    if len(text) > LONGEST_THOROUGH or _PROSE.fullmatch(text) is None or _SPACED_THOUSANDS.search(text):
        return False
    words = [word.lower() for word in _WORD.findall(text) if len(word) > 2]
    return bool(words) and _MATHEMATICAL_WORDS.isdisjoint(words) and len(_DIGITS.findall(text)) > 1


def _canonical(text: str) -> str:
    """A formula without what does not change its meaning: spaces, sizes, and the kind of fraction."""
    if "\\" in text:
        text = re.sub(r"\\(?:left|right|[dt](?=frac)|[,;:! ]|displaystyle(?![A-Za-z]))", _keep_backslash, text)
        text = _EMPTY_SET.sub(r"\\emptyset", text)
        text = _INFINITY.sub("∞", text)
    words = text.split()
    spaces = (" " if one[-1].isalnum() and other[0].isdigit() else "" for one, other in pairwise(words))
    joined = "".join(part for pair in zip(words, [*spaces, ""], strict=False) for part in pair)
    return joined.removeprefix("$").removesuffix("$").removesuffix(".")


def _keep_backslash(found: re.Match[str]) -> str:
    return "\\" if found[0] in ("\\d", "\\t") else ""


def _compare_values(given: Expression | Collection, true: Expression | Collection) -> Verdict:
    if isinstance(given, Expression) and isinstance(true, Expression):
        return _compare_expressions(given, true)
    if isinstance(given, Collection) and isinstance(true, Collection):
        return _compare_collections(given, true)
    collection, single = (given, true) if isinstance(given, Collection) else (true, given)
    assert isinstance(collection, Collection)
    if collection.brackets != "{}" or len(collection.items) != 1:
        return Verdict.DIFFERENT if len(set(collection.items)) > 1 else Verdict.UNDECIDED
    (item,) = collection.items
    return Verdict.DIFFERENT if isinstance(item, str) else _compare_values(item, single)


def _compare_expressions(given: Expression, true: Expression) -> Verdict:
    if given.terms == true.terms:
        return Verdict.EQUAL
    if (given.has_decimals or true.has_decimals) and not (_is_rational(given) and _is_rational(true)):
        return Verdict.UNDECIDED  # √2 and 1.414214: rounded, perhaps
    return Verdict.DIFFERENT


def _is_rational(value: Expression) -> bool:
    return all(key == (1, ()) for key, _ in value.terms)


def _compare_collections(given: Collection, true: Collection) -> Verdict:
    unordered = given.brackets in ("", "{}") and true.brackets in ("", "{}")
    in_order = given.brackets == true.brackets or {given.brackets, true.brackets} == {"()", ""}
    if not unordered and not in_order:
        return Verdict.UNDECIDED
    same_kind = unordered or given.brackets == true.brackets
    one, other = list(given.items), list(true.items)
    if unordered:
        one, other = _distinct(one), _distinct(other)
    verdicts = [_compare_items(*pair) for pair in zip(one, other, strict=False)]
    if len(one) == len(other) and all(verdict is Verdict.EQUAL for verdict in verdicts):
        return Verdict.EQUAL
    if not same_kind or (unordered and _has_decimals(given, true)):
        return Verdict.UNDECIDED
    if len(one) != len(other) or unordered or Verdict.DIFFERENT in verdicts:
        return Verdict.DIFFERENT
    return Verdict.UNDECIDED


def _compare_items(one: Expression | str, other: Expression | str) -> Verdict:
    if isinstance(one, Expression) and isinstance(other, Expression):
        return _compare_expressions(one, other)
    return Verdict.EQUAL if one == other else Verdict.DIFFERENT


def _distinct(items: list[Expression | str]) -> list[Expression | str]:
    """The items, each once, in an order of their own."""
    by_terms = {str(item if isinstance(item, str) else item.terms): item for item in items}
    return [by_terms[key] for key in sorted(by_terms)]


def _has_decimals(*collections: Collection) -> bool:
    items = (item for collection in collections for item in collection.items)
    return any(isinstance(item, Expression) and item.has_decimals for item in items)
