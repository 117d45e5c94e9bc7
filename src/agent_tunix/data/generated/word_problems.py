"""Templated two-step word problems in GSM8K's schema, made from a seed alone.

A problem is a template, three numbers, a name and a thing. The splits are disjoint by construction: a stable hash
puts every pair of template and numbers in one split, so a test problem is never a training problem with another name.
"""

import hashlib
import operator
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Literal

Split = Literal["train", "test"]

_TEST_SHARE = 1 / 8
_LARGEST_ANSWER = 99

_SHE = ("Mia", "Ana", "Eva", "Lily", "Nora", "Ruth", "Zoe", "Kate")
_HE = ("Ben", "Sam", "Tom", "Max", "Leo", "Noah", "Omar", "Jack")
_PEOPLE = tuple((name, "she") for name in _SHE) + tuple((name, "he") for name in _HE)
_THINGS = ("pens", "apples", "cards", "books", "shells", "beads", "stamps", "coins", "cakes", "balls")

_SMALL = range(2, 10)
_ADDEND = range(3, 13)
_TOTAL = range(11, 30)
_SHARED_OUT = range(4, 61)
_FEW = range(2, 7)
_PURSE = range(20, 100, 10)


@dataclass(frozen=True)
class WordProblem:
    """One problem with its worked solution."""

    kind: str  # The two operations in the order worked, e.g. ``"a*b+c"``.
    question: str
    steps: tuple[str, str]  # Both steps as ``expression=result``, e.g. ``("3*4=12", "12+12=24")``.
    partial: int  # result of the first step, a likely wrong answer; never equal to ``answer``
    answer: int  # final result, 1 to 99

    @property
    def worked(self) -> str:
        """Both steps on one line, e.g. ``3*4=12; 12+12=24``."""
        return "; ".join(self.steps)

    def as_row(self) -> dict[str, str]:
        """Return the problem in GSM8K's schema; the answer is the worked solution, then ``#### 24`` on its own line."""
        return {"question": self.question, "answer": f"{self.worked}\n#### {self.answer}"}


@dataclass(frozen=True)
class _Template:
    kind: str
    text: str
    ranges: tuple[range, range, range]

    def decorations(self) -> int:
        """Return the number of ways to fill in a name and a thing."""
        return len(_PEOPLE) * (len(_THINGS) if "{thing}" in self.text else 1)

    def problem(self, numbers: tuple[int, int, int], decoration: int) -> WordProblem:
        work = _work(self.kind, *numbers)
        assert work is not None
        steps, partial, answer = work
        thing, person = divmod(decoration, len(_PEOPLE))
        name, pronoun = _PEOPLE[person]
        a, b, c = numbers
        question = self.text.format(name=name, they=pronoun, thing=_THINGS[thing], a=a, b=b, c=c)
        return WordProblem(self.kind, question, steps, partial, answer)


_TEMPLATES = (
    _Template(
        "a*b+c",
        "{name} has {a} bags of {b} {thing} and {c} more. How many {thing} does {they} have?",
        (_SMALL, _SMALL, _ADDEND),
    ),
    _Template(
        "a*b+c",
        "{name} reads {a} pages a day for {b} days, then {c} more. How many pages in all?",
        (_SMALL, _SMALL, _ADDEND),
    ),
    _Template(
        "a*b-c",
        "{name} fills {a} boxes with {b} {thing} each, then gives {c} away. How many {thing} are left?",
        (_SMALL, _SMALL, _ADDEND),
    ),
    _Template(
        "a*b-c",
        "{name} sees {a} rows of {b} {thing} and takes {c}. How many {thing} remain?",
        (_SMALL, _SMALL, _ADDEND),
    ),
    _Template(
        "c-a*b",
        "{name} has {c} dollars and buys {a} {thing} for {b} dollars each. How many dollars are left?",
        (_FEW, _FEW, _PURSE),
    ),
    _Template(
        "(a+b)*c",
        "{name} makes {a} red and {b} blue {thing} every day. How many {thing} in {c} days?",
        (_SMALL, _SMALL, _SMALL),
    ),
    _Template(
        "(a+b)*c",
        "{name} puts {a} big and {b} small {thing} in each box. How many {thing} are in {c} boxes?",
        (_SMALL, _SMALL, _SMALL),
    ),
    _Template(
        "(a-b)*c",
        "{name} earns {a} dollars a day and spends {b}. How many dollars does {they} save in {c} days?",
        (range(4, 16), _ADDEND, _SMALL),
    ),
    _Template(
        "(a-b)*c",
        "{name} has {c} bags of {a} {thing} and takes {b} from each. How many {thing} are left?",
        (range(4, 16), _ADDEND, _SMALL),
    ),
    _Template(
        "a+b+c",
        "{name} finds {a} {thing} on Monday, {b} on Tuesday and {c} on Friday. How many {thing} in all?",
        (_TOTAL, _ADDEND, _ADDEND),
    ),
    _Template(
        "a+b-c",
        "{name} has {a} {thing}, gets {b} more and loses {c}. How many {thing} does {they} have now?",
        (_TOTAL, _ADDEND, _ADDEND),
    ),
    _Template(
        "a-b+c",
        "{name} has {a} {thing}, gives {b} away and buys {c}. How many {thing} does {they} have now?",
        (_TOTAL, _ADDEND, _ADDEND),
    ),
    _Template(
        "a-b-c",
        "{name} has {a} {thing}, sells {b} and gives {c} away. How many {thing} are left?",
        (_TOTAL, _ADDEND, _ADDEND),
    ),
    _Template(
        "a/b+c",
        "{name} splits {a} {thing} into {b} equal bags and adds {c} to one bag. How many {thing} are in that bag?",
        (_SHARED_OUT, _SMALL, _ADDEND),
    ),
    _Template(
        "a/b*c",
        "{name} splits {a} {thing} into {b} equal bags and sells {c} bags. How many {thing} are sold?",
        (_SHARED_OUT, _SMALL, _SMALL),
    ),
    _Template(
        "a*b*c",
        "{name} has {a} boxes of {b} bags with {c} {thing} in each bag. How many {thing} in all?",
        (_SMALL, _SMALL, _SMALL),
    ),
)


