from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.errors import BadReferenceError
from agent_tunix.rewards.answers import Verdict, compare_answers, extract_answer, parse_number, read_reference


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("<reasoning>3 + 4 = 7</reasoning><answer>7</answer>", "7"),
        ("<answer> 7 </answer> or 8", "7"),
        ("<answer>7</answer><answer>8</answer>", "8"),
        ("<answer>7</answer> and <answer>8", "7"),
        ("<answer>a <answer>7</answer>", "7"),
        ("<answer>8 </answer> 9 </answer>", "8 </answer> 9"),
        (r"<answer>\boxed{7}</answer>", "7"),
        (r"\boxed{6} then \boxed{7}", "7"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{7} and \boxed{8", "7"),
        (r"\boxed {7}", "7"),
        (r"\boxed{a \} b} 3", r"a \} b"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"\boxed{7} #### 8", "7"),
        ("half of 48 is 24\n#### 72\nbye 5", "72"),
        ("#### 1 #### 2", "2"),
        ("There are 3 and then 12.", "12"),
        ("It costs $1,234.50!", "$1,234.50"),
        ("so 50%.", "50%"),
        ("it is -5", "-5"),
        ("it is −5", "−5"),
        ("= -5", "-5"),
        ("-$5", "-$5"),
        ("12-5", "5"),
        ("12 - 5", "5"),
        ("12 -5", "5"),
        ("(3)-5", "5"),
        ("x-5", "5"),
        ("50% -5", "5"),
        ("between 10–15", "15"),
        ("12\n-5", "-5"),
        ("1, 2, 3", "3"),
        ("1/2", "1/2"),
        ("3 1/2 cups", "3 1/2"),
        ("3e4", "3e4"),
        ("3eggs", "3"),
        ("", None),
        ("no number", None),
        ("<answer></answer> 7", None),
        (r"\boxed{} 7", None),
        ("#### \n", None),
        ("seven", None),
        ("The answer is 18, for 3 + 15 is that.", "18"),
        ("The answer is: $18. I checked 3 + 15.", "$18"),
        ("Final answer: 12 - 5 = 7 eggs, of 20", "7"),
        ("the answer is **42**.", "42"),
        ("The answer is 18. I am sure that the answer is right.", "18"),
        (r"The answer is $\frac{3}{4}$ of 7.", r"\frac{3}{4}"),
        (r"ANSWER: \(2\sqrt{3}\)", r"2\sqrt{3}"),
        ("The answer is\n18\nfor 5", "18"),
        ("the answer is unknown, but 5", "unknown, but 5"),
        (r"so we get $x = \frac{3}{4}$.", r"x = \frac{3}{4}"),
        (r"so we get \frac{3}{4}", r"\frac{3}{4}"),
        ("it costs $5 and then $6", "$6"),
        ("\\fbox{7}", "7"),
        ("a\n12 of them\nno number here", "12"),
        ("about 3 × 10⁴ of them", "3 × 10⁴"),
        ("it is 2½", "2½"),
        ("Final answer: 50%", "50%"),
        # What follows a thought decides before the thought.
        (r"<think>perhaps \boxed{12}</think> The answer is 18.", "18"),
        (r"<think><answer>12</answer></think>\boxed{18}", "18"),
        ("<think>perhaps #### 12</think> It is 18.", "18"),
        ("12 eggs</think>\n18", "18"),
        ("<think>The answer is 18</think>", "18"),
        ("<think>The answer is 18</think> I am sure.", "18"),
        ("<think>12</think> 15 <think>16</think> 18", "18"),
        ("<think>perhaps <answer>12</answer>", "12"),
    ],
)
def test_the_answer_of_a_response(response: str, answer: str | None) -> None:
    assert extract_answer(response) == answer


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("-5", "-5"),
        ("+5", "5"),
        ("−5", "-5"),
        ("–5", "-5"),
        ("1,234", "1234"),
        ("1,234,567.25", "1234567.25"),
        ("$1,234.50", "1234.5"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("€ 5", "5"),
        (r"\$18", "18"),
        ("$18$", "18"),
        ("18.", "18"),
        ("18.0", "18"),
        (".5", "0.5"),
        ("1/2", "1/2"),
        ("-1/2", "-1/2"),
        ("1 1/2", "3/2"),
        ("50%", "1/2"),
        (r"50\%", "1/2"),
        ("50 percent", "1/2"),
        ("3e4", "30000"),
        ("3E-2", "0.03"),
        ("18 dollars", "18"),
        ("18 part-time workers", "18"),
        ("5 km/h", "5"),
        ("5 million", "5000000"),
        ("$2.5 billion", "2500000000"),
        ("½", "1/2"),
        ("1½", "3/2"),
        ("2 ¾", "11/4"),
        ("1⁄2", "1/2"),
        ("1.234,5", "1234.5"),
        ("1.234.567", "1234567"),
        ("1.234.567,89", "1234567.89"),
        ("1 234,5", "1234.5"),
        ("1\u202f234\u202f567", "1234567"),
        ("1\u00a0234.5", "1234.5"),
        (r"3 \times 10^4", "30000"),
        (r"3\cdot 10^{-2}", "0.03"),
        ("3 × 10⁴", "30000"),
        ("minus 5", "-5"),
        ("negative 5", "-5"),
        ("₹500", "500"),
        ("5 pct", "0.05"),
        (r"\frac12", "1/2"),
        (r"\frac{-1}{2}", "-1/2"),
        ("20 °C", "20"),
        ("12 m²", "12"),
        ("x = 18", "18"),
        ("3 + 4 = 7", "7"),
        ("The answer is 18.", "18"),
        ("A: 18", "18"),
        ("**18**", "18"),
        ("**18** dollars", "18"),
        (r"\frac{1}{2}", "1/2"),
        (r"-\dfrac{1}{2}", "-1/2"),
        (r"1\frac{1}{2}", "3/2"),
        (r"1\,234", "1234"),
        ("1{,}234", "1234"),
        (r"18\text{ dollars}", "18"),
        (r"\(18\)", "18"),
        (r"90^\circ", "90"),
        ("0.1", "1/10"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("9007199254740993", "9007199254740993"),
    ],
)
def test_a_number_is_read_exactly(text: str, number: str) -> None:
    assert parse_number(text) == Fraction(number)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-",
        "five",
        "12-5",
        "12 or 13",
        "1, 2",
        "(3, 4)",
        "3:4",
        "2^3",
        "2**3**4",
        "x-5",
        "5π",
        "√5",
        "3*4",
        "3/0",
        "1/2/3",
        "1.2.3",
        "12,34",
        "5 millions of 3",
        "5k",
        "not 5",
        "x >= 5",
        "x != 5",
        "0,5",
        "1 234",
        "nan",
        "inf",
        "1e999999999",
        "1e-999999999",
        "1e1001",
        "9" * 1001,
        "0." + "9" * 1001,
        "1/" + "9" * 1001,
        "٣",
    ],
)
def test_what_is_not_one_number_is_left_unread(text: str) -> None:
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("0", "0"),
        ("0.0", "0"),
        ("-5", "-5"),
        ("−5", "-5"),
        ("1234", "1,234"),
        ("$1,234.50", "1234.5"),
        ("0.5", "1/2"),
        ("2/4", "1/2"),
        ("30000", "3e4"),
        ("50%", "50%"),
        ("50%", "0.5"),
        ("0.5", "50%"),
        ("50%", "50"),
        ("50", "50%"),
        ("0.1", 0.1),
        ("18", 18),
        ("18", 18.0),
        ("18", "she makes 9 * 2 = 18\n#### 18"),
    ],
)
def test_equal_numbers_are_equal_in_any_form(answer: str, reference: Any) -> None:
    comparison = compare_answers(answer, read_reference(reference))
    assert comparison.verdict is Verdict.EQUAL
    assert comparison.relative_error == 0


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("25", "5"),
        ("5", "-5"),
        ("-5", "5"),
        ("1", "0"),
        ("0", "1"),
        ("1234", "1.234"),
        ("0.5%", "50%"),
        ("0.3333333333333333", "1/3"),
        ("9007199254740993", "9007199254740992"),
        ("0.30000000000000004", "0.3"),
        ("18.000000000000000001", "18"),
    ],
)
def test_different_numbers_are_different(answer: str, reference: str) -> None:
    assert compare_answers(answer, read_reference(reference)).verdict is Verdict.DIFFERENT


