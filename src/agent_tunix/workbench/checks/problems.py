"""Problems that a reward is tried on, and responses to them.

A *style* is a way to state an answer: in the template, in a box, after `####`, in a sentence, alone. Checks find out
which style a reward pays best, and then write their responses in that style.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

DEFAULT_FORMAT = "<reasoning>{reasoning}</reasoning><answer>{answer}</answer>"

# First and last entry of a list of every number; no reference equals it.
DECOY = "-987654321"

_SLOT = re.compile(r"\{\w*\}")
_TAG = re.compile(r"<[^<>]+>")
_CALCULATOR = re.compile(r"<<[^<>]*>>")
_PLAIN_NUMBER = re.compile(r"[-−]?\$?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?", re.ASCII)
_NUMBER_IN_TEXT = re.compile(r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class CheckProblem:
    """A problem with its reference."""

    prompt: str  # problem that the model is given
    # All columns of the row. `answer` is the reference; `worked_solution`, or else `solution`, is the worked solution
    # if there is one.
    columns: Mapping[str, Any]

    @property
    def answer(self) -> str:
        """The reference."""
        return str(self.columns.get("answer", ""))

    @property
    def has_reference(self) -> bool:
        """True if the row has a reference."""
        return self.answer != ""

    @property
    def work(self) -> str:
        """The worked solution; without one, a sentence with the numbers of the problem."""
        solution = self.columns.get("worked_solution", self.columns.get("solution"))
        if isinstance(solution, str) and solution.strip():
            return _CALCULATOR.sub("", solution).strip()
        numbers = numbers_in(self.prompt)
        return f"We are given {', '.join(numbers) or 'the problem'} and work it out."

    def with_reference(self, answer: str, work: str) -> "CheckProblem":
        """Return the same problem with another reference."""
        works = [name for name in ("worked_solution", "solution") if name in self.columns] or ["worked_solution"]
        return replace(self, columns={**self.columns, "answer": answer, **dict.fromkeys(works, work)})


# The style of an answer alone, such as a query or a label. It shows no work.
BARE = "bare"
# Text around the work and the answer. `{template}` is the format of the run.
STYLES: Mapping[str, str] = {
    "template": "{template}",
    "boxed": "{work}\nThe answer is \\boxed{{{answer}}}.",
    "hashes": "{work}\n#### {answer}",
    "tagged": "{work}\n<answer>{answer}</answer>",
    "think": "<think>\n{work}\n</think>\n<answer>{answer}</answer>",
    "sentence": "{work}\nThe answer is {answer}.",
    "steps": "Step 1: {work}\nStep 2: We look at it again.\nStep 3: We state it.\nThe answer is {answer}.",
    "last line": "{work}\n{answer}",
    "json": '{{"reasoning": {quoted_work}, "answer": {quoted_answer}}}',
    "code": '```python\n"""{work}"""\nprint("{answer}")\n```',
}


def respond(style: str, work: str, answer: str, template: str = DEFAULT_FORMAT) -> str:
    """Return a response that shows its work and states an answer, in a style of `STYLES` or `BARE`."""
    if style == BARE:
        return answer
    if style == "template":
        return fill(template, work, answer)
    return STYLES[style].format(work=work, answer=answer, quoted_work=_quote(work), quoted_answer=_quote(answer))


def fill(template: str, work: str, answer: str) -> str:
    """Return the template with `{answer}` replaced by the answer and all other slots by the work."""
    return _SLOT.sub(lambda slot: answer if slot[0] == "{answer}" else work, template)


def tags_of(template: str) -> list[str]:
    """Return the tags of a template, in order."""
    return _TAG.findall(template)


def numbers_in(text: str) -> list[str]:
    """Return the numbers of a text as they are written, without duplicates."""
    return list(dict.fromkeys(_NUMBER_IN_TEXT.findall(text)))


def read_plain_number(text: str) -> Fraction | None:
    """Return the value of a number in plain digits (`-5`, `1,234`, `$3.50`); None for any other text."""
    text = text.strip()
    if not _PLAIN_NUMBER.fullmatch(text) or len(text) > 50:
        return None
    return Fraction(Decimal(text.replace("−", "-").replace("$", "").replace(",", "")))


def write_number(value: Fraction) -> str:
    """Return a number in plain digits."""
    return str(value.numerator) if value.denominator == 1 else str(float(value))


def is_numeric(problems: Sequence[CheckProblem]) -> bool:
    """Return True if all references are plain numbers."""
    return all(read_plain_number(problem.answer) is not None for problem in problems)


def wrong_problem(problems: Sequence[CheckProblem], index: int) -> CheckProblem:
    """Return a problem whose reference clearly differs from that of the problem at `index`.

    It is the next such row, or a copy with an invented reference if there is none.
    """
    own = problems[index]
    for offset in range(1, len(problems)):
        other = problems[(index + offset) % len(problems)]
        if not _near(own.answer, other.answer):
            return other
    value = read_plain_number(own.answer)
    made_up = "something else entirely" if value is None else write_number(3 * abs(value) + 7)
    return own.with_reference(made_up, f"It must be {made_up}.")


def near_misses(answer: str) -> dict[str, str]:
    """Return change → number, for numbers that look like the reference but differ from it by that change."""
    value = read_plain_number(answer)
    if value is None:
        return {}
    misses = {
        "one more": write_number(value + 1),
        "one less": write_number(value - 1),
        "sign flipped": write_number(-value),
        "ten times": write_number(10 * value),
    }
    digits = write_number(abs(value))
    if len(digits) > 1 and digits.isdigit():
        misses["a digit dropped"] = digits[:-1]
        misses["two digits exchanged"] = f"{'-' * (value < 0)}{digits[:-2]}{digits[-1]}{digits[-2]}"
    return {change: text for change, text in misses.items() if read_plain_number(text) != value}


def _near(one: str, other: str) -> bool:
    """Return True if two references are equal, or so close that a reward may pay for closeness."""
    first, second = read_plain_number(one), read_plain_number(other)
    if first is None or second is None:
        return one.strip().casefold() == other.strip().casefold()
    return 2 * abs(first - second) <= abs(first)


def _quote(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)
