r"""Comparison of an answer with the reference.

There are three tiers. The detail of a comparison names the one that decided:

1. **exact**: both are numbers, or the same formula apart from spaces and the sizes of brackets and fractions;
2. **evaluated**: the grammar reads both; structures are compared part by part, expressions by evaluation;
3. **math-verify**: everything else.

- A percentage equals the same percentage, its fraction (50% = 0.5 = 1/2), and the bare number (50% = 50), because
  answers to a question for a percentage have all these forms. But 0.5% does not equal 50%.
- Digits are not rounded: 0.333333 is not 1/3. But a float with all its digits is: 0.3333333333333333 is.
- A list without brackets has no order: `1, 2` equals `2, 1` and `\{1, 2\}`.
- Words around the only number of an answer are its unit. Unknown units are not compared: `18 dollars` equals
  `18 apples`, but not `18 euros`. A text with no number or with several numbers does not count as a number.
- A sum or product of the right value is not worked out, and different from a number: `2 + 3` is not 5.
- The reference resolves ambiguities: `1,234` is one number if the reference is `1234`, and a pair if it is `(1, 234)`.
"""

import enum
import re
import reprlib
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from agent_tunix.errors import BadReferenceError
from agent_tunix.rewards.answers.equality import compare
from agent_tunix.rewards.answers.evaluation import (
    TooLargeError,
    UndefinedError,
    functions,
    number_of,
    rational,
    symbols,
)
from agent_tunix.rewards.answers.extraction import boxed_answer
from agent_tunix.rewards.answers.grammar import UnreadableError, parse
from agent_tunix.rewards.answers.numbers import Number, number_text, read_number, undressed
from agent_tunix.rewards.answers.scalars import SCALARS, is_evaluated, is_float_of, is_number, number_in_base
from agent_tunix.rewards.answers.thorough import LONGEST_THOROUGH, Verdict, ask
from agent_tunix.rewards.answers.tokens import as_cases, set_in_words, turn_inward
from agent_tunix.rewards.answers.tree import Node, constant, negative
from agent_tunix.rewards.answers.units import Unit, parse_unit, units_differ
from agent_tunix.rewards.answers.work import limited, remembered_by_length