@pytest.mark.parametrize(
    "answer", [None, "", "five million", "12 or 13", "12 eggs for 5 people", "(5, 6)", r"\sqrt{5}"]
)
def test_what_is_provably_not_the_number_is_different(answer: str | None) -> None:
    comparison = compare_answers(answer, read_reference("5"), thorough=False)
    assert comparison.verdict is Verdict.DIFFERENT
    assert not comparison.within(Fraction(1))


@pytest.mark.parametrize(
    "answer",
    [
        *("5²", "5³", "sqrt(5)", "log 5", "ln(5)", "sin 5", "square root of 5", "the cube of 5"),
        *("5 squared", "5 factorial", "5 thirds", "5 tenths", "5 lakh", "5 and a quarter", "5 and one third"),
    ],
)
def test_a_function_of_the_number_is_not_the_number(answer: str) -> None:
    comparison = compare_answers(answer, read_reference("5"))
    assert comparison.verdict is not Verdict.EQUAL
    assert not comparison.within(Fraction(1, 10))


@pytest.mark.parametrize("answer", ["5 cm²", "5 m³", "5 square meters", "`5`", "the 5 logs", "5 roots"])
def test_a_unit_or_mark_around_the_number_is_no_function_of_it(answer: str) -> None:
    assert compare_answers(answer, read_reference("5"), thorough=False).equal


@pytest.mark.parametrize(
    ("answer", "reference"),
    [("5²", "25"), ("sqrt(25)", "5"), ("∞", r"\infty"), (r"\infty", "∞"), (r"(-\infty, 2)", "(-∞,2)")],
)
def test_the_same_in_other_signs_is_equal(answer: str, reference: str) -> None:
    assert compare_answers(answer, read_reference(reference)).equal


