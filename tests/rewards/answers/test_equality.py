r"""Equality of mathematical answers: tables of references with answers that are right and wrong."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.errors import BadReferenceError
from agent_tunix.rewards import get_reward_function
from agent_tunix.rewards.answers import Tier, Verdict, compare_answers, read_reference
from agent_tunix.rewards.answers.grammar import UnreadableError, parse

# Reference → answers that are equal, answers that are different.
CASES: dict[str, tuple[list[str], list[str]]] = {
    # Signs, relations and unknowns.
    "y=2x+3": (["y = 3 + 2x", "2x - y + 3 = 0", "2x+3"], ["y=2x-3", "y=3x+2", "x=2y+3", "2x+3=0"]),
    r"y=\frac{x}{1-x} \quad y=-x": ([r"y=-x, y=\frac{x}{1-x}"], [r"y=\frac{x}{2-x} \quad y=-x", "y=-x"]),
    "xy=1": (["y=1/x", r"y = \frac{1}{x}", "2xy=2"], ["y=x", "xy=2", "x+y=1"]),
    "2x>4": (["x>2", "2<x", "-x<-2"], [r"x \ge 2", "x<2", "x>4"]),
    # Several parts.
    "-2,-2": (["-2, -2"], ["-2", "-2, 2", "-2,-2,-2"]),
    "(2,1),(1,2)": (["(1,2), (2,1)", r"\{(2,1),(1,2)\}"], ["(2,1)", "(1,2),(1,2)", "(2,1),(2,1)", "2,1"]),
    "(1,1), (3,2)": (["(3,2), (1,1)"], ["[1,1), (3,2)", "(1,1), (2,3)"]),
    r"y=2x \quad y=-x": (["y=-x, y=2x"], ["y=-x", r"y=3x \quad y=-x"]),
    "(0;0;6),(4;-2;0)": (["(4, -2, 0), (0, 0, 6)"], ["(0,0,6)", "(4,2,0),(0,0,6)"]),
    "p=5,q=2;p=7,q=2": (["(5,2),(7,2)", "p=7,q=2;p=5,q=2"], ["(2,5),(2,7)", "(5,2)", "p=5,q=2"]),
    # Tuples, intervals and sets.
    "(0, 5]": (["]0, 5]", "0<x≤5"], ["]0, 5[", "[0, 5]", "[0, 5["]),
    "x<1 or x>2": ([r"(-\infty, 1) \text{ or } (2, \infty)", "(-inf, 1) U (2, inf)"], ["(1, 2)", "(-inf, 1)"]),
    r"x \ne 3": (
        [r"(-\infty,3)\cup(3,\infty)", r"\mathbb{R} \setminus \{3\}", "x < 3 or x > 3"],
        ["x = 3", r"x \ne 4", "x<3"],
    ),
    r"\{x | -2 \le x < 1\}": (["[-2, 1)", r"-2 \leq x < 1"], ["(-2, 1)", "[-2, 1]", r"-2 \le x"]),
    r"\{1, 2\}": (["2, 1", r"\{2, 1, 1\}", r"x \in \{1, 2\}"], ["1", "(2, 1)", r"\{1, 3\}"]),
    r"\mathbb{R}": ([r"(-\infty, \infty)", "ℝ"], [r"(0, \infty)", r"\emptyset"]),
    # Unicode and separators.
    r"2\sqrt{113}": (["2√113", "√452", r"\sqrt{452}"], ["√113", "2√13", "226"]),
    r"1 \pm \sqrt{3}": (["1 ± √3", "1+√3, 1-√3", r"\{1-\sqrt3, 1+\sqrt3\}"], ["1+√3", "1 ± √2", "-1 ± √3"]),
    "1.22": (["1,22", "1.220"], ["1, 22", "122", "1;22"]),
    "(2,251,252)": (["2, 251, 252"], ["2251252", "[2,251,252)", "2,251,252)"]),
    "(1, 234)": (["(1,234)", "1, 234"], ["1234", "(1,2,34)"]),
    # Ratios and matrices.
    "7:32": (["7/32", "14:64", r"\frac{7}{32}", "S:T = 7:32"], ["32:7", "7:33", "39"]),
    "3:00": (["3:00"], ["4:00", "0:00"]),
    r"\begin{pmatrix} 1 \\ -2 \end{pmatrix}": (
        [r"\begin{bmatrix} 1 \\ -2 \end{bmatrix}", "(1, -2)", r"\frac12 \begin{pmatrix} 2 \\ -4 \end{pmatrix}"],
        [r"\begin{pmatrix} -2 \\ 1 \end{pmatrix}", r"\begin{pmatrix} 1 & -2 \end{pmatrix}", "-1"],
    ),
    # Values.
    r"\frac{1}{\sqrt{3}}": (
        ["1/sqrt(3)", r"\frac{\sqrt3}{3}", "0.577350"],
        [r"\sqrt3", "0.577", r"\frac13", "0.577351"],
    ),
    r"\sin^2 x": ([r"1-\cos^2 x", r"\frac{1-\cos 2x}{2}"], [r"\sin x^2", r"\cos^2 x", r"\sin^2 y"]),
    r"\sqrt{x^2}": (["|x|"], ["x", "-x"]),
    r"2 \ln x": ([r"\ln x^2", r"\ln(x) + \ln x"], [r"\ln 2x", r"(\ln x)^2"]),
    "x^2-1": (["(x-1)(x+1)", r"\frac{x^3-x}{x}"], ["x^2+1", "1-x^2", "x-1"]),
    "1234567890123x + 1": (["1 + 1234567890123x"], ["1234567890123x + 2", "1234567890124x + 1"]),
    "I(0)e^{-t}": ([r"I(0) e^{-t}"], ["m(0)e^{-t}", "I(1)e^{-t}", "0"]),
    "5!": (["120"], ["5", "24"]),
    r"\log_2 10": ([r"\frac{\ln 10}{\ln 2}"], [r"\log_3 10", r"\ln 10"]),
    "5 km": (["5 kilometers", "5"], ["5 m", "6 km", "5 km/h", "5 km^2"]),
    "20 m^2": (["20", "20 m²", r"20 \mathrm{~m}^2", "20 square meters"], ["20 m", "20 cm^2", "20 m^3", "20 cm²"]),
    "5 km/h": (["5", "5 km/hr", "5 km per hour"], ["5 m/s", "5 km", "5 km/s"]),
    r"\frac{1}{2}": (["½", "1/2"], ["½x", "½!", "$½m$", r"$\frac{1}{2}m$", "½k"]),
    "5": (
        ["(5)", "5 or so"],
        ["5 or anything", "5 is not the answer", "isn't 5", "g(5)", r"\mathrm{val}(5)", "5% or 5"],
    ),
    "ad-bc": ([r"\begin{vmatrix} a & b \\ c & d \end{vmatrix}", "-bc+ad"], ["ad+bc", "ad bc", "ab-cd"]),
    "-2": (
        [r"\begin{vmatrix} 1 & 2 \\ 3 & 4 \end{vmatrix}", r"\det \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"],
        [r"\begin{vmatrix} 1 & 2 \\ 4 & 3 \end{vmatrix}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"],
    ),
    "np.arcsin(10/13)": ([r"\arcsin\frac{10}{13}", "0.877636"], ["10/13", "arccos(10/13)", "np.sin(10/13)"]),
    r"\phi\approx -0.245\,\mathrm{rad}\approx -14.04^\circ": (
        [r"\phi \approx -0.245 \text{ rad} \approx -14.04°"],
        [r"\phi\approx 0.245\,\mathrm{rad}\approx 14.04^\circ"],
    ),
    r"x=\sqrt{2}\approx 1.41": (
        [r"\sqrt2", r"x = \sqrt2 \approx 1.414"],
        [r"x=\sqrt{3}\approx 1.41", r"\sqrt3", "1.51"],
    ),
    r"m \pm s = (2, 4)": ([r"m \pm s=(2,4)"], [r"m \pm s = (2, 5)", r"m \pm t = (2, 4)"]),
    r"2\begin{vmatrix} 1 & 2 \\ 3 & 4 \end{vmatrix}": (
        ["-4"],
        ["4", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}^2 x"],
    ),
    "x=0, 2": (["0, 2", "x=2, x=0"], ["-x=0, 2", "0", "(0, 2)", "x=0, y=2"]),
}
RIGHT = [(reference, answer) for reference, (right, _) in CASES.items() for answer in right]
WRONG = [(reference, answer) for reference, (_, wrong) in CASES.items() for answer in wrong]


@pytest.mark.parametrize(("reference", "answer"), RIGHT)
def test_equal_answers(reference: str, answer: str) -> None:
    comparison = compare_answers(answer, read_reference(reference), thorough=False)
    assert comparison.verdict is Verdict.EQUAL, comparison.detail
    assert comparison.tier is not Tier.THOROUGH
    for name in ("math", "answer_correctness"):
        assert get_reward_function(name)(rf"so it is \boxed{{{answer}}}.", answer=reference) == 1.0


@pytest.mark.parametrize(("reference", "answer"), WRONG)
def test_different_answers(reference: str, answer: str) -> None:
    assert compare_answers(answer, read_reference(reference), thorough=False).verdict is not Verdict.EQUAL
    for name in ("math", "answer_correctness"):
        assert get_reward_function(name)(rf"so it is \boxed{{{answer}}}.", answer=reference) != 1.0


# Response → the reference it is right for.
ANNOUNCED = {
    "So the polynomial is $2x+3$.": "2x+3",
    "The solution is $[0, 5)$": "[0,5)",
    "So it is $(7, 6)$.": "(7, 6)",
    "Final Answer: The value of $x$ is 5.": "5",
    "The largest $n$ is 34. Final answer: the largest $n$ is 34.": "34",
    r"\boxed{6} was my guess. Final answer: 7": "7",
    "The answer is 6. No: \\boxed{7}": "7",
    r"\boxed{(2,2)} and \boxed{(6,2)}": "(2,2),(6,2)",
    r"\[\boxed{1}\] \quad \text{and} \quad \[\boxed{-2}\]": "-2,1",
    r"\boxed{1} papers and \boxed{2} bins": "1,2",
    "The answer is $3$ and $5$.": "3, 5",
    "1 000": "1000",
}


@pytest.mark.parametrize("response", ANNOUNCED)
def test_an_announcement_is_read_to_its_end(response: str) -> None:
    assert get_reward_function("math")(response, answer=ANNOUNCED[response]) == 1.0


@pytest.mark.parametrize(
    ("response", "reference"),
    [
        ("So the polynomial is $2x+3$.", "3"),
        ("The solution is $[0, 5)$", "5"),
        (r"\boxed{6} no no no no no \boxed{7}", "6, 7"),
        (r"\boxed{6} and then \boxed{6}, wait, \boxed{7}", "6"),
        ("it costs $5 and then $6", "5"),
    ],
)
def test_what_a_response_does_not_state(response: str, reference: str) -> None:
    assert get_reward_function("math")(response, answer=reference) != 1.0


@pytest.mark.parametrize("reference", ["A", "(A)", "a", "B"])
def test_a_letter_is_an_answer_in_words(reference: str) -> None:
    assert get_reward_function("answer_correctness")(r"\boxed{A}", answer=reference) == (reference != "B")
    with pytest.raises(BadReferenceError):
        get_reward_function("math")("A", answer=reference)


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("up on $(-1, 2)$", "up on $[-1, 2)$"),
        ("rises where $x<0$", "rises where $x>0$"),
        ("diverges, 0", "0"),
        ("min at $x=1$", "max at $x=1$"),
        ("the P-value is 0.22", "the P-value is 0.23"),
    ],
)
def test_words_with_mathematics_keep_its_signs(reference: str, answer: str) -> None:
    score = get_reward_function("answer_correctness")
    assert score(f"<answer>{reference}</answer>", answer=reference) == 1.0
    assert score(f"<answer>{answer}</answer>", answer=reference) == 0.0


@pytest.mark.parametrize(
    "answer", [r"9^{9^{9^9}}", "1e999999999", "9" * 1482 + "." + "9" * 300, "(1, 2", "x" * 3000, "(" * 500]
)
def test_no_answer_beside_a_number_needs_a_process(answer: str) -> None:
    assert compare_answers(answer, read_reference("5"), thorough=False).verdict is Verdict.DIFFERENT


@given(st.text(r"0123456789.,+-*/^(){}[]\ xyπ√²sqrtfrac|<=>∪$&_!%:;", max_size=80))
def test_no_text_makes_reading_fail(text: str) -> None:
    with contextlib.suppress(UnreadableError):
        parse(text)
    for reference in ("5", "(1, 2)", "x^2", "x<2"):
        compare_answers(text, read_reference(reference), thorough=False)