_NO_NUMBER_IN_IT = re.compile(
    r"(?>(?: [^\W\d_πeiEI] | I(?=[ ][a-z]{2}) | [^\W\d_]{2,} | [\s.,;:!?'\"()*#-] )*)", re.VERBOSE
)
_PROSE = re.compile(
    r"(?>(?: [A-Za-z]{2,}+ | a(?=\ ) | [$]?\d++(?>(?:[.,]\d++)*)%?+ | [\s.,;:!?'\"] | (?<=[A-Za-z])-(?=[A-Za-z]) )*)",
    re.VERBOSE | re.ASCII,
)
_LONGEST_REMEMBERED = 80
# math-verify takes smaller numbers for 0.
_SMALLEST = 1e-10
_DIGITS = re.compile(r"\d++", re.ASCII)
_SPACED_THOUSANDS = re.compile(r"\d\s\d{3}(?!\d)", re.ASCII)
_EMPTY_SET = re.compile(r"\\varnothing(?![A-Za-z])|\A\s*\\\{\s*\\\}\s*\Z|\A\s*∅\s*\Z")
_SPACE = re.compile(r"\\[,;]")
_UPRIGHT_D = re.compile(r"\\(?:mathrm|operatorname|text)\s*\{d\}")
_INFINITY = re.compile(r"\\infty(?![A-Za-z])")
_NAME = re.compile(r"[A-Za-z]\w{0,2}")
_WORD = re.compile(r"\\?[A-Za-z]{2,}")
_DELIMITER = re.compile(r"(?<!\\)\$")
# Words of at least two letters, or one letter: not mathematics unless dollars or a backslash mark it.
_WORDS_ALONE = re.compile(
    r"[(\"']*(?: [A-Za-z] | (?:[A-Za-z]{2,}|[aAI])(?>(?:[\s,.'’-]+(?:[A-Za-z]{2,}|[aAI](?![A-Za-z])))*) )[)\"'.!?]*",
    re.VERBOSE,
)
# A query or a sentence: a long word first, and another one after it, without a relation. Capitals would be a product.
_LONG_WORDS = re.compile(
    r"(?![^\\$=<>≤≥]*[\\$=<>≤≥])[A-Za-z]{4,}(?![A-Za-z]).*?[\s(][A-Za-z]{4,}(?![A-Za-z])", re.DOTALL
)
_FACTORIAL = re.compile(r"[a-z]!")
_THREE_LETTERS = re.compile(r"[A-Za-z]{3}")
_TEXT_ALONE = re.compile(r"\s*\$*\s*\\(?:text|textbf|mathrm|mbox)\s*\{[^{}0-9]*+\}\s*\$*\.?\s*")
_MATHEMATICAL_WORDS = frozenset(
    word
    for words in (
        "sin cos tan cot sec csc log ln exp sqrt pi mod max min deg det gcd lcm",
        "infty infinity inf and or if cup cap cm mm km kg",
    )
    for word in words.split()
)
_OPERATOR = re.compile(r"\\(?:i{1,3}nt|oint|sum|prod|lim)(?![A-Za-z])")
_SHORT_WORD = re.compile(
    r"(?<![A-Za-z\\])(?:[b-df-hj-np-tv-z]+|[A-Za-z]{1,2}|d[a-zA-Z]d[a-zA-Z](?:d[a-zA-Z])?)(?![A-Za-z])"
)
_TEXT_COMMAND = re.compile(r"\\(?:text|mathrm|mbox|operatorname|begin|end)\{[^{}]*+\}")
_SIGN_OF_A_FORMULA = re.compile(r"\\[A-Za-z]|[<>≤≥=^_|!∪∩√π∞]|\d[,:]\d|\d[A-Za-df-z(]")
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+", re.ASCII)
_HUGE = re.compile(r"[-+$\s]*\d[\d.,]*[eE][-+]?\d{4,}\s*", re.ASCII)
_GROUP = re.compile(r"\{[^{}]*\}")
_BASE = re.compile(r"(-?[0-9A-Za-z]{1,100})_(?:(\d{1,2})|\{(\d{1,2})\})", re.ASCII)
_DECIMALS = re.compile(r"\.(\d+)", re.ASCII)
_CONSTANTS = frozenset(("e", "i"))
_NOTHING = frozenset(("n/a", "?"))
_WORD_THEN_NUMBER = re.compile(r"[A-Za-z]{2,}\s*,", re.ASCII)
_SEVERAL_PARTS = re.compile(
    r"""\n | [;] | ,(?!\d{3}(?!\d)) | \\[cl]?dots(?![A-Za-z]) | \\(?:text|mbox|mathrm) | \\lim(?![A-Za-z]) | \\\).*\\\(
      | (?<![A-Za-z\\])(?!(?:sin|cos|tan|cot|sec|csc|log|exp|sqrt|max|min|det|gcd|lcm|mod)(?![A-Za-z]))[A-Za-z]{3,}
        (?![A-Za-z*]*\})""",
    re.VERBOSE,
)


class Tier(enum.StrEnum):
    """The tier that compared."""

    EXACT = "exact"
    EVALUATED = "evaluated"
    THOROUGH = "math-verify"


# Looking up a member of an enumeration is slow.
_EQUAL, _DIFFERENT, _EXACT = Verdict.EQUAL, Verdict.DIFFERENT, Tier.EXACT


@dataclass(frozen=True, slots=True, eq=False)  # hashing by identity makes it a fast key of the cache below
class Reference:
    """A parsed reference answer."""

    text: str
    number: Number | None  # the number, if it is one
    formula: Node | None = None  # the parsed formula, if it is not a number
    is_words: bool = False  # True if it consists of words that name a formula: "all real numbers"

    @property
    def node(self) -> Node | None:
        """The tree that the grammar reads, or None."""
        return self.formula if self.number is None else _node(self.text, self.number)


class Comparison(NamedTuple):
    """The comparison of an answer with its reference."""

    verdict: Verdict  # equal, different, or undecided if no tier could decide
    detail: str  # the comparison in words, with the tier
    tier: Tier = Tier.EXACT
    is_number: bool = False  # True if the answer was read as one number
    # Answer and reference, if both are numbers. If only one has a percent sign: the reading that brings them nearest.
    numbers: tuple[Fraction, Fraction] | None = None
    timed_out: bool = False  # True if it is undecided because of a time limit

    @property
    def equal(self) -> bool:
        """True if the answer equals the reference."""
        return self.verdict is Verdict.EQUAL

    def within(self, share: Fraction) -> bool:
        """Return True if the answer differs from the reference by at most a share of the reference."""
        if self.numbers is None:
            return self.verdict is Verdict.EQUAL
        value, true = self.numbers
        a, b, c, d = value.numerator, value.denominator, true.numerator, true.denominator
        # |a/b − c/d| ≤ share · |c/d|, both sides times b·d, avoids reducing fractions.
        off, room = abs(a * d - c * b) * share.denominator, abs(c) * b * share.numerator
        return off <= room if c else a == 0


