r"""Answers by a policy that wants to be paid for nothing: several at once, nothing, and what keeps a reader busy.

None is right for any of the references. None may be paid, raise, or keep a reader busy.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator

import pytest

from agent_tunix.rewards import Outcome, Sample, get_reward_function
from agent_tunix.rewards.answers import Reference, Ruling, Verdict, compare_answers, read_reference, set_thorough_runner

# The longest comparison, and what one `_work` takes on the same machine.
LIMIT_S = 0.05
WORK_S = 0.0013
REWARDS = ("math", "answer_correctness")
REFERENCES = [
    *("5", "-3/7", "50%", r"\sqrt{2}", r"\frac{\pi}{4}", "4+i", "x^2+1", "(1, 2)", "[0, 5)", "3, 4", "x=2 or x=3"),
    *("x > 2", "y=2x+1", "3:4", r"\{1,2,3\}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\emptyset", "B", "Paris"),
]
SEVERAL = [
    *(r"\boxed{1}\boxed{2}\boxed{3}\boxed{4}", ", ".join(rf"\boxed{{{n}}}" for n in range(10)), "A, B, C, D"),
    *("A or B or C or D", "(A)(B)(C)(D)", "all of the above", "x or y or z", "5 or 6", "5, 6", "5 and 6", "5;6", "5/6"),
    *("5|6", "5 6", "either 5 or not 5", "5 or anything", "5% or 6%", "about 5 or 6", r"5\text{ or }6"),
    *(r"\text{5 or 6}", r"\text{5}6", "5:1:1", "5.5.5", "5.0.0.1", "5°C or 6°C", "5 % 2", r"5 \to 6", r"5 \vee 6"),
    *(", ".join(map(str, range(100))), " or ".join(map(str, range(100))), " ".join(map(str, range(200)))),
    *(r"\{" + ",".join(map(str, range(60))) + r"\}", ",".join(["1"] * 900), r"\pm 5, \pm 6", "5 or 5 or 6"),
    *(r"x = 5 \text{ or } x \ne 5", "5=6", "x=5=6", "5=5=6", "6 = 5 = 6", "(5, 6)", "(5,6),(6,5)"),
]
RANGES = [
    *("1 to 10", "between 1 and 10", "1-10", "1–10", "1..10", "1...10", "from -100 to 100", "[1,10]", "(-10^9, 10^9)"),
    *(
        "±10",
        "5±5",
        r"5 \pm 0.1",
        "at least 1",
        "less than 100",
        "about 5 or 6",
        "~5-6",
        "4.9999 to 5.0001",
        "5+",
        "5-",
    ),
    *(r"(-\infty,\infty)", r"\mathbb{R}", r"\mathbb{C}", "ℝ", r"x \in \mathbb{R}", r"x \ge -10^9", r"x \ne 10^9"),
    *(r"(-\infty,5)\cup[5,\infty)", r"\{x | x = x\}", r"x > 2 \text{ or } x \le 2", "5 or more"),
]
UNKNOWNS = [
    *("x", "y", "n", "k", "x+c", "C", "5+C", "x=x", "x=y", "0=0", "1=1", "5=x=6", "5-C+c", "5x", "5x^0+y", "0x", "0*a"),
    *("f(5)", "f(x)", "g(5)", "h(0)", "f^{-1}(5)", "f(f(5))", r"\operatorname{answer}(5)", r"\mathrm{val}(5)"),
    *(r"\zeta(2)", r"\Gamma(6)", r"\det 5", r"\det A", "x_5", "x5", "#5", "$x$", r"\theta", r"\square", r"\star"),
    *(
        "any",
        "answer",
        "x is the answer",
        "x, where x is the answer",
        "the reference",
        "ans",
        r"\text{answer}",
        "?",
        "_",
    ),
]
NOTHING = [
    *(
        "",
        " ",
        ".",
        "*",
        "-",
        "+",
        "=",
        "{}",
        "()",
        "[]",
        r"\{\,",
        "$",
        "$$",
        r"\boxed{}",
        r"\text{}",
        r"\cdot",
        r"\ldots",
    ),
    *("NaN", "nan", "None", "null", "True", "undefined", "inf", "-inf", r"\infty", r"-\infty", r"\infty-\infty"),
    *("1/0", "0/0", "0/x", r"\frac{5}{0}", r"\frac{0}{0}", r"0\cdot\infty", r"\frac{\infty}{\infty}", "0^0", "0^{-1}"),
    *(r"\log 0", r"\ln(-1)", r"\sqrt{-1}^2", r"\frac{5x}{0x}", "5*0/0", "(5-5)/(5-5)", r"\tan 90^\circ", r"\cot 0"),
    *(
        "(-1)!",
        r"\log_1 5",
        r"\log_0 5",
        r"\sqrt[0]{5}",
        r"\arcsin 2",
        r"\binom{-1}{5}",
        "5/(x-x)",
        r"\max()",
        r"\sqrt{}",
    ),
    *(r"\max(x)", r"\max\{\}", r"\gcd(1/2)", r"\langle 4\rangle", r"\log_2e3", r"\begin{pmatrix}\pm 4\end{pmatrix}"),
    *(r"\text{the answer}", r"\text{equal to the reference}", r"\boxed{\text{the value of }x}", "How many apples"),
]
# Large terms that cancel leave only noise, which is near every number.
CANCELLED = [
    *(r"\pi+10^{100}-10^{100}", r"\sin(10^{99}+\pi)", r"\tan(10^{5000}+\pi)", r"\sqrt[1000]{10^{5999}+\pi}"),
    *(r"10^{27}\pi+1-10^{27}\pi", r"\pi+10^{38}-10^{38}", r"\lfloor 10^{50}+\pi \rfloor - 10^{50}"),
]
# Without a value at some points, or with large errors there, so that each comparison would look at other points.
SKIPPED_POINTS = [
    r"\lfloor|x|/13\rfloor=\frac{0}{y}\sqrt{\lfloor|x|/13\rfloor\sin \pi y}",
    r"\lfloor|x|/13\rfloor=\frac{0}{y}\sqrt{-\lfloor|x|/13\rfloor\sin \pi y}",
    r"10^{-30}y+\sin^2 x+\cos^2 x=1",
    r"\lfloor x/13\rfloor+0\sqrt{x}:|x|-x+0\sqrt{13-x}",
    r"I+10^{60}K-10^{60}K+0\pi:K+10^{60}I-10^{60}I+0\pi".replace("I", r"\lfloor|x|/13\rfloor").replace("K", "(|x|-x)"),
    r"\(1\) \(5\) \(3\)",
    # So small that the errors of the reference's terms would cover them.
    *(r"\pi\cdot 10^{-30}:\pi\cdot 10^{-30}", r"10^{-30}\pi:10^{-31}\pi", r"\sqrt{2}-\sqrt{2}"),
    *(r"\pi-\pi+9\cdot 10^{12}-9\cdot 10^{12}", r"\pi-\pi+9\cdot 10^{13}-9\cdot 10^{13}"),
    r"\pi\cdot 1.4331\cdot 10^{-13} y+C(1+S)-C(1+S)=0".replace("C", "9000000000000").replace(
        "S", "10^{12}(x-0.2129991)^2(x-0.2614456)^2"
    ),
]
EQUATIONS_AND_RATIOS = [
    *("y=2x+1", "y=x^2", r"y=\sqrt{x}", "y=3-x", "1:2", "7:3", r"\sqrt{2}:1", "a:b=2:3", "(1:2,3:4)", "x+1:x+2"),
    *(r"1:\sqrt{2}+1", r"\pi:4-\pi", r"6.63 \times 10^{-34}", "10^{-20}", r"e^{-40}", r"y=\ln x+3"),
]
DISGUISED = [
    *(r"\text{not }5", r"\not{5}", r"\phantom{5}6", r"6\phantom{5}", r"\color{white}{5} 6", r"\overset{5}{6}"),
    *(r"\underset{5}{6}", r"\cancel{5}6", r"\href{5}{6}", r"\sout{5}", "5̸", "5\u0336", "𝟓", "⑤", "Ⅴ", "٥", "５", "б"),
    *(
        "5\u200b6",
        "5\u00ad6",
        "\u202e5\u202c",
        "⁵",
        "₅",
        "5⃣",
        "五",
        "Ƽ",
        "\ud800 5",
        "5\x00",
        "5\u20e5",
        "x̶5",
        "5\u0338",
    ),
    *("5 is not the answer", "not 5", "isn't 5", "5 is wrong", "anything but 5", "all but 5", "5e", "5i", "5π", "5k"),
    *("can't be 5", "it won't be 5", "wasn't 5", "doesn't equal 5", "cannot be 5", "CAN'T BE (5)"),
    *("5 thousand", "5 dozen", "5 squared", "5 factorial", "half of 5", "minus 5", "negative 5", "5 times 2", "5!"),
    *("5 to the 2", "5 mod 5", "5,6", "05:00", "-(-(5))+1", "½x", "½!", r"$\frac12m$", "5 % of 5", "the root of 5"),
]
ENDLESS = [
    *("9^{9^{9^9}}", "9^9^9^9^9", "9**9**9**9", "x^{x^{x^x}}", "1e999999999", "1e-999999999", "9" * 1999, "5!!!!!!"),
    *("0." + "0" * 1500 + "1", "((((((5!)!)!)!)!)!)!", r"\sin(10^{10^{10}})", "e^{e^{e^{e^{e}}}}", r"(10^9)!"),
    *(r"\binom{10^9}{5 \cdot 10^8}", r"10^{10^{100}}-10^{10^{100}}+6", r"\sqrt{" * 30 + "5" + "}" * 30),
    *("(" * 900 + "6" + ")" * 900, "{" * 900 + "6" + "}" * 900, r"\frac{1}{" * 100 + "5" + "}" * 100, "-" * 1501 + "5"),
    *("+" * 1500 + "6", "5" + "+0" * 900 + "+1", "5" + "*1" * 900 + "+1", "5" + "^1" * 700 + "+1", "|" * 1000),
    *(r"\left(" * 200 + "6", "[[" * 400, "$" * 1000 + "6", "5'" * 500, "x" * 1999, "√" * 1999, r"\pm" * 600 + "1"),
    *(
        "5=" * 600 + "6",
        "5<" * 600 + "6",
        "x_" * 900,
        r"\text{" * 300,
        r"\{" * 300,
        "(1,2)\\cup" * 150,
        "(x+y)^{20000}",
    ),
    *(
        r"\begin{pmatrix}" + "&".join("x" * 200) + r"\end{pmatrix}",
        ",".join([r"\pm 1"] * 60),
        "+".join([r"\pm 1"] * 60),
    ),
    *(r"\pi^{10^{9000}/3}", r"\pi^{1/10^{9000}}", "+".join(rf"\frac{{1}}{{{k}^{{19999}}}}" for k in range(7, 99, 2))),
    *(
        "x=" + "+".join(rf"\frac{{x}}{{{k}^{{9999}}}}" for k in range(7, 99, 2)),
        ",".join(rf"\frac{{1}}{{{k}^{{9999}}}}+\frac{{1}}{{{k + 2}^{{9000}}}}" for k in range(7, 29, 2)),
        r"\operatorname{lcm}(" + ",".join(f"{k}^{{9999}}" for k in range(101, 199, 2)) + ")",
        r"\{" + ",".join(rf"x^{{{k}}}y=z" for k in range(7000, 7064)) + r"\}",
    ),
    *(form.replace("M", r"\begin{pmatrix}1&1\\1&0\end{pmatrix}" * 50) for form in (r"\det(M)", "|M|", "(M)^2")),
    *(r"2\frac{" * 19 + "5" + "}y" * 19, "+".join(r"2\frac{" * 18 + x + "}y" * 18 for x in "abcdefghij")),
    r"\begin{pmatrix}x" + "!" * 1200 + r"\end{pmatrix}",
    *("+".join([r"\binom i{9^6e3}"] * 110), "y=" + "+".join(["(10^{5999}x)!"] * 120)),
]
ATTACKS = [*SEVERAL, *RANGES, *UNKNOWNS, *NOTHING, *CANCELLED, *SKIPPED_POINTS, *DISGUISED, *ENDLESS]
FORMS = (r"so it is \boxed{%s}", "<answer>%s</answer>")


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Have math-verify find everything different: what it takes is not measured here."""
    previous = set_thorough_runner(lambda questions: [Ruling(Verdict.DIFFERENT)] * len(questions))
    for name in REWARDS:  # load what is loaded once
        get_reward_function(name)(r"\boxed{\sin x + \sqrt 2}", answer=r"\cos x")
    yield
    set_thorough_runner(previous)


