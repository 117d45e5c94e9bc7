"""A check that a reward recognises a number in every form that a model may write, and takes no other number for it.

    wrong = list(find_misjudged(["18", "5,600"], lambda response, answer: math(response, answer=answer) == 1.0))

Each reference is written in the forms below and must be judged right. Its neighbours (off by one, with the other sign,
with a digit dropped) are written in the same forms and must be judged wrong.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from agent_tunix.rewards.answers.numbers import parse_number

Judge = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class Misjudged:
    """A response that was judged wrongly; `is_right` is the correct judgement."""

    reference: str
    form: str
    response: str
    is_right: bool


def surface_forms(number: Fraction) -> dict[str, str]:
    """Return responses that give a whole number or a finite decimal, by the name of the form.

    >>> forms = surface_forms(Fraction(-5600))
    >>> forms["comma"], forms["currency"], forms["decimal zeros"], forms["sentence"]
    ('-5,600', '-$5,600', '-5600.00', 'So the answer is -5,600 in all.')
    """
    plain = _decimal(number)
    comma = f"{int(abs(number)):,}" + "".join(plain.partition(".")[1:])
    comma = f"-{comma}" if number < 0 else comma
    zeros = plain if "." in plain else f"{plain}.00"
    return {
        "plain": plain,
        "comma": comma,
        "currency": f"-${comma[1:]}" if number < 0 else f"${comma}",
        "decimal zeros": zeros,
        "boxed": rf"so it is \boxed{{{plain}}}",
        "boxed currency": rf"$\boxed{{\${comma}}}$",
        "tagged": f"<reasoning>as above, 7 of 9</reasoning>\n<answer>{plain}</answer>",
        "tagged spaces": f"<answer>\n  {comma} \n</answer>",
        "A:": f"A: {plain}",
        "hashes": f"7 and 9 make it.\n#### {comma}",
        "sentence": f"So the answer is {comma} in all.",
        "trailing period": f"It is {zeros}.",
        "units": f"<answer>{plain} dollars</answer>",
        "final units": f"This makes 7 + 9 of them, {comma} eggs",
        "bold": f"The final answer is **{plain}**.",
        "minus sign": plain.replace("-", "−"),
    }


def neighbours(number: Fraction) -> dict[str, Fraction]:
    """Return numbers of other value that look like this one.

    >>> {name: str(value) for name, value in neighbours(Fraction(18)).items()}
    {'one more': '19', 'one less': '17', 'other sign': '-18', 'without digit 1': '8', 'without digit 2': '1'}
    """
    found = {"one more": number + 1, "one less": number - 1, "other sign": -number}
    digits = _decimal(abs(number))
    for place, character in enumerate(digits):
        rest = digits[:place] + digits[place + 1 :]
        if character.isdigit() and rest.strip("."):
            value = Fraction(rest.rstrip(".") or "0")
            found[f"without digit {place + 1}"] = -value if number < 0 else value
    return {name: value for name, value in found.items() if value != number}


def find_misjudged(references: Iterable[str], is_judged_right: Judge) -> Iterator[Misjudged]:
    """Yield each form of a reference that is judged wrong, and each form of a neighbour that is judged right.

    Args:
        references: Whole numbers or finite decimals, as a dataset writes them.
        is_judged_right: Takes a response and the reference, and returns True if the response is judged right.

    Raises:
        ValueError: A reference is not such a number.
    """
    for reference in references:
        number = parse_number(reference)
        if number is None:
            raise ValueError(f"the reference {reference!r} is not a number")
        for form, response in surface_forms(number).items():
            if not is_judged_right(response, reference):
                yield Misjudged(reference, form, response, is_right=True)
        for neighbour, value in neighbours(number).items():
            for form, response in surface_forms(value).items():
                if is_judged_right(response, reference):
                    yield Misjudged(reference, f"{neighbour}, {form}", response, is_right=False)


def _decimal(number: Fraction) -> str:
    """Return a number in digits, without an exponent; raise ValueError if its digits never end."""
    for places in range(40):
        scaled = number * 10**places
        if scaled.denominator == 1:
            digits = f"{abs(scaled.numerator):0{places + 1}d}"
            text = f"{digits[:-places]}.{digits[-places:]}" if places else digits
            return f"-{text}" if number < 0 else text
    raise ValueError(f"{number} has no finite decimal form")