def read_reference(reference: Any) -> Reference:
    r"""Read a reference answer: a number, or a formula such as `\sqrt{2}`, `(1, 2)` or `x^2 + 1`.

    Raises:
        BadReferenceError: The reference is missing, empty or prose, or has several numbers outside a formula.
    """
    if isinstance(reference, str):
        read = _read_reference_text(reference)
        if read is not None:
            return read
    elif isinstance(reference, int | float | Decimal) and not isinstance(reference, bool):
        try:
            number = read_number(number_text(reference))
        except (ValueError, OverflowError, InvalidOperation):  # not finite, or more digits than Python writes
            number = None
        if number is not None:
            return Reference(number.text, number)
    raise BadReferenceError(f"the reference {excerpt(reference)} is not a number or a formula")


def compare_answers(
    answer: str | None, reference: Reference, *, thorough: bool = True, accept_expressions: bool = False
) -> Comparison:
    """Compare an answer from `extract_answer` with a reference from `read_reference`.

    Args:
        answer: The answer, or None if there is none.
        reference: The reference.
        thorough: If True, math-verify compares answers that the grammar cannot read. The comparison is then undecided
            only if math-verify exceeds its time limit or fails.
        accept_expressions: If True, `2 + 3` is equal to the reference 5. Otherwise a sum or product that the model did
            not work out is different from a number.
    """
    if answer is None:
        return _NO_ANSWER
    short = len(answer) <= _LONGEST_REMEMBERED
    if accept_expressions:
        ours = _compare_ourselves(answer, reference, accept_expressions=True)
    else:
        ours = _compare_short(answer, reference) if short else _compare_ourselves(answer, reference)
    if ours.verdict is not Verdict.UNDECIDED or not thorough:
        return ours
    if not (_is_one_formula(answer) and _is_one_formula(reference.text)):
        detail = (
            _describe(answer, reference, Verdict.DIFFERENT, Tier.EXACT)
            + ": they have parts that the grammar does not support, and math-verify compares only single formulas"
        )
        return Comparison(Verdict.DIFFERENT, detail, Tier.EXACT, ours.is_number)
    if _is_tiny(reference):
        detail = _describe(answer, reference, Verdict.DIFFERENT, Tier.EVALUATED)
        return Comparison(Verdict.DIFFERENT, detail, Tier.EVALUATED, ours.is_number)
    if not accept_expressions and _is_operator_for_value(answer, reference):
        detail = _describe(answer, reference, Verdict.DIFFERENT, Tier.EVALUATED) + ": it is not worked out"
        return Comparison(Verdict.DIFFERENT, detail, Tier.EVALUATED, ours.is_number)
    verdict, reason, timed_out = ask(answer, reference.text)
    detail = _describe(answer, reference, verdict, Tier.THOROUGH) + (f": {reason}" if reason else "")
    return Comparison(verdict, detail, Tier.THOROUGH, ours.is_number, timed_out=timed_out)


_NO_ANSWER = Comparison(Verdict.DIFFERENT, "no answer was found")


def _compare_ourselves(answer: str, reference: Reference, accept_expressions: bool = False) -> Comparison:
    number = read_number(answer)
    if number is not None and reference.number is not None and _same_subject(number, reference.number):
        if _units_differ(number, reference.number):
            detail = _describe(answer, reference, Verdict.DIFFERENT, Tier.EXACT) + ": another unit"
            return Comparison(Verdict.DIFFERENT, detail, Tier.EXACT, True)
        return _compare_numbers(number, reference.number)
    if len(answer) > LONGEST_THOROUGH:
        detail = f"no answer is read from more than {LONGEST_THOROUGH:,} characters"
        return Comparison(Verdict.DIFFERENT, detail, Tier.EXACT, number is not None)
    if _canonical(answer) == _canonical(reference.text):
        verdict, tier = Verdict.EQUAL, Tier.EXACT
    elif None not in (bases := (_in_base(answer), _in_base(reference.text))):
        verdict, tier = Verdict.EQUAL if bases[0] == bases[1] else Verdict.DIFFERENT, Tier.EXACT
    elif _is_no_answer_to(answer, number, reference):
        verdict, tier = Verdict.DIFFERENT, Tier.EXACT
    else:
        verdict, tier = _compare_nodes(answer, number, reference), Tier.EVALUATED
        if verdict is Verdict.EQUAL and not accept_expressions and _is_unevaluated(answer, number, reference):
            detail = f"the answer {excerpt(answer)} has the value of {excerpt(reference.text)}, but is not worked out"
            return Comparison(Verdict.DIFFERENT, f"{detail} ({tier})", tier, False)
    return Comparison(verdict, _describe(answer, reference, verdict, tier), tier, number is not None)


