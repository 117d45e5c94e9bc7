"""Forms in which a model may write an answer: completions with known labels, and the ones that a reward misjudges."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent_tunix.workbench.checks.problems import (
    DEFAULT_FORMAT,
    CheckProblem,
    near_misses,
    numbers_in,
    read_plain_number,
    respond,
    write_number,
)

_STYLES = ("template", "boxed", "hashes", "sentence")


@dataclass(frozen=True, slots=True)
class LabelledCompletion:
    """A completion to judge."""

    problem: CheckProblem
    response: str
    label: bool | None = None  # True if the completion is right; None if that is unknown
    origin: str = ""


def generate_completions(
    problems: Sequence[CheckProblem], template: str = DEFAULT_FORMAT
) -> Iterator[LabelledCompletion]:
    """Yield variations of gold solutions with known labels: the reference in many forms, and other numbers."""
    for problem in problems:
        yield from _in_all_forms(problem, problem.answer, True, "", template)
        for change, answer in near_misses(problem.answer).items():
            yield LabelledCompletion(problem, respond("template", problem.work, answer, template), False, change)
        yield LabelledCompletion(problem, _unfinished(problem), False, "no answer")


def find_misjudged(
    references: Iterable[str], is_judged_right: Callable[[str, str], bool]
) -> Iterator[LabelledCompletion]:
    """Yield each form of a reference that is judged wrong, and each form of a near miss that is judged right.

    Args:
        references: Numbers in plain digits, as a dataset writes them.
        is_judged_right: Takes a response and the reference, and returns True if the response is judged right.

    Raises:
        ValueError: A reference is not such a number.
    """
    for reference in references:
        if read_plain_number(reference) is None:
            raise ValueError(f"the reference must be a number in plain digits, not {reference!r}")
        problem = CheckProblem("", {"answer": reference})
        for change, answer in {"": reference, **near_misses(reference)}.items():
            for completion in _in_all_forms(problem, answer, not change, change):
                if is_judged_right(completion.response, reference) != completion.label:
                    yield completion


def _in_all_forms(
    problem: CheckProblem, answer: str, label: bool, change: str, template: str = DEFAULT_FORMAT
) -> Iterator[LabelledCompletion]:
    for form, write in FORMS.items():
        text = write(answer)
        if text is not None:
            for style in _STYLES:
                response = respond(style, problem.work, text, template)
                yield LabelledCompletion(problem, response, label, ", ".join(filter(None, (change, form, style))))


def _unfinished(problem: CheckProblem) -> str:
    """Return the first line of the work, broken off; "Hm." if that line is empty or already has the answer."""
    beginning = problem.work.partition("\n")[0].rstrip("0123456789. =")
    answer = read_plain_number(problem.answer)
    if answer is None:
        has_answer = problem.answer in beginning
    else:
        has_answer = any(read_plain_number(number) == answer for number in numbers_in(beginning))
    return "Hm." if has_answer or not beginning else beginning


def _grouped(answer: str) -> str | None:
    value = read_plain_number(answer)
    if value is None or value.denominator != 1 or abs(value) < 1000:
        return None
    digits = f"{value.numerator:,}"
    return digits if digits != answer else None


def _numeric(write: Callable[[str], str | None]) -> Callable[[str], str | None]:
    def form(answer: str) -> str | None:
        value = read_plain_number(answer)
        return None if value is None else write(write_number(value))

    return form


# Forms in which a model may write a reference, by name. A function returns None if its form does not apply.
FORMS: Mapping[str, Callable[[str], str | None]] = {
    "as it is": lambda answer: answer,
    "spaces": lambda answer: f"  {answer} ",
    "thousands separated": _grouped,
    "plain digits": lambda answer: None if "," not in answer else _numeric(str)(answer),
    "decimal zeros": _numeric(lambda digits: digits if "." in digits else f"{digits}.00"),
    "currency": _numeric(lambda digits: f"-${digits[1:]}" if digits.startswith("-") else f"${digits}"),
    "a unit": _numeric(lambda digits: f"{digits} apples"),
    "an equation": _numeric(lambda digits: f"x = {digits}"),
    "a minus sign": _numeric(lambda digits: digits.replace("-", "−") if digits.startswith("-") else None),
    "bold": lambda answer: f"**{answer}**",
    "a full stop": lambda answer: f"{answer}.",
}
