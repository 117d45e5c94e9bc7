from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.errors import BadReferenceError
from agent_tunix.rewards.answers import (
    Verdict,
    compare_answers,
    extract_answer,
    extract_choice,
    parse_number,
    read_reference,
)

# Answer → responses that give it.
ANSWERS: dict[str | None, list[str]] = {
    "7": [
        *("<reasoning>3 + 4 = 7</reasoning><answer>7</answer>", "<answer> 7 </answer> or 8"),
        *("<answer>7</answer> and <answer>8", "<answer>a <answer>7</answer>", r"<answer>\boxed{7}</answer>"),
        *(r"\boxed{6} then \boxed{7}", r"\boxed{7} and \boxed{8", r"\boxed {7}", r"\boxed{\boxed{7}}"),
        *("Final answer: 12 - 5 = 7 eggs, of 20", "\\fbox{7}"),
    ],
    "8": ["<answer>7</answer><answer>8</answer>", r"\boxed{7} #### 8"],
    "8 </answer> 9": ["<answer>8 </answer> 9 </answer>"],
    r"\frac{1}{2}": [r"\boxed{\frac{1}{2}}"],
    r"a \} b": [r"\boxed{a \} b} 3"],
    "72": ["half of 48 is 24\n#### 72\nbye 5"],
    "2": ["#### 1 #### 2"],
    "12": ["There are 3 and then 12.", "a\n12 of them\nno number here", "<think>perhaps <answer>12</answer>"],
    "$1,234.50": ["It costs $1,234.50!"],
    "50%": ["so 50%.", "Final answer: 50%"],
    "-5": ["it is -5", "= -5", "12\n-5"],
    "−5": ["it is −5"],
    "-$5": ["-$5"],
    "5": ["12-5", "12 - 5", "12 -5", "(3)-5", "so x-5", "50% -5"],
    "15": ["between 10–15"],
    "3": ["1, 2, 3", "3eggs"],
    "1/2": ["1/2"],
    "3 1/2": ["3 1/2 cups"],
    "3e4": ["3e4"],
    None: ["", "no number", "<answer></answer> 7", r"\boxed{} 7", "#### \n", "seven"],
    "18": [
        *("The answer is 18, for 3 + 15 is that.", "The answer is 18. I am sure that the answer is right."),
        *("The answer is\n18\nfor 5", r"<think>perhaps \boxed{12}</think> The answer is 18."),
        *(r"<think><answer>12</answer></think>\boxed{18}", "<think>perhaps #### 12</think> It is 18."),
        *("12 eggs</think>\n18", "<think>The answer is 18</think>", "<think>The answer is 18</think> I am sure."),
        "<think>12</think> 15 <think>16</think> 18",
    ],
    "$18": ["The answer is: $18. I checked 3 + 15."],
    "42": ["the answer is **42**."],
    r"\frac{3}{4}": [r"The answer is $\frac{3}{4}$ of 7.", r"so we get \frac{3}{4}"],
    r"2\sqrt{3}": [r"ANSWER: \(2\sqrt{3}\)"],
    "it can't be 5": ["Answer: it can't be 5"],
    "n’t 5": ["The answer isn’t 5."],
    "unknown, but 5": ["the answer is unknown, but 5"],
    r"x = \frac{3}{4}": [r"so we get $x = \frac{3}{4}$."],
    "$6": ["it costs $5 and then $6"],
    "3 × 10⁴": ["about 3 × 10⁴ of them"],
    "2½": ["it is 2½"],
    "7,50": ["The answer is €7,50", "The answer is about 7,50 euros.", "Answer: €7,50 or so", "It costs €7,50"],
    "-7,50": ["The answer is -€7,50", "The answer is about -7,50 euros"],
    "€7": ["The answer is €7, 50 would be too much", "The answer is about €7,5,3"],
    "about 7,5 million": ["The answer is about 7,5 million"],
    "5! = 120": ["The answer is 5! = 120."],
    "3! * 2 = 12": ["The answer is 3! * 2 = 12. It is more than 5."],
    "21": ["The answer is 21! I used 4! = 24.", "The answer is 21! * Well done *"],
}


