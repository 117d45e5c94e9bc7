"""Rewards for the correct answer. A reference that cannot be compared is a bad reference, never a score of 0.

`math` and its variants compare numbers and formulas; `answer_correctness` compares any text.
"""

import logging
import re
import unicodedata
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cache
from typing import Any

from agent_tunix.errors import BadReferenceError, UndecidedAnswerError
from agent_tunix.rewards.answers import (
    Comparison,
    Source,
    Verdict,
    boxed_answer,
    compare_answers,
    extract_answer,
    find_answer,
    read_reference,
    tagged_answer,
)
from agent_tunix.rewards.answers.comparison import excerpt
from agent_tunix.rewards.answers.numbers import number_text
from agent_tunix.rewards.sample import Score

logger = logging.getLogger("agent_tunix.rewards")

_TENTH, _FIFTH = Fraction(1, 10), Fraction(1, 5)
_LATEX_TEXT = re.compile(r"\\(?:text|mathrm|mbox|textbf|mathbf)\{([^{}]*+)\}")
# A minus sign belongs to the number after it, except between two words ("2010-2014"), and to the word after it at the
# start of the text. A sign between two digits belongs to them (1.5, 1/5, 1:5). So do the signs of C++ and C# to C.
_NOT_A_WORD = re.compile(
    r"(?:(?!(?<!\w)-\d|\A-\w|(?<=\d)[.,/:]\d|(?<=[A-Za-z])(?:\+\+|\#)(?!\w)|(?<=[A-Za-z]\+)\+)[^\w])+|_+"
)
# `\w` lacks marks, such as the vowel signs of Hindi and the tones of Thai; each follows its letter.
_MARK_CATEGORIES = ("Mn", "Mc")
_VARIATION_SELECTORS = range(0xFE00, 0xFE10)
_FORMULA_SIGN = re.compile(
    r"[=<>^*/|\\{}$≤≥≠±√∞]|(?<![A-Za-z+])\+|(?<!\w)-(?=\s*[\dA-Za-z(]\b)|\w\s*[-+]\s*\d|[(\[]\s*-?\d"
)
_FORMULA_TOKEN = re.compile(r"\\[A-Za-z]+|[^\W\d_]+|\d+(?:[.,]\d+)*|[^\s\w$.,;:!?'\"`]|[,;](?=\s*\S)")
_LATEX_SPACE = re.compile(r"\\(?:left|right|[,;:! ]|q?quad)(?![A-Za-z])|~")
_ARTICLES = frozenset({"a", "an", "the"})


def math_reward(response: str, answer: Any, accept_expressions: bool = False) -> Score:
    r"""Compare the response's answer with the reference, as a number or formula. Range [0, 1].

    - 1.0: equal, in any notation
    - 0.5: a number within 10 % of the reference
    - 0.0: further off, no answer, or an answer that is neither a number nor a formula

    The answer is the last `<answer>…</answer>`, or else the last `\boxed{…}`, `#### …` or "the answer is …", or else
    the last number. Numbers and most formulas are compared exactly, all others by math-verify. The score's detail names
    the method. If math-verify exceeds its time limit, the outcome is `timeout`. An answer that was not worked out, such
    as `2 + 3` for 5, is wrong, unless `accept_expressions` is true.

    >>> math = get_reward_function("math")
    >>> math("<answer>$1,234.00</answer>", answer="1234"), math("It is 39.", answer="40"), math("No idea.", answer="40")
    (1.0, 0.5, 0.0)
    """
    value, detail = grade_answer(response, answer, accept_expressions)
    return Score(value, detail=detail)


def debug_reward(
    response: str, answer: Any, prompt: str = "", step: int = 0, accept_expressions: bool = False
) -> Score:
    """Score as `math` does, and log each completion with the reason for its score. Range [0, 1].

    >>> get_reward_function("debug")("The answer is 4", answer="4")
    1.0
    """
    score = math_reward(response, answer, accept_expressions)
    logger.info(
        "step %d: %s for %r to %r with the reference %r: %s", step, score.value, response, prompt, answer, score.detail
    )
    return score


def check_answer_reward(response: str, answer: Any, accept_expressions: bool = False) -> Score:
    """Score the distance between the tagged answer and the reference. Range [-1, 3].

    - 3.0: the text between the last `<answer>` and `</answer>` is exactly the reference
    - 1.5: it is the reference with white space around it, or the same number in another notation
    - 0.5: within 10 % of the reference
    - 0.25: within 20 %
    - -1.0: another number
    - -0.5: not a number
    - 0.0: no tagged answer, or an empty one

    >>> score = get_reward_function("check_answer")
    >>> [score(f"<answer>{text}</answer>", answer="1000") for text in ("1000", " 1,000 ", "950", "810", "7", "many")]
    [3.0, 1.5, 0.5, 0.25, -1.0, -0.5]
    """
    read_reference(answer)  # raises for a bad reference, even if the response has no answer
    tagged = tagged_answer(response)
    if tagged is None or not tagged.strip():
        return Score(0.0, detail="no answer between <answer> and </answer>")
    if tagged == (answer if isinstance(answer, str) else reference_text(answer)):
        return Score(3.0, detail="the answer is identical to the reference")
    comparison = _compare(tagged, answer, accept_expressions)
    if comparison.equal:
        value = 1.5
    elif not comparison.is_number:
        value = -0.5
    elif comparison.within(_TENTH):
        value = 0.5
    else:
        value = 0.25 if comparison.within(_FIFTH) else -1.0
    return Score(value, detail=comparison.detail)


