from fractions import Fraction

import pytest

from agent_tunix.rewards import get_reward_function
from agent_tunix.rewards.answers.surfaces import find_misjudged, neighbours, surface_forms

REFERENCES = [
    *("0", "1", "-1", "7", "10", "18", "100", "999", "1000", "5,600"),
    *("1,234,567", "-42", "3.5", "0.05", "-2.25"),
]


def is_judged_right(response: str, answer: str) -> bool:
    return get_reward_function("math")(response, answer=answer) == 1.0


@pytest.mark.parametrize("reference", REFERENCES)
def test_a_reference_is_right_in_every_form_and_no_neighbour_is(reference: str) -> None:
    assert list(find_misjudged([reference], is_judged_right)) == []


def test_a_judge_that_takes_the_last_digits_is_found_out() -> None:
    def naive(response: str, answer: str) -> bool:
        digits = "".join(character if character.isdigit() else " " for character in response).split()
        return bool(digits) and digits[-1] == answer

    found = list(find_misjudged(["5600"], naive))
    assert any(one.is_right and one.form == "comma" for one in found)
    assert any(not one.is_right and one.form.startswith("other sign") for one in found)


def test_there_are_many_forms_and_a_neighbour_has_another_value() -> None:
    assert len(surface_forms(Fraction(18))) >= 10
    assert Fraction(0) not in neighbours(Fraction(0)).values()
    assert neighbours(Fraction(100))["without digit 3"] == 10


def test_a_reference_that_is_no_number_is_an_error() -> None:
    with pytest.raises(ValueError, match="is not a number"):
        list(find_misjudged(["n/a"], is_judged_right))