@pytest.mark.parametrize("answer", ["1e999999999", "5!", "x + i", "0,5", "not 5", r"\sin 5", "e", "10 - 5 eggs"])
def test_what_cannot_be_read_is_left_to_the_thorough_tier(answer: str) -> None:
    assert compare_answers(answer, read_reference("5"), thorough=False).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("answer", "reference", "within"),
    [
        ("110", "100", True),
        ("90", "100", True),
        ("111", "100", False),
        ("110.0000000000000000001", "100", False),
        ("-110", "-100", True),
        ("-100", "100", False),
        ("0.001", "0", False),
        ("55%", "50", True),
    ],
)
def test_within_a_tenth_of_the_reference(answer: str, reference: str, within: bool) -> None:
    assert compare_answers(answer, read_reference(reference)).within(Fraction(1, 10)) is within


@pytest.mark.parametrize(
    "reference",
    ["", "  ", "n/a", "five", "12 or 13", "3/0", None, True, float("nan"), float("inf"), [5], {"a": 5}, b"5"],
)
def test_a_reference_that_is_no_number_is_bad(reference: Any) -> None:
    with pytest.raises(BadReferenceError, match="is not a number"):
        read_reference(reference)


def test_a_reference_that_python_will_not_print_is_bad() -> None:
    with pytest.raises(BadReferenceError, match="is not a number"):
        read_reference(10**5000)


SIGNS = "0123456789.,-−+/%$eE \\{}<>=#*boxedfracanswer\n"


@given(st.one_of(st.text(), st.text(SIGNS), st.text("0123456789,./-e ")))
def test_no_text_makes_reading_fail(text: str) -> None:
    extract_answer(text)
    parse_number(text)


@given(st.fractions(max_denominator=10**6))
def test_any_fraction_is_read_back(number: Fraction) -> None:
    assert parse_number(f"{number.numerator}/{number.denominator}") == number


@given(st.integers(-(10**12), 10**12))
def test_a_thousands_separator_changes_nothing(number: int) -> None:
    assert parse_number(f"{number:,}") == number
    assert parse_number(str(extract_answer(f"The answer is ${number:,}."))) == number


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_any_decimal_is_read_back(number: Any) -> None:
    assert parse_number(f"{number:f}") == Fraction(number)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["1", "1,", "111,", "1,111,1111", "1/", "1 ", "-", "--1", "$", "1e", "1.", " ", "{"])
def test_a_long_run_of_signs_of_numbers_is_read(unit: str) -> None:
    read_at_length(unit)


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        *(r"\boxed{", r"\boxed{1}", r"\boxed ", "<answer>", "</answer>", "<answer></answer>", "####", "**"),
        *(r"\frac{1}", "=", "−"),
    ],
)
def test_a_long_run_of_marks_is_read(unit: str) -> None:
    read_at_length(unit)


def read_at_length(unit: str) -> None:
    """Read a text for which quadratic time would be a hang."""
    text = unit * (500_000 // len(unit))
    extract_answer(text)
    extract_answer(text + "1111")
    parse_number(text)


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("$18M", "18000000"),
        ("$1.5bn", "1500000000"),
        ("$18k", "18,000"),
        ("2 dozen", "24"),
        (r"1,\!234", "1234"),
        ("1234", r"1,\!234"),
        (r"11,\!111,\!100", "11,111,100"),
        ("3x10^4", "30000"),
        ("3 x 10^4", "30000"),
        ("3*10**4", "30000"),
        ("18 cm^3", "18"),
        ("18 m/s^2", "18"),
        ("18 ft^{2}", "18"),
        ("5¢", "5"),
        ("≈18", "18"),
        ("pi/2", r"\frac{\pi}{2}"),
        ("2pi", r"2\pi"),
        ("2**3", "8"),
        (r"0.\overline{3}", "1/3"),
        ("1/3", r"0.\overline{3}"),
        (r"-0.1\overline{6}", "-1/6"),
        (r"0.\overline{142857}", r"\frac{1}{7}"),
        ("1010_2", "1010_{2}"),
        ("A_{16}", "1010_2"),
    ],
)
def test_more_ways_to_write_a_value_are_proved_equal(answer: str, reference: str) -> None:
    assert compare_answers(answer, read_reference(reference), thorough=False).equal


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("$18M", "18"),
        ("$18B", "18"),
        ("18bn", "18"),
        ("18 mn", "18"),
        ("18mil", "18"),
        (r"3\text{dozen}", "3"),
        ("2pi", "2"),
        ("3a", "3"),
        ("3", "3a"),
        ("1010_3", "1010_2"),
        ("18x^2", "18"),
        ("18 cm^4", "18"),
        (r"0.\overline{3}", "0.3"),
        (r"0.\overline{3}", r"0.\overline{6}"),
        ("$5 T-shirts", "5000000000000"),
        ("3k", "3"),
    ],
)
def test_what_multiplies_a_number_is_no_unit_of_it(answer: str, reference: str) -> None:
    assert not compare_answers(answer, read_reference(reference)).equal