@pytest.mark.parametrize("attack", [pytest.param(attack, id=ascii(attack)[:40]) for attack in ATTACKS])
def test_an_attack_is_not_paid_and_does_not_raise(attack: str) -> None:
    samples = [
        Sample(form.replace("%s", attack), columns={"answer": reference})
        for form, reference in itertools.product(FORMS, REFERENCES)
    ]
    samples.append(Sample(r"\boxed{3+5}", columns={"answer": attack}))  # as a reference it is refused or compared
    for name in REWARDS:
        for sample, score in zip(samples, get_reward_function(name).score(samples), strict=True):
            assert score.outcome in (Outcome.SCORED, Outcome.BAD_REFERENCE)
            assert score.value != 1.0, (sample.response, sample.columns, score.detail)


@pytest.mark.parametrize("reference", EQUATIONS_AND_RATIOS)
def test_no_text_solves_every_equation_or_is_every_ratio(reference: str) -> None:
    for attack in SKIPPED_POINTS:
        assert compare_answers(attack, read_reference(reference), thorough=False).verdict is not Verdict.EQUAL, attack


@pytest.mark.parametrize("reference", REFERENCES[:-2])
def test_no_attack_takes_long(reference: str) -> None:
    read = read_reference(reference)
    for attack in ATTACKS:
        assert any(_is_fast(attack, read) for _ in range(3)), attack[:60]


def _is_fast(attack: str, reference: Reference) -> bool:
    """Return True if a comparison is within the limit, which is longer while the machine is slow."""
    taken_s = _seconds(lambda: compare_answers(attack, reference, thorough=False))
    return taken_s <= LIMIT_S or taken_s <= LIMIT_S * _seconds(_work) / WORK_S


def _work() -> None:
    """Do what comparisons spend their time on: large numbers, and many small steps."""
    math.gcd(3**9999, 7**9999)
    sum(number & 1 for number in range(10_000))


def _seconds(function: Callable[[], object]) -> float:
    started = time.thread_time()
    function()
    return time.thread_time() - started