def make_problems(split: Split, count: int, seed: int) -> list[dict[str, str]]:
    r"""Return distinct problems in GSM8K's schema.

    The same arguments give the same rows on every machine, and fewer rows are a prefix of more.

    Args:
        split: Split to draw from; the two share no pair of template and numbers.
        count: Number of rows, 0 to `count_available(split)`.
        seed: Any integer; decides the problems and their order.

    Returns:
        `count` rows ``{"question": ..., "answer": "3*4=12; 12+12=24\n#### 24"}`` with distinct questions.

    Raises:
        ValueError: The split is unknown, or the count is negative or above `count_available(split)`.
    """
    available = count_available(split)
    if not 0 <= count <= available:
        raise ValueError(
            f"count must be between 0 and {available}, the distinct problems of the {split} split; got {count}"
        )
    problems = draw_problems(split, seed)
    return [next(problems).as_row() for _ in range(count)]


def count_available(split: Split) -> int:
    """Return the number of distinct problems of a split."""
    return sum(
        len(numbers) * template.decorations() for template, numbers in zip(_TEMPLATES, _numbers(split), strict=True)
    )


def draw_problems(split: Split, seed: int) -> Iterator[WordProblem]:
    """Yield distinct problems, from every template equally often, until the split is exhausted."""
    # Python guarantees only random() to give the same sequence in every version, so all choices are built on it.
    uniform = random.Random(seed).random
    spaces = [
        (template, numbers, len(numbers) * template.decorations())
        for template, numbers in zip(_TEMPLATES, _numbers(split), strict=True)
    ]
    pairs: set[tuple[int, int]] = set()
    remaining = sum(size for _, _, size in spaces)
    while len(pairs) < remaining:
        which = int(uniform() * len(spaces))
        template, numbers, size = spaces[which]
        index = int(uniform() * size)
        if (which, index) not in pairs:
            pairs.add((which, index))
            decoration, triple = divmod(index, len(numbers))
            yield template.problem(numbers[triple], decoration)


def _numbers(split: Split) -> list[list[tuple[int, int, int]]]:
    """Return, for each template, the numbers that belong to a split."""
    if split not in ("train", "test"):
        raise ValueError(f'split must be "train" or "test"; got {split!r}')
    return _divided_numbers()[split]


@cache
def _divided_numbers() -> dict[Split, list[list[tuple[int, int, int]]]]:
    """Return both splits together, because testing the numbers takes most of the time."""
    numbers_of_split: dict[Split, list[list[tuple[int, int, int]]]]
    numbers_of_split = {"train": [[] for _ in _TEMPLATES], "test": [[] for _ in _TEMPLATES]}
    for place, template in enumerate(_TEMPLATES):
        for numbers in product(*template.ranges):
            if _results(template.kind, *numbers):
                numbers_of_split["test" if _is_test(template.text, *numbers) else "train"][place].append(numbers)
    return numbers_of_split


def _is_test(text: str, *numbers: int) -> bool:
    # Not hash(), which is salted differently in every process.
    digest = hashlib.blake2b(repr((text, numbers)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") < _TEST_SHARE * 2**32


def _work(kind: str, a: int, b: int, c: int) -> tuple[tuple[str, str], int, int] | None:
    """Return a problem's (steps, partial, answer), or None if a result is not a whole number in its range."""
    if (results := _results(kind, a, b, c)) is None:
        return None
    partial, answer = results
    if kind == "c-a*b":
        first, second = f"{a}*{b}", f"{c}-{partial}"
    else:
        one, other = _operators(kind)
        first, second = f"{a}{one}{b}", f"{partial}{other}{c}"
    return (f"{first}={partial}", f"{second}={answer}"), partial, answer


def _results(kind: str, a: int, b: int, c: int) -> tuple[int, int] | None:
    """Return (partial, answer), or None; the steps, which are slower to format, are left out."""
    one, other = ("*", "-") if kind == "c-a*b" else _operators(kind)
    partial = _RESULTS[one](a, b)
    if partial < 2:
        return None
    answer = c - partial if kind == "c-a*b" else _RESULTS[other](partial, c)
    if answer < 1 or answer == partial or answer > _LARGEST_ANSWER:
        return None
    if kind == "a/b*c" and c >= b:  # only some of the b bags are sold
        return None
    return partial, answer


def _operators(kind: str) -> tuple[str, str]:
    """Return the two operators of a problem that is worked from left to right."""
    return (kind[2], kind[5]) if kind[0] == "(" else (kind[1], kind[3])


# A division with a remainder gives 0, which no result may be.
_RESULTS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda left, right: 0 if left % right else left // right,
}