# The completions of a group share their reference and give few different answers, so most are in the cache.
_compare_short = lru_cache(maxsize=8192)(_compare_ourselves)


def _describe(answer: str, reference: Reference, verdict: Verdict, tier: Tier) -> str:
    return f"the answer {excerpt(answer)} is {_RELATIONS[verdict]} {excerpt(reference.text)} ({tier})"


_RELATIONS = {Verdict.EQUAL: "equal to", Verdict.DIFFERENT: "different from", Verdict.UNDECIDED: "not comparable with"}


def excerpt(value: object) -> str:
    """Return a value as text of limited length for messages."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else repr(value[:60]) + "…"
    try:
        return reprlib.repr(value)
    except ValueError:  # the int has more digits than Python converts to text
        return f"of type {type(value).__name__}"


@lru_cache(maxsize=4096)
def _read_reference_text(reference: str) -> Reference | None:
    text = reference.rpartition("####")[2].rstrip("\\ \n").strip()
    if "\\boxed" in text:  # the reference is a whole solution
        text = (boxed_answer(text) or "").strip()
    number = None if _WORD_THEN_NUMBER.match(text) else read_number(text)
    if number is not None:
        return Reference(text, number)
    if not any(map(str.isalnum, text)) and "\\" not in text and _EMPTY_SET.search(text) is None:
        return None if "∞" not in text else Reference(text, None, _node(text, None))
    is_words = _is_words(text)
    if text.lower() in _NOTHING or (is_words and text not in _CONSTANTS and set_in_words(text) is None):
        return None
    node = _node(text, None)
    return Reference(text, None, node, is_words) if node is not None or _is_formula(text) else None


def _is_words(text: str) -> bool:
    """Return True for words, and for a single letter, as in multiple choice; False for `ad-bc`."""
    if ("-" in text and _THREE_LETTERS.search(text) is None) or _FACTORIAL.fullmatch(text) is not None:
        return False
    if _LONG_WORDS.match(text) is not None:
        return True
    return _WORDS_ALONE.fullmatch(text) is not None or _TEXT_ALONE.fullmatch(text) is not None


def _is_formula(text: str) -> bool:
    """Return True for mathematics that the grammar does not read."""
    bare = _TEXT_COMMAND.sub(" ", text)
    if _OPERATOR.search(bare) is not None:  # `dx` is no word
        bare = _SHORT_WORD.sub(" ", bare)
    words = [word.lower() for word in _WORD.findall(bare) if not word.startswith("\\")]
    return _MATHEMATICAL_WORDS.issuperset(words) and _SIGN_OF_A_FORMULA.search(bare) is not None


@remembered_by_length
def _node(text: str, number: Number | None) -> Node | None:
    if number is not None and number.bound:
        return _node_of(number)
    try:
        node = parse(text)
        if node.kind not in ("list", "relation", "bracket"):
            with suppress(TooLargeError):
                limited(rational, node)  # it raises if the value does not exist
        return node
    except (UnreadableError, UndefinedError):
        return None if number is None else _node_of(number)


def _node_of(number: Number) -> Node:
    decimals = _DECIMALS.search(number.text)
    node = constant(number.written, len(decimals[1]) if decimals else 0)
    node = Node("percent", (node,)) if number.percent else node
    if number.bound:
        return _range(number.bound, node)
    return Node("relation", (("=",), _subject_node(number.subject), node)) if number.subject else node


def _range(bound: str, node: Node) -> Node:
    """Return the interval that a bound in words denotes: `(-∞, 5)` for "less than 5"."""
    infinity = Node("infinity", ())
    if bound in "<≤":
        return Node("bracket", ("()" if bound == "<" else "(]", negative(infinity), node))
    return Node("bracket", ("()" if bound == ">" else "[)", node, infinity))


def _subject_node(subject: str) -> Node:
    try:
        return parse(subject)
    except UnreadableError:
        return Node("symbol", (subject,))


def _same_subject(one: Number, other: Number) -> bool:
    """Return True if two numbers may answer the same question: not `y = 5` and `x = 5`, nor `5` and `at least 5`."""
    if one.bound != other.bound:
        return False
    if one.subject == other.subject or not _has_letters(other.subject):
        return True
    return not _has_letters(one.subject) and _NAME.fullmatch(other.subject) is not None


def _units_differ(answer: Number, true: Number) -> bool:
    """Return True if both numbers have units, which differ."""
    if not (answer.unit or "$" in answer.text) or not (true.unit or "$" in true.text):
        return False
    return units_differ(_unit(answer), _unit(true))


def _unit(number: Number) -> Unit | None:
    unit = number.unit or ("$" if number.text.count("$") == 1 else "")
    return parse_unit(unit) if unit else None


def _has_letters(text: str) -> bool:
    return any(character.isalpha() for character in text)


def _compare_numbers(number: Number, reference: Number) -> Comparison:
    if number.percent == reference.percent:
        numbers = number.written, reference.written
    else:  # only one has a percent sign, so it has two readings
        numbers = _nearest((number.written, reference.written), (number.value, reference.value))
    equal = numbers[0] == numbers[1] or _is_float(*numbers)
    relation = "equal to" if equal else "different from"
    detail = f"the answer {excerpt(number.text)} is {relation} {excerpt(reference.text)} (exact)"
    return Comparison(_EQUAL if equal else _DIFFERENT, detail, _EXACT, True, numbers)


def _is_float(answer: Fraction, true: Fraction) -> bool:
    """Return True if one number is the other as Python prints it: 0.30000000000000004 is 0.3."""
    if answer.denominator == true.denominator == 1:
        return False
    return is_float_of(answer, true) or is_float_of(true, answer)


def _nearest(*readings: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    """Return the reading, (answer, true), with the smallest relative difference."""
    errors = [_relative_error(*reading) for reading in readings]
    known_errors = [error for error in errors if error is not None]
    return readings[errors.index(min(known_errors))] if known_errors else readings[0]


def _relative_error(answer: Fraction, true: Fraction) -> Fraction | None:
    if answer == true:
        return Fraction(0)
    return abs(answer - true) / abs(true) if true else None


def _in_base(text: str) -> tuple[int] | None:
    """Return the value of a number with its base as a subscript, such as `1010_2`."""
    match = _BASE.fullmatch(text.strip("$ .")) if "_" in text else None
    if match is None or not 2 <= (base := int(match[2] or match[3])) <= 36:
        return None
    value = number_in_base(match[1], base)
    return None if value is None else (value,)


def _is_no_answer_to(answer: str, number: Number | None, reference: Reference) -> bool:
    """Return True if the answer cannot be right: words instead of a number, an unclosed bracket, 1e999999."""
    if number is None and reference.number is not None and (_holds_no_number(answer) or _is_prose(answer)):
        return True
    return _HUGE.fullmatch(answer) is not None or (_is_unbalanced(answer) and not _is_unbalanced(reference.text))


def _is_one_formula(text: str) -> bool:
    """Return True if a text is a single formula. Of several parts, math-verify compares some and ignores the others."""
    text = _SPACE.sub(" ", text)
    return (
        _SEVERAL_PARTS.search(text) is None
        and _GROUP.sub("", text).count("=") < 2
        and text.strip("$ .").count("$") == 0
    )


def _is_operator_for_value(answer: str, reference: Reference) -> bool:
    """Return True if the answer is a sum, an integral or a limit, and the reference a value without unknowns."""
    node = reference.node
    if _OPERATOR.search(answer) is None or _OPERATOR.search(reference.text) is not None:
        return False
    return node is not None and node.kind in SCALARS and not symbols(node)


def _is_tiny(reference: Reference) -> bool:
    """Return True if math-verify would find 0 equal to a reference."""
    value = None if reference.node is None else limited(number_of, reference.node)
    return value is not None and 0 < abs(value) < _SMALLEST


def _is_unbalanced(text: str) -> bool:
    """Return True if brackets are not closed or not opened. Different kinds may close each other, as in `[0, 1)`."""
    braces = rounds = 0
    text = as_cases(text)
    for character in turn_inward(text) if "[" in text or "]" in text else text:
        if character == "{":
            braces += 1
        elif character == "}":
            braces -= 1
        elif character in "([":
            rounds += 1
        elif character in ")]":
            rounds -= 1
        if braces < 0:
            return True
    return braces != 0 or rounds != 0


def _compare_nodes(answer: str, number: Number | None, reference: Reference) -> Verdict:
    """Compare trees. The form of the reference decides the meaning of commas in the answer."""
    true = reference.node
    if true is None:
        return Verdict.UNDECIDED
    answer_node = _answer_node(answer, number, several=true.kind in ("list", "bracket", "set"))
    if answer_node is None:
        return Verdict.UNDECIDED
    verdict = limited(_compare_trees, answer, reference, answer_node, true)
    has_value = "det" not in functions(answer_node) and _OPERATOR.search(answer) is None
    if verdict is None and has_value and (reference.number is not None or _are_constants(answer_node, true)):
        return Verdict.DIFFERENT  # the answer is too large to evaluate or has no value, but the reference is a number
    return Verdict.UNDECIDED if verdict is None else Verdict.EQUAL if verdict else Verdict.DIFFERENT


def _are_constants(*nodes: Node) -> bool:
    """Return True for values without unknowns, sums and integrals: math-verify errs if ours are too large."""
    return all(node.kind in SCALARS and node.kind != "operator" and not symbols(node) for node in nodes)


def _is_unevaluated(answer: str, number: Number | None, reference: Reference) -> bool:
    """Return True if the reference is a number, and the answer a sum or product of that value."""
    if number is not None or reference.node is None:
        return False
    subject = "" if reference.number is None else reference.number.subject
    if subject and _has_letters(subject) and _NAME.fullmatch(subject) is None:
        return False  # x + y = 3
    if reference.number is None and not is_number(reference.node):
        return False
    answer_node = _answer_node(answer, number, several=False)
    return answer_node is not None and not is_evaluated(answer_node)


def _compare_trees(answer: str, reference: Reference, answer_node: Node, true: Node) -> bool | None:
    verdict = compare(answer_node, true)
    if verdict is not True and "," in answer + reference.text:
        verdict = _compare_otherwise(answer, reference, answer_node, true) or verdict
    return verdict


def _compare_otherwise(answer: str, reference: Reference, answer_node: Node, true: Node) -> bool | None:
    """Compare with another meaning of commas: `1,22` is 1.22 beside a number, and `1,234` is a list beside a list."""
    try:
        if true.kind == "number" and _DECIMAL_COMMA.fullmatch(answer.strip()):
            return compare(parse(answer, "decimal"), true)
        if answer_node.kind == "number" and _DECIMAL_COMMA.fullmatch(reference.text) and true.kind == "list":
            return compare(answer_node, parse(reference.text, "decimal"))
        if answer_node.kind == "list" and true.kind == "number":
            return compare(answer_node, parse(reference.text, "separator"))
    except UnreadableError:
        pass
    return None


def _answer_node(answer: str, number: Number | None, *, several: bool) -> Node | None:
    if number is not None and number.bound:
        return _node_of(number)
    try:
        return parse(answer, "separator" if several else "number")
    except UnreadableError:
        return None if number is None else _node_of(number)


def _holds_no_number(text: str) -> bool:
    """Return True if a text is only words, or empty."""
    return len(text) <= 2000 and _NO_NUMBER_IN_IT.fullmatch(undressed(text)) is not None


def _is_prose(text: str) -> bool:
    """Return True if a text is words with several numbers, and not a formula: `12 eggs for 5 people`."""
    if len(text) > LONGEST_THOROUGH or _PROSE.fullmatch(text) is None or _SPACED_THOUSANDS.search(text):
        return False
    words = [word.lower() for word in _WORD.findall(text) if len(word) > 2]
    return bool(words) and _MATHEMATICAL_WORDS.isdisjoint(words) and len(_DIGITS.findall(text)) > 1


def _canonical(text: str) -> str:
    """Return a formula without spaces and commands for sizes of brackets and fractions, which have no meaning."""
    if "\\" in text:
        text = _UPRIGHT_D.sub("d", text)
        text = re.sub(r"\\(?:left|right|[dt](?=frac)|[,;:! ]|displaystyle(?![A-Za-z]))", _keep_backslash, text)
        text = _EMPTY_SET.sub(r"\\emptyset", text)
        text = _INFINITY.sub("∞", text)
    words = text.split()
    spaces = (" " if one[-1].isalnum() and other[0].isdigit() else "" for one, other in pairwise(words))
    joined = "".join(part for pair in zip(words, [*spaces, ""], strict=False) for part in pair)
    return _DELIMITER.sub("", joined).removesuffix(".") if joined.count("$") > 1 else joined.removesuffix(".")


def _keep_backslash(match: re.Match[str]) -> str:
    return "\\" if match[0] in ("\\d", "\\t") else ""
