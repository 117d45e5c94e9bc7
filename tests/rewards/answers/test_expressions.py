import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_tunix.rewards.answers.expressions import Collection, Expression, read_value

EQUAL = [
    (r"\sqrt{8}", r"2\sqrt2"),
    (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}"),
    (r"\frac{1}{\sqrt{2}-1}", r"\sqrt{2}+1"),
    (r"(1+\sqrt{2})^2", r"3+2\sqrt{2}"),
    (r"\sqrt{\frac{1}{4}}", "1/2"),
    (r"\sqrt[3]{-8}", "-2"),
    (r"8^{1/2}", r"2\sqrt{2}"),
    (r"\frac{\pi}{2}", r"0.5\pi"),
    ("9π²", r"(3\pi)^2"),
    ("x^2-1", "(x-1)(x+1)"),
    (r"\dfrac{x+1}{2}", "x/2 + 1/2"),
    (r"1\frac{1}{2}", r"\frac32"),
    ("2*3-4", "2"),
    ("2*-3", "-6"),
    ("-x", r"-1 \cdot x"),
    (r"\left(1, 2\right)", "( 1 , 2 )"),
    ("[0, \\infty)", "[0,+\\infty)"),
]
DIFFERENT = [
    (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5}"),
    (r"\sqrt{2}", r"\sqrt{3}"),
    (r"\pi", "3"),
    ("x", "y"),
    ("x^2", "x^3"),
    (r"4\pi", r"4\pi^2"),
]
UNREADABLE = [
    *("", "1/2x", "2 3", r"\sin x", "e^2", "3+4i", "5!", "|x|", "x^y", "x = 5", "velocity"),
    *(r"\frac{1}{x}", r"\frac{1}{0}", "0^0", r"\sqrt{-1}", r"\sqrt{x}", r"\sqrt{123456789012345}"),
    *("2^10", "2^{1000}", "(x+y+z)^{40}", "12,34", "(1,234)", "(1", "1)", "²", "٣", "(" * 60 + "1" + ")" * 60),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_values_have_one_form(one: str, other: str) -> None:
    first, second = read_value(one), read_value(other)
    assert first is not None
    if isinstance(first, Expression) and isinstance(second, Expression):
        assert first.terms == second.terms
    else:
        assert first == second


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_values_have_different_forms(one: str, other: str) -> None:
    first, second = read_value(one), read_value(other)
    assert first is not None
    assert second is not None
    assert first != second


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_has_a_doubt_in_it_is_left_unread(text: str) -> None:
    assert read_value(text) is None


@pytest.mark.parametrize(
    ("text", "brackets", "items"),
    [
        ("(1, 2]", "(]", 2),
        (r"\{1,2,3\}", "{}", 3),
        ("1, 2", "", 2),
        ("1 and 2", "", 2),
        ("1,2,3", "", 3),
        ("{1}", "{}", 1),
    ],
)
def test_collections(text: str, brackets: str, items: int) -> None:
    value = read_value(text)
    assert isinstance(value, Collection)
    assert (value.brackets, len(value.items)) == (brackets, items)


@example("√.0")
@given(st.text(r"0123456789.,+-*/^(){}[]\ xyπ√²sqrtfrac", max_size=80))
def test_no_text_makes_reading_fail(text: str) -> None:
    read_value(text)