@pytest.mark.parametrize(
    ("response", "answer"), [(response, answer) for answer, responses in ANSWERS.items() for response in responses]
)
def test_the_answer_of_a_response(response: str, answer: str | None) -> None:
    assert extract_answer(response) == answer


# Number → texts that are read as it.
NUMBERS: dict[str, list[str]] = {
    "0": ["0", "-0"],
    "-5": ["-5", "−5", "–5", "-$5", "$-5", "minus 5", "negative 5"],
    "5": ["+5", "€ 5", "5 km/h", "5, which can't be divided", "5 and it doesn't change", "I don't know, 5"],
    "1234": ["1,234", r"1\,234", "1{,}234"],
    "1234567.25": ["1,234,567.25"],
    "1234.5": ["$1,234.50", "1.234,5", "1 234,5", "1\u00a0234.5"],
    "18": [
        *(r"\$18", "$18$", "18.", "18.0", "18 dollars", "18 part-time workers", "x = 18", "The answer is 18.", "A: 18"),
        *("**18**", "**18** dollars", r"18\text{ dollars}", r"\(18\)"),
    ],
    "0.5": [".5"],
    "1/2": ["1/2", "50%", r"50\%", "50 percent", "½", "1⁄2", r"\frac12", r"\frac{1}{2}"],
    "-1/2": ["-1/2", r"\frac{-1}{2}", r"-\dfrac{1}{2}"],
    "3/2": ["1 1/2", "1½", r"1\frac{1}{2}"],
    "30000": ["3e4", r"3 \times 10^4", "3 × 10⁴"],
    "0.03": ["3E-2", r"3\cdot 10^{-2}"],
    "5000000": ["5 million"],
    "2500000000": ["$2.5 billion"],
    "11/4": ["2 ¾"],
    "1234567": ["1.234.567", "1\u202f234\u202f567"],
    "1234567.89": ["1.234.567,89"],
    "500": ["₹500"],
    "0.05": ["5 pct"],
    "20": ["20 °C"],
    "12": ["12 m²"],
    "7": ["3 + 4 = 7"],
    "90": [r"90^\circ"],
    "1/10": ["0.1"],
    "123456789012345678901234567890": ["123456789012345678901234567890"],
    "9007199254740993": ["9007199254740993"],
}


@pytest.mark.parametrize(("text", "number"), [(text, number) for number, texts in NUMBERS.items() for text in texts])
def test_a_number_is_read_exactly(text: str, number: str) -> None:
    assert parse_number(text) == Fraction(number)


NO_NUMBERS = [
    *("", " ", "-", "five", "not 5", "nan", "inf", "٣"),
    *("12-5", "12 or 13", "1, 2", "(3, 4)", "3:4", "1/2/3", "1.2.3", "12,34", "0,5", "1 234"),
    *("2^3", "2**3**4", "x-5", "5π", "√5", "3*4", "3/0", "5k", "5 millions of 3", "x >= 5", "x != 5"),
    *("1e999999999", "1e-999999999", "1e2001", "9" * 2001, "0." + "9" * 2001, "1/" + "9" * 2001),
    *("H2O", "B2", "$6m$", "$4k$", "$3b$", r"\(5am\)"),
]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_not_one_number_is_left_unread(text: str) -> None:
    assert parse_number(text) is None