def check_numbers_reward(response: str, answer: Any, accept_expressions: bool = False) -> Score:
    """Compare the response's answer with the reference, all or nothing. Range [0, 1.5].

    - 1.5: equal, in any notation
    - 0.0: otherwise

    >>> get_reward_function("check_numbers")("7 + 5 = 12", answer="12")
    1.5
    """
    comparison = _compare(extract_answer(response), answer, accept_expressions)
    return Score(1.5 if comparison.equal else 0.0, detail=comparison.detail)


def grade_answer(response: str, answer: Any, accept_expressions: bool = False) -> tuple[float, str]:
    """Return the value of `math`, and the reason for it."""
    comparison = _compare(extract_answer(response), answer, accept_expressions)
    if comparison.verdict is Verdict.EQUAL:
        return 1.0, comparison.detail
    return 0.5 if comparison.within(_TENTH) else 0.0, comparison.detail


def _compare(response_answer: str | None, answer: Any, accept_expressions: bool = False) -> Comparison:
    """Compare an answer with the reference.

    Raises:
        BadReferenceError: The reference is neither a number nor a formula.
        UndecidedAnswerError: math-verify exceeded its time limit, or failed.
    """
    comparison = compare_answers(response_answer, read_reference(answer), accept_expressions=accept_expressions)
    if comparison.verdict is Verdict.UNDECIDED:
        raise UndecidedAnswerError(comparison.detail, comparison.timed_out)
    return comparison


def answer_correctness_reward(response: str, answer: Any, accept_expressions: bool = False) -> Score:
    r"""Compare the response's answer with a reference of any kind. Range [0, 1].

    - 1.0: the same number or formula; or the same words, if the reference is neither
    - 0.0: otherwise

    Words are compared without case, articles, punctuation and LaTeX's `\text`. If no answer is marked, the whole
    response is compared.

    >>> score = get_reward_function("answer_correctness")
    >>> score("<answer>The Seine.</answer>", answer="Seine"), score(r"so \boxed{\frac{2}{4}}", answer="1/2")
    (1.0, 1.0)
    """
    try:
        reference = read_reference(answer)
    except BadReferenceError:
        return compare_texts(response, answer)
    if reference.is_words and (same := compare_texts(response, answer)).value:
        return same
    comparison = _compare(extract_answer(response), answer, accept_expressions)
    return Score(1.0 if comparison.equal else 0.0, detail=comparison.detail)


def compare_texts(response: str, answer: Any) -> Score:
    """Return 1 if the marked answer, or else the whole response, has the same words as the reference; else 0.

    Raises:
        BadReferenceError: The reference is missing, empty, or has no letter or digit.
    """
    reference = normal_text(reference_text(answer))
    if not reference:
        raise BadReferenceError(f"the reference {excerpt(answer)} has no words")
    response_answer = marked_answer(response)
    same = normal_text(response_answer) == reference
    relation = "the same words as" if same else "not the words of"
    return Score(1.0 if same else 0.0, detail=f"{excerpt(response_answer)} is {relation} {excerpt(answer)}")


def marked_answer(response: str) -> str:
    """Return the answer in tags, in a box or after `####`; without one, the whole response."""
    extraction = find_answer(response)
    is_marked = extraction is not None and extraction.source in (Source.TAGGED, Source.BOXED, Source.HASHES)
    return extraction.text if extraction is not None and is_marked else response.strip()


def reference_text(answer: Any) -> str:
    """Return a reference as text; raise BadReferenceError if it is neither text nor a number."""
    if isinstance(answer, str):
        text = answer.rpartition("####")[2].strip()
        return (boxed_answer(text) or text) if "\\boxed" in text else text
    if isinstance(answer, int | float | Decimal) and not isinstance(answer, bool):
        with suppress(ValueError, OverflowError, InvalidOperation):  # not finite, or more digits than Python writes
            return number_text(answer)
    raise BadReferenceError(f"the reference {excerpt(answer)} is not text")


@cache
def _mark_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return a pattern of a mark, and `_NOT_A_WORD` with marks as parts of words, unless they follow no letter."""
    marks = "".join(
        character
        for character in map(chr, range(0x300, 0x20000))
        if unicodedata.category(character) in _MARK_CATEGORIES and ord(character) not in _VARIATION_SELECTORS
    )
    return re.compile(f"[{marks}]"), re.compile(
        _NOT_A_WORD.pattern.replace(r"[^\w])+", rf"(?:[^\w{marks}][{marks}]*|\A[{marks}]+))+")
    )


def normal_text(text: str) -> str:
    r"""Return the words of a text without case, articles, punctuation and `\text`, one space apart.

    Text that holds mathematics keeps its signs, brackets and the case of single letters.

    >>> normal_text(r"\text{The  Seine}."), normal_text("up for $x<0$")
    ('seine', 'up for x < 0')
    """
    text = _LATEX_TEXT.sub(r"\1", text).replace("\N{MINUS SIGN}", "-")
    if _FORMULA_SIGN.search(text):
        tokens = _FORMULA_TOKEN.findall(_LATEX_SPACE.sub(" ", text))
        words = [token if len(token) == 1 or token[0] == "\\" else token.casefold() for token in tokens]
    else:
        text = unicodedata.normalize("NFC", text.casefold())
        not_a_word = _NOT_A_WORD
        if not text.isascii():
            mark, with_marks = _mark_patterns()
            not_a_word = with_marks if mark.search(text) else _NOT_A_WORD
        words = not_a_word.sub(" ", text).split()
    return " ".join([word for word in words if word not in _ARTICLES] or words)
