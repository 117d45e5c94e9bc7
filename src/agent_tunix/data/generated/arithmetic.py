"""Products and sums of products that a tiny model cannot work out by itself, made from a seed alone.

The splits are disjoint by construction: a stable hash puts every expression in one split, whatever the words around it.
"""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Split = Literal["train", "test"]

MOST_PROBLEMS = 50_000

_TEST_SHARE = 1 / 8
_LEAST_ANSWER = 500
_QUESTIONS = ("What is {}?", "How much is {}?", "Calculate {}.", "Work out {}.")
_TWO_DIGITS, _THREE_DIGITS = range(12, 100), range(101, 1000)
_FORMS = (
    ("{} * {}", (_TWO_DIGITS, _TWO_DIGITS)),
    ("{} * {}", (_THREE_DIGITS, _TWO_DIGITS)),
    ("{} * {} + {}", (_TWO_DIGITS, _TWO_DIGITS, _TWO_DIGITS)),
    ("{} * {} + {} * {}", (_TWO_DIGITS, _TWO_DIGITS, _TWO_DIGITS, _TWO_DIGITS)),
)


@dataclass(frozen=True)
class ArithmeticProblem:
    """One problem."""

    question: str  # text put to the model, such as ``What is 47 * 86?``
    expression: str  # expression of the question, such as ``47 * 86``
    numbers: tuple[int, ...]
    answer: int  # exact value, 500 to 98,901

    def as_row(self) -> dict[str, str]:
        """Return the columns `question` and `answer`."""
        return {"question": self.question, "answer": str(self.answer)}


def make_arithmetic(split: Split, count: int, seed: int) -> list[dict[str, str]]:
    """Return rows with different expressions.

    The same arguments give the same rows on every machine, and fewer rows are a prefix of more.

    Args:
        split: Split to draw from; the two share no expression.
        count: Number of rows, 0 to `MOST_PROBLEMS`.
        seed: Any integer; decides the problems and their order.

    Returns:
        `count` rows ``{"question": "What is 47 * 86?", "answer": "4042"}``.

    Raises:
        ValueError: The split is unknown, or the count is out of range.
    """
    if not 0 <= count <= MOST_PROBLEMS:
        raise ValueError(f"count must be between 0 and {MOST_PROBLEMS}; got {count}")
    problems = draw_arithmetic(split, seed)
    return [next(problems).as_row() for _ in range(count)]


def draw_arithmetic(split: Split, seed: int) -> Iterator[ArithmeticProblem]:
    """Yield problems with different expressions, without end; at most `MOST_PROBLEMS` come quickly."""
    if split not in ("train", "test"):
        raise ValueError(f'split must be "train" or "test"; got {split!r}')
    # Python guarantees only random() to give the same sequence in every version, so all choices are built on it.
    uniform = random.Random(seed).random
    questions: set[str] = set()
    while True:
        form, ranges = _FORMS[int(uniform() * len(_FORMS))]
        numbers = tuple(choices[int(uniform() * len(choices))] for choices in ranges)
        question = _QUESTIONS[int(uniform() * len(_QUESTIONS))]
        expression = form.format(*numbers)
        answer = _value(numbers)
        if answer >= _LEAST_ANSWER and expression not in questions and _is_test(expression) == (split == "test"):
            questions.add(expression)
            yield ArithmeticProblem(question.format(expression), expression, numbers, answer)


def _value(numbers: tuple[int, ...]) -> int:
    """Return the value of `a * b`, `a * b + c` or `a * b + c * d`."""
    first, second, *others = numbers
    addend = others[0] * others[1] if len(others) == 2 else sum(others)
    return first * second + addend


def _is_test(expression: str) -> bool:
    # Not hash(), which is salted differently in every process.
    digest = hashlib.blake2b(expression.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") < _TEST_SHARE * 2**32