# Reference → answers that are proved equal.
EQUAL: dict[Any, list[str]] = {
    "0": ["0", "0.0"],
    "-5": ["-5", "−5"],
    "5": ["5¢", "5 cm²", "5 m³", "5 square meters", "`5`", "the 5 logs", "5 roots"],
    "8": ["2**3"],
    18: ["18"],
    "18": ["18 cm^3", "18 m/s^2", "18 ft^{2}", "≈18"],
    "she makes 9 * 2 = 18\n#### 18": ["18"],
    "24": ["2 dozen"],
    "25": ["5²"],
    "1,234": ["1234"],
    "1234": [r"1,\!234"],
    r"1,\!234": ["1234"],
    "1234.5": ["$1,234.50"],
    "18,000": ["$18k"],
    "30000": ["3x10^4", "3 x 10^4", "3*10**4"],
    "3e4": ["30000"],
    "11,111,100": [r"11,\!111,\!100"],
    "18000000": ["$18M"],
    "1500000000": ["$1.5bn"],
    0.1: ["0.1"],
    "0.3": ["0.30000000000000004"],
    0.30000000000000004: ["0.3"],
    4.0: ["4"],
    "0.5": ["50%"],
    "50": ["50%"],
    "50%": ["50%", "0.5", "50"],
    "1/2": ["0.5", "2/4"],
    "1/3": [r"0.\overline{3}", "0.3333333333333333"],
    r"0.\overline{3}": ["1/3"],
    "-1/6": [r"-0.1\overline{6}"],
    r"\frac{1}{7}": [r"0.\overline{142857}"],
    r"\frac{\pi}{2}": ["pi/2"],
    r"2\pi": ["2pi"],
    "1010_{2}": ["1010_2"],
    "1010_2": ["A_{16}"],
    r"\infty": ["∞"],
    "∞": [r"\infty"],
    "(-∞,2)": [r"(-\infty, 2)"],
}
# Reference → answers that have another value. What multiplies a number is no unit of it.
DIFFERENT: dict[str, list[str]] = {
    "0": ["1"],
    "1": ["0"],
    "2": ["2pi"],
    "3": [r"3\text{dozen}", "3a", "3k"],
    "3a": ["3"],
    "5": ["-5", "25"],
    "-5": ["5"],
    "18": ["18.000000000000000001", "$18M", "$18B", "18bn", "18 mn", "18mil", "18x^2", "18 cm^4"],
    "1.234": ["1234"],
    "0.3": ["0.300000000000004", r"0.\overline{3}"],
    "1/3": ["0.333333333333333"],
    r"0.\overline{6}": [r"0.\overline{3}"],
    "50%": ["0.5%"],
    "1010_2": ["1010_3"],
    "9007199254740992": ["9007199254740993"],
    "5000000000000": ["$5 T-shirts"],
}


@pytest.mark.parametrize(
    ("answer", "reference"), [(answer, reference) for reference, answers in EQUAL.items() for answer in answers]
)
def test_equal_values_are_proved_equal_in_any_form(answer: str, reference: Any) -> None:
    assert compare_answers(answer, read_reference(reference), thorough=False).verdict is Verdict.EQUAL


@pytest.mark.parametrize(
    ("answer", "reference"), [(answer, reference) for reference, answers in DIFFERENT.items() for answer in answers]
)
def test_different_values_are_different(answer: str, reference: str) -> None:
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


@pytest.mark.parametrize("answer", ["not 5", r"\sum_{k=1}^{5} 1", r"\int_0^5 dx", "1 1/1e999"])
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
    [
        *("", "  ", "n/a", "five", "Yes, 12", "?!", b"5", None, True, [5], {"a": 5}),
        *("SELECT * FROM t", "INSERT INTO t VALUES (1, 2)", "delete from t", "print (open(name))"),
        *(float("nan"), float("inf"), pytest.param(10**5000, id="an integer that Python does not print")),
    ],
)
def test_a_reference_that_is_no_number_is_bad(reference: Any) -> None:
    with pytest.raises(BadReferenceError, match="is not a number"):
        read_reference(reference)


SIGNS = "0123456789.,-−+/%$eE \\{}<>=#*boxedfracanswer\n"


@given(st.one_of(st.text(), st.text(SIGNS), st.text("0123456789,./-e ")))
def test_no_text_makes_reading_fail(text: str) -> None:
    extract_answer(text)
    parse_number(text)


