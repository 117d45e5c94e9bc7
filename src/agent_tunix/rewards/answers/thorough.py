"""The thorough tier: math-verify, for what exact reading cannot prove.

It parses LaTeX with ANTLR and simplifies with SymPy: far slower, and nothing bounds how long a hostile expression keeps
it busy. So it runs in processes that can be killed (`verifiers`), started when something is first asked of them; in a
worker, which itself can be killed, it runs where it is asked. `set_thorough_runner` puts it elsewhere.

Answers of a batch are best asked about together: a reward that is called within `Questions.gathered` puts off what it
cannot know yet (`PutOff`), and is called again once `Questions.settle` has had all of them answered side by side.

math-verify's own time limit relies on signals, which work in the main thread alone; it is off.
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
    """What a comparison found."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNDECIDED = "undecided"


class Question(NamedTuple):
    """Two answers that exact reading could not compare."""

    answer: str
    reference: str


class Ruling(NamedTuple):
    """What the thorough tier found.

    Attributes:
        verdict: Undecided where it could not be found out.
        reason: Why it is undecided, or what else a person should know.
        timed_out: Whether it is undecided for lack of time.
    """

    verdict: Verdict
    reason: str = ""
    timed_out: bool = False


ThoroughRunner = Callable[[Sequence[Question]], Sequence[Ruling]]

_lock = threading.Lock()


def verify_thoroughly(answer: str, reference: str) -> Verdict:
    r"""Compare two answers with math-verify, in this process and for as long as it takes.

    Safe in any thread. Different means that math-verify found no reading under which they are equal.

    >>> verify_thoroughly(r"\sin\frac{\pi}{6}", "0.5"), verify_thoroughly("x>5", "5<x"), verify_thoroughly("?", "5")
    (<Verdict.EQUAL: 'equal'>, <Verdict.EQUAL: 'equal'>, <Verdict.DIFFERENT: 'different'>)
    """
    with _lock:
        return _verify(answer, reference)


def verify_here(questions: Sequence[Question]) -> list[Ruling]:
    """The runner for a process that may be killed: math-verify in this very process, without a limit."""
    return [_rule_here(question) for question in questions]


def set_thorough_runner(runner: ThoroughRunner | None) -> ThoroughRunner | None:
    """Choose how the thorough tier is run.

    Args:
        runner: Gives a ruling on each question, in order; `UNDECIDED` where it ran out of time or memory. It must not
            raise. None: processes of its own, as `verifiers` has them.

    Returns:
        The runner until now.
    """
    global _runner
    previous, _runner = _runner, runner
    _remembered.clear()
    return previous


def set_default_runner(runner: ThoroughRunner) -> None:
    """Choose how the thorough tier is run if `set_thorough_runner` chose nothing."""
    global _default_runner
    _default_runner = runner


def ask(answer: str, reference: str) -> Ruling:
    """The ruling of the thorough tier on one answer.

    Raises:
        PutOff: Within `Questions.gathered`, if it is not known yet.
    """
    if max(len(answer), len(reference)) > LONGEST_THOROUGH:
        return Ruling(Verdict.DIFFERENT, f"more than {LONGEST_THOROUGH:,} characters are no answer")
    question = Question(answer, reference)
    gathering = _gathering.get()
    if gathering is not None:
        return gathering.look_up(question)
    return ask_all([question])[question]


def ask_all(questions: Sequence[Question]) -> dict[Question, Ruling]:
    """The rulings on questions; what was once ruled, or ran out of time, is not asked again."""
    rulings = {question: _remembered[question] for question in questions if question in _remembered}
    unknown = [question for question in dict.fromkeys(questions) if question not in rulings]
    if not unknown:
        return rulings
    for question, ruling in zip(unknown, (_runner or _default_runner)(unknown), strict=True):
        rulings[question] = ruling
        if ruling.verdict is not Verdict.UNDECIDED or ruling.timed_out:
            if len(_remembered) >= _MOST_REMEMBERED:
                _remembered.clear()  # whole, for another thread may be at it too
            _remembered[question] = ruling
    return rulings


class PutOff(BaseException):
    """An answer is still to be asked about; call the reward again after `Questions.settle`."""


class Questions:
    """What the rewards of a batch ask of the thorough tier."""

    def __init__(self) -> None:
        self._open: list[Question] = []
        self._rulings: dict[Question, Ruling] = {}

    @contextlib.contextmanager
    def gathered(self) -> Iterator[None]:
        """What is asked inside, in this thread, is put off unless it is settled."""
        token = _gathering.set(self)
        try:
            yield
        finally:
            _gathering.reset(token)

    def look_up(self, question: Question) -> Ruling:
        """The ruling, if it is settled.

        Raises:
            PutOff: It is not.
        """
        ruling = self._rulings.get(question)
        if ruling is None:
            self._open.append(question)
            raise PutOff
        return ruling

    def settle(self) -> None:
        """Have all that was put off answered, side by side."""
        self._rulings |= ask_all(self._open)
        self._open.clear()


_gathering: ContextVar[Questions | None] = ContextVar("gathering", default=None)
_remembered: dict[Question, Ruling] = {}
_runner: ThoroughRunner | None = None
_default_runner: ThoroughRunner = verify_here


def _rule_here(question: Question) -> Ruling:
    try:
        return Ruling(verify_thoroughly(*question))
    except Exception as error:  # whatever SymPy makes of it
        return Ruling(Verdict.UNDECIDED, f"math-verify failed: {type(error).__name__}")


def _verify(answer: str, reference: str) -> Verdict:
    import math_verify.grader
    import math_verify.parser

    # Its time limits are off on purpose; it need not warn of that.
    math_verify.parser.TIMEOUT_WARNING_SHOWN = math_verify.grader.TIMEOUT_WARNING_SHOWN = True
    targets = [math_verify.parser.LatexExtractionConfig()]
    # For unreadable text it falls back on equality of strings, which is decided before.
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
        return text  # formulas within words: it finds them itself
    return f"${text}$"
