"""The thorough tier: math-verify, for comparisons that exact reading cannot decide.

math-verify parses LaTeX with ANTLR and simplifies with SymPy. It is far slower than exact reading, and a hostile
expression can keep it busy forever. So it runs in processes that can be killed (`verifiers`), which start at the first
question. In a worker, which can be killed itself, it runs in place. `set_thorough_runner` changes the place.

The questions of a batch are best asked together. A reward that is called within `Questions.gathered` raises `PutOff` if
it needs an unknown ruling. `Questions.settle` answers all questions in parallel, and the reward is called again.

math-verify's own time limit is off: it relies on signals, which work only in the main thread.
"""

import contextlib
import enum
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import NamedTuple

from agent_tunix.rewards.answers.numbers import ascii_signs

LONGEST_THOROUGH = 2000
_MOST_REMEMBERED = 4096
_DELIMITERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))


class Verdict(enum.StrEnum):
    """The result of a comparison."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNDECIDED = "undecided"


class Question(NamedTuple):
    """Two answers that exact reading could not compare."""

    answer: str
    reference: str


class Ruling(NamedTuple):
    """The result of the thorough tier."""

    verdict: Verdict
    reason: str = ""  # reason why the verdict is undecided, or another note for a person
    timed_out: bool = False  # True if the verdict is undecided because of a time limit


ThoroughRunner = Callable[[Sequence[Question]], Sequence[Ruling]]

_lock = threading.Lock()


def verify_thoroughly(answer: str, reference: str) -> Verdict:
    r"""Compare two answers with math-verify, in this process and without a time limit.

    Thread-safe. The verdict is `DIFFERENT` if math-verify finds no reading in which the answers are equal.

    >>> verify_thoroughly(r"\sin\frac{\pi}{6}", "0.5"), verify_thoroughly("x>5", "5<x"), verify_thoroughly("?", "5")
    (<Verdict.EQUAL: 'equal'>, <Verdict.EQUAL: 'equal'>, <Verdict.DIFFERENT: 'different'>)
    """
    with _lock:
        return _verify(answer, reference)


def verify_here(questions: Sequence[Question]) -> list[Ruling]:
    """Run math-verify in this process without a time limit. Use it only in processes that may be killed."""
    return [_rule_here(question) for question in questions]


def set_thorough_runner(runner: ThoroughRunner | None) -> ThoroughRunner | None:
    """Choose how the thorough tier runs, and return the previous runner.

    Args:
        runner: Function that returns a ruling on each question, in order; `UNDECIDED` if it ran out of time or memory.
            It must not raise. None selects the processes of `verifiers`.
    """
    global _runner
    previous, _runner = _runner, runner
    _remembered.clear()
    return previous


def set_default_runner(runner: ThoroughRunner) -> None:
    """Set the runner to use if `set_thorough_runner` has set none."""
    global _default_runner
    _default_runner = runner


def ask(answer: str, reference: str) -> Ruling:
    """Return the ruling on one answer. Within `Questions.gathered`, raise PutOff if the ruling is not known yet."""
    if max(len(answer), len(reference)) > LONGEST_THOROUGH:
        return Ruling(Verdict.DIFFERENT, f"no answer is read from more than {LONGEST_THOROUGH:,} characters")
    question = Question(answer, reference)
    gathering = _gathering.get()
    if gathering is not None:
        return gathering.look_up(question)
    return ask_all([question])[question]


def ask_all(questions: Sequence[Question]) -> dict[Question, Ruling]:
    """Return the ruling on each question. Questions that were decided or timed out before are not asked again."""
    rulings = {question: _remembered[question] for question in questions if question in _remembered}
    unknown = [question for question in dict.fromkeys(questions) if question not in rulings]
    if not unknown:
        return rulings
    for question, ruling in zip(unknown, (_runner or _default_runner)(unknown), strict=True):
        rulings[question] = ruling
        if ruling.verdict is not Verdict.UNDECIDED or ruling.timed_out:
            if len(_remembered) >= _MOST_REMEMBERED:
                _remembered.clear()  # clearing all is safe while other threads use it
            _remembered[question] = ruling
    return rulings


class PutOff(BaseException):
    """A ruling is not known yet; call the reward again after `Questions.settle`."""


class Questions:
    """The questions of a batch to the thorough tier."""

    def __init__(self) -> None:
        self._open: list[Question] = []
        self._rulings: dict[Question, Ruling] = {}

    @contextlib.contextmanager
    def gathered(self) -> Iterator[None]:
        """Put off the questions that this thread asks inside the block, unless they are settled."""
        token = _gathering.set(self)
        try:
            yield
        finally:
            _gathering.reset(token)

    def look_up(self, question: Question) -> Ruling:
        """Return the ruling on a question; raise PutOff if it is not settled yet."""
        ruling = self._rulings.get(question)
        if ruling is None:
            self._open.append(question)
            raise PutOff
        return ruling

    def settle(self) -> None:
        """Ask all questions that were put off, together."""
        self._rulings |= ask_all(self._open)
        self._open.clear()


_gathering: ContextVar[Questions | None] = ContextVar("gathering", default=None)
_remembered: dict[Question, Ruling] = {}
_runner: ThoroughRunner | None = None
_default_runner: ThoroughRunner = verify_here


def _rule_here(question: Question) -> Ruling:
    try:
        return Ruling(verify_thoroughly(*question))
    except Exception as error:  # SymPy may raise anything
        return Ruling(Verdict.UNDECIDED, f"math-verify failed: {type(error).__name__}")


def _verify(answer: str, reference: str) -> Verdict:
    import math_verify.grader
    import math_verify.parser

    # Its time limits are off on purpose, so suppress its warning.
    math_verify.parser.TIMEOUT_WARNING_SHOWN = math_verify.grader.TIMEOUT_WARNING_SHOWN = True
    targets = [math_verify.parser.LatexExtractionConfig()]
    # Its fallback, equality of strings, was already checked.
    parsed = [
        math_verify.parser.parse(_as_formula(text), targets, fallback_mode="no_fallback", parsing_timeout=None)
        for text in (reference, answer)
    ]
    equal = all(parsed) and math_verify.grader.verify(parsed[0], parsed[1], timeout_seconds=None)
    return Verdict.EQUAL if equal else Verdict.DIFFERENT


def _as_formula(text: str) -> str:
    text = ascii_signs(" ".join(text.split()))
    for opening, closing in _DELIMITERS:
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) + len(closing):
            text = text[len(opening) : -len(closing)].strip()
            break
    if "$" in text.replace("\\$", "") or "\\(" in text:
        return text  # math-verify finds formulas among words itself
    return f"${text}$"