@given(
    st.fractions(max_denominator=10**6),
    st.integers(-(10**12), 10**12),
    st.decimals(allow_nan=False, allow_infinity=False, places=6),
)
def test_any_number_is_read_back(fraction: Fraction, integer: int, decimal: Decimal) -> None:
    assert parse_number(f"{fraction.numerator}/{fraction.denominator}") == fraction
    assert parse_number(f"{integer:,}") == integer
    assert parse_number(str(extract_answer(f"The answer is ${integer:,}."))) == integer
    assert parse_number(f"{decimal:f}") == Fraction(decimal)


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        *("1", "1,", "111,", "1,111,1111", "1/", "1 ", "-", "--1", "$", "1e", "1.", " ", "{", "=", "−", "**"),
        *(r"\boxed{", r"\boxed{1}", r"\boxed ", "<answer>", "</answer>", "<answer></answer>", "####", r"\frac{1}"),
    ],
)
def test_a_long_text_is_read(unit: str) -> None:
    """Quadratic time would be a hang."""
    text = unit * (500_000 // len(unit))
    extract_answer(text)
    extract_answer(text + "1111")
    parse_number(text)


# Letter → responses that choose it.
CHOICES: dict[str | None, list[str]] = {
    "B": [
        *("<answer>B</answer>", "<answer>(b) Paris</answer>", "<answer>B. Paris</answer> not A", "The answer is (B)."),
        *("A or B? The correct answer is B", r"\boxed{\textbf{B}}", r"\boxed{\mathrm{(B)}}"),
        *("<answer>Option B</answer>", "<answer>The answer is B</answer>", "<answer>Paris (B)</answer>"),
        *(
            "A or B? The correct answer is B",
            "<answer>B, not A</answer>",
            "The answer is B. A or C would be too small.",
        ),
        *("<answer>{B}</answer>", "The answer is $B$", 'The answer is "B".', "<think>The answer is A</think> B"),
    ],
    "C": [r"\boxed{\text{C}}", "Answer: **C**", "It must be (C)", "so C"],
    "D": ["#### D", "I choose option D because"],
    None: [
        *("A cat sat", "<answer>Paris</answer>", "<answer></answer> B", "the answer is Berlin", "Z", ""),
        *("<answer>A, B</answer>", "<answer>A or B</answer>", "<answer>a cat</answer>", "The answer is a cat"),
        *(
            "The answer is A or B",
            "The answer is A or B.",
            "<answer>A or B</answer>",
            r"\boxed{A \text{ or } B}",
            "<answer>Option A or B</answer>",
            "<answer>Option A or option B</answer>",
            "<answer>(A) or (B)</answer>",
            "The answer is (A) or (B).",
            "either A or B",
            "The answer is either A or B",
            "The answer is A and B",
            "The answer is A, B",
            "The answer is A/B",
            "Answer: A & C",
            "Answer: **A** or **B**",
            r"\boxed{A} or \boxed{B}",
            r"\boxed{A} \text{ or } \boxed{B}",
            "<answer>A. Paris or B. Rome</answer>",
            "<answer>(A) Paris or (B) Rome</answer>",
            "<answer>A) or B)</answer>",
            "I think A or B",
            "It is A or B.",
            "So (A) or (B)",
            "A or B or C or D",
            "The answer is A, B, and C.",
            "The answer is both A and B.",
            "The answer could be A or B",
            "Option A or Option C",
            "Final answer: B or (C)",
            "<answer>A or maybe B</answer>",
            "The answer is A or else B",
            r"\boxed{\text{A or B}}",
            r"\boxed{(A), (B)}",
            r"\boxed{AB}",
            "A, B",
            "The correct options are A and C",
            "#### A or B",
            "The answer is not A",
            "<answer>not A</answer>",
        ),
    ],
    "A": [
        "A cat sat. So A.",
        "The answer is A, because B is wrong.",
        "The answer is A. B is false",
        "The answer is A, B is false",
        "<answer>A. Paris or Rome</answer>",
        "The answer is A, not B.",
        "answer: A\nB is wrong",
        "The answer is A or A",
        "#### A",
    ],
}


@pytest.mark.parametrize(
    ("response", "letter"), [(response, letter) for letter, responses in CHOICES.items() for response in responses]
)
def test_the_letter_of_a_response(response: str, letter: str | None) -> None:
    assert extract_choice(response) == letter
