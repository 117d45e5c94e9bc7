r"""Neighbours of the answers that were once judged wrongly: for each fault a table, with right and wrong answers."""

import pytest

from agent_tunix.rewards import get_reward_function
from agent_tunix.rewards.answers import Verdict, compare_answers, read_reference

Table = dict[str, tuple[list[str], list[str]]]
Responses = tuple[list[tuple[str, str]], list[tuple[str, str]]]

# Reference → answers that are equal, answers that are different.
SIGNS_AND_RELATIONS: Table = {
    "4+i": (
        ["i+4", r"4 + \mathrm{i}", "4.0+1i", "i + 4.00", r"4+\sqrt{-1}", r"\frac{8+2i}{2}", "-(-4-i)"],
        ["4-i", "-4+i", "4", "i", "4+j", "4i", "-4-i", "4+2i", "1+4i"],
    ),
    "2-3i": (["-3i+2", r"2-3\mathrm{i}", "-(3i-2)", "2 + 3i^3"], ["2+3i", "-2-3i", "3-2i", "2-3", "-2+3i", "2-3j"]),
    "f(n)=n": (
        ["f(n) = n", "n", "n = f(n)", r"f(n)=\frac{2n}{2}"],
        ["f(n)=-n", "g(n)=n", "f(n)=n+1", "f(n)>n", "f(n)=2n", "-n", "f(m)=n", "f(n)=n^2"],
    ),
    "b>a>c": (
        ["c<a<b", "b > a > c", "b>a, a>c", r"c \lt a \lt b"],
        ["b<a<c", "b>c>a", r"b \ge a > c", "b>a", "a>b>c", "c>a>b", "b=a>c", r"b>a \ge c"],
    ),
    "-x": (["-1x", "0 - x", "-(x)", r"-\frac{2x}{2}", "x-2x"], ["x", "-y", "1-x", "-x^2", "--x", "|x|", "-2x"]),
    "f(x)=-x^2": (["-x^2", "f(x) = -x^{2}", "f(x)=-(x)(x)"], ["x^2", "f(x)=x^2", "f(x)=(-x)^2", "f(x)=-x", "f(x)=-2x"]),
    r"x \le 5": (
        [r"5 \ge x", r"(-\infty, 5]", "x<=5", "x ≤ 5"],
        ["x<5", r"x \ge 5", "x=5", r"5 \le x", "x>5", r"(-\infty,5)", "5", r"x \le -5", r"y \le 5"],
    ),
    "a<b": (["b>a", r"a \lt b", "a-b<0", "2a<2b"], ["a>b", "b<a", "a=b", r"a \le b", "a<-b", "a<c", r"a \ne b"]),
}
SEVERAL_PARTS: Table = {
    r"$\frac{32}{9}$,$\frac{1}{2}$": (
        [
            *(r"\frac12, \frac{32}{9}", "32/9, 0.5", r"\frac{32}{9} \text{ and } \frac{1}{2}"),
            *(r"$\frac{1}{2}$ and $\frac{32}{9}$", "1/2; 32/9"),
        ],
        [
            *(r"\frac12", r"\frac{32}{9}", r"\frac{32}{9}, \frac13", r"\frac{32}{9}, \frac12, 1"),
            *(r"\frac{32}{9}, -\frac12", r"\frac{9}{32}, \frac12", "0.5, 0.5", r"\frac{32}{9}\cdot\frac12"),
        ],
    ),
    "$3$, $-7$": (
        ["3,-7", "-7, 3", r"3 \text{ or } -7", r"\{-7,3\}", "$-7$ and $3$"],
        ["3", "-7", "3,7", "-3,-7", "-4", "3,-7,0", "-21", "37", "7,-3", "3-7"],
    ),
    "$x+1$; $x-1$": (
        ["x-1, x+1", "$x-1$ and $x+1$", "1+x; -1+x"],
        ["x+1", "x-1", "x+1, x+1", "x^2-1", "x+1, 1-x", "2x"],
    ),
    "$(1,2)$, $(3,4)$": (
        ["(3,4),(1,2)", r"\{(1,2),(3,4)\}", "(1,2) and (3,4)"],
        ["(1,2)", "(3,4)", "(2,1),(3,4)", "(1,2,3,4)", "1,2,3,4", "(1,2),(4,3)", "(1,2),(3,4),(5,6)"],
    ),
}
INLINE_FORMULAS: Table = {
    "2x+3": (
        ["3+2x", "$2x+3$", r"\(2x+3\)", "2(x+1.5)"],
        ["3", "2", "2x-3", "3x+2", "2y+3", "2x", "5x", "x+3", "2x+3=0"],
    ),
    "[0, 5)": (
        [r"0 \le x < 5", "[0,5)", r"x \in [0,5)", "[0;5)", "0≤x<5", "[0, 5[", "[0, 5)"],
        ["5", "(0,5)", "[0,5]", "0<x<5", "[0,6)", "0", "[5,0)", "(-0.1,5)", "[0,5), 7", r"[0,\infty)"],
    ),
    "(7, 6)": (
        ["(7,6)", r"\left(7, 6\right)", "7, 6", "(7.0, 6)", "(14/2, 6)"],
        ["6", "(6, 7)", "[7, 6]", "(7,6,0)", "7", "13", "(7,6),(6,7)", "(-7,6)", "(7,-6)", "76"],
    ),
    "x^2-4x+1": (
        ["1-4x+x^2", "(x-2)^2-3"],
        ["1", "x^2+4x+1", "x^2-4x-1", "x^2-4x", "x-2", "4", "x^2-4x+1=0", "(x-2)^2+3"],
    ),
}
LETTERS_BESIDE_NUMBERS: Table = {
    "$6m$": (
        ["6m", r"m \cdot 6", "3m+3m", r"\frac{12m}{2}", "$6 m$", "2(3m)", "6.0m", r"6 \times m", "7m-m", r"\(6m\)"],
        ["6000000", "6", "6n", "6m^2", "6M+1", "m", "-6m", "6/m", "60m", "6+m", "6 million"],
    ),
    "$4k$": (["4k", "k*4", "2k+2k"], ["4000", "4", "4 thousand", "k", "4k^2", "3k", "4j", "-4k", "4+k"]),
    "$3b$": (["3b", "b*3", "b+2b"], ["3000000000", "3", "3 billion", "b", "3a", "3b+1", "3b^2", "-3b"]),
    "$5t$": (["5t", r"t \cdot 5"], ["5", "5000000000000", "t", "5+t", "5s", "5t^2"]),
    "6000000": (
        ["6 million", "$6M", "6,000,000", r"6 \times 10^6", "6e6"],
        ["$6m$", "6m", "6", "600000", "6k", r"\(6m\)", "6x"],
    ),
}
EQUATIONS_WITHOUT_REAL_ROOTS: Table = {
    "x^2+1=0": (
        [
            *("2x^2+2=0", "1+x^2=0", "x^2=-1", "-x^2-1=0", "-1=x^2", "3x^2=-3", r"\frac{x^2+1}{2}=0", "x^2+2=1"),
            *("0=x^2+1", "(x-i)(x+i)=0"),
        ],
        [
            *("x^2+2=0", "x^2-1=0", "x^2+1=1", "y^2+1=0", "x^2=1", "x^4+1=0", "x^2+x+1=0", "x^2+1>0", "x^2+1", "x=i"),
            *("x^2+1=x", "0=1", "0=0"),
        ],
    ),
    "x^2+x+1=0": (
        ["2x^2+2x+2=0", "x^2+x=-1", "1+x+x^2=0", "x(x+1)=-1"],
        ["x^2+1=0", "x^2-x+1=0", "x^2+x+2=0", "x^2+x-1=0", "x^2+x=1", "0=1", "1=2"],
    ),
    "x^2+y^2=-1": (
        ["x^2+y^2+1=0", "2x^2+2y^2=-2", "-x^2-y^2=1"],
        ["x^2+y^2=-2", "x^2+y^2=1", "x^2-y^2=-1", "x+y=-1", "0=1", "x^2+y^2=0"],
    ),
    "e^x=0": (["0=e^x", "2e^x=0"], ["e^x=-1", "e^x=1", "e^{2x}+1=0", "0=1", "e^y=0"]),
    "2": (["2", "2.0", "4/2"], ["H2O", "B2", "CO2", "A2", "x2", "x_2", "v2", "H_2", "2x", "2/3", "O2", "F2"]),
}
REFERENCES: Table = {
    "3 + 4i": (
        ["4i+3", "3+4i", r"3+4\mathrm{i}", "$3 + 4i$", r"5e^{i \arctan(4/3)}"],
        ["3 - 4i", "4+3i", "7i", "3+4", "-3+4i", "5", "3+4i^2"],
    ),
    "(1, 2), (3, 4)": (
        ["(3,4),(1,2)", "(1,2), (3,4)"],
        ["(1,3),(2,4)", "(2,1), (3,4)", "(1,2)", "(1, 2, 3, 4)", "[1,2],[3,4]"],
    ),
    r"5 \mathrm{~cm}": (
        ["5 cm", "5", r"5\text{ centimeters}", "5.0 cm", r"5\,\mathrm{cm}"],
        ["5 m", "50 cm", "6 cm", "5 kg", "5 mm", "-5 cm", r"5\mathrm{~km}", "5 cm^3"],
    ),
    r"20 \mathrm{~m}^2": (["20", r"20 \text{ m}^2", "20 m^2"], ["20 m^3", "21", "20 cm^2", "400", "20^2", "20 m"]),
    "3:4": (
        ["6:8", "3/4", r"\frac34", "0.75", "1.5:2", "3 : 4"],
        ["4:3", "3:5", "3", "4", "34", "7", "-3:4", "3:4:5", "3,4", "(3,4)"],
    ),
    "1:2:3": (
        ["2:4:6", "1 : 2 : 3", "0.5:1:1.5", r"\frac{1}{3}:\frac{2}{3}:1"],
        ["1:3:2", "1:2", "3:2:1", "1:2:4", "6", "1,2,3", "(1,2,3)", "1:2:-3"],
    ),
    "a/b": ([r"\frac{a}{b}", r"a \div b", "a b^{-1}"], ["b/a", "a", "b", "ab", "a-b", "-a/b", "a/c", "a/2b", "1"]),
    "x=-1 or x=1": (
        [
            *(r"x = \pm 1", "x=1, x=-1", "-1, 1", "x=1 or x=-1", "1 and -1", r"\pm1", r"x=1 \text{ or } x=-1"),
            *(r"\{-1,1\}", r"x \in \{-1, 1\}"),
        ],
        [
            *("x=1", "x=-1", r"\pm 2", "y=-1 or y=1", "1", "0", "x=-1 or x=2", "-1,1,0", "(-1,1)", "[-1,1]"),
            *("x=1 or x=1", "-1<x<1"),
        ],
    ),
    "1/sqrt(3)": (
        [
            *(r"\frac{1}{\sqrt{3}}", r"\frac{\sqrt3}{3}", "sqrt(3)/3", "0.577350", "3^{-1/2}", r"\sqrt{1/3}", "√3/3"),
            *(r"\tan 30^\circ", r"\sqrt{\frac13}"),
        ],
        ["sqrt(3)", "1/3", "0.577", "0.577351", "-1/sqrt(3)", "1/sqrt(2)", "3/sqrt(3)", "sqrt(1)/3", "0.6"],
    ),
    r"6 \text{ and } 8": (
        ["6, 8", "8 and 6", r"\{6, 8\}", "6 and 8", "8,6", "$6$ and $8$"],
        ["6", "8", "6, 9", "(8, 6)", "14", "68", "6 and 7", "6, 8, 10", "48", "-6,-8", "6-8", "7"],
    ),
    "f(y) = y": (
        ["y", "f(y)=y", "y = f(y)", "f(y) = 2y/2"],
        ["f(y) = -y", "f(y)=y+1", "f(x) = -x", "f(y)=1", "f(y)=0", "g(y)=y", "-y", "f(y)=y^2", "x", "f=y"],
    ),
    "AB=4,CD=5": (
        ["4, 5", "CD=5, AB=4", "AB = 4 and CD = 5", "AB=4; CD=5", r"AB=4\text{ and }CD=5", "AB = 8/2, CD=5.0"],
        [
            *("5, 4", "AB=5,CD=4", "AB=4", "9", "AB=4,CD=6", "AB=4,EF=5", "4", "5", "AB=-4,CD=5", "AB=4,CD=5,EF=6"),
            *("20", "45"),
        ],
    ),
    r"\frac{1}{2} \text{ or } \frac{3}{2}": (["0.5, 1.5", "3/2 or 1/2"], ["1/2", "3/2", "2", "1/2, 1/2", "-1/2, 3/2"]),
}
UNICODE_AND_SEPARATORS: Table = {
    "√13": (
        [r"\sqrt{13}", "sqrt(13)", "13^{1/2}", "3.605551", "√(13)", "13^{0.5}", "√13.0", "(√13)", "√52/2"],
        ["13", "-√13", "√12", "√31", "3.6", "169", "√1·3", "√13/1.5", "√1 3", "1√3"],
    ),
    "2√113": (
        [r"2\sqrt{113}", "√452", r"\sqrt{452}", "2·√113", "2 √113", "2×√(113)", "√113+√113"],
        ["√113", "2√13", "226", "√226", "-2√113", "2+√113", "113√2", "√(2·113)", "2√112", "21.26"],
    ),
    "1 ± √3": (
        [
            *(r"1 \pm \sqrt{3}", "1+√3, 1-√3", r"\{1-\sqrt3, 1+\sqrt3\}", "1-√3 or 1+√3", r"1 \mp \sqrt3"),
            *("1 + √3 and 1 − √3", r"\frac{2 \pm \sqrt{12}}{2}"),
        ],
        ["1+√3", "1-√3", "1 ± √2", "-1 ± √3", "±√3", "1 ± 3", "√3 ± 1", "1+√3, 1+√3", "2 ± √3", "-2", "1±√3, 0"],
    ),
    "(-∞,2)∪(3,∞)": (
        [
            *(r"(3,\infty)\cup(-\infty,2)", "x<2 or x>3", r"x \in (-\infty,2) \cup (3,\infty)", "x > 3, x < 2"),
            *("(−∞, 2) ∪ (3, ∞)", "(-inf,2) U (3,inf)", r"\mathbb{R}\setminus[2,3]", r"(-\infty ,2)\cup (3,+\infty)"),
            *("(-∞,2) or (3,∞)",),
        ],
        [
            *(r"(-\infty,2]\cup(3,\infty)", "x>3", r"(-\infty,3)\cup(2,\infty)", "x<2 and x>3", "(2, 3)"),
            *("(-∞,2)∪[3,∞)", "(-∞,∞)", "(-∞,2)∩(3,∞)", "(-∞,-2)∪(3,∞)", "(2,∞)", "(-∞,2)", "ℝ", "∅", "x≠2"),
            *("(-∞,3)∪(2,∞)", "(-∞,2)∪(3,4)"),
        ],
    ),
    "32349": (
        [r"32,\! 349", "32,349", "32 349", "32{,}349", r"32\,349", "32349.0", "$32{,}349$", "32349.", r"32,\!349"],
        ["32.349", "323,49", "32348", "32,349,000", "3,2349", "32; 349", "32/349", "(32,349)", "-32349", "32349%5"],
    ),
    "x²+1": (["x^2+1", "1+x²", "x^{2}+1"], ["x2+1", "2x+1", "x³+1", "x²-1", "x^2", "x²+2"]),
    "½": ([r"\frac12", "0.5", "1/2"], ["2", "1½", "-½", "¼", "12", "½x"]),
    "−5": (["-5", "–5"], ["5", "+5", "--5", "5-"]),
    "π/4": ([r"\frac{\pi}{4}", "pi/4", "0.785398", "π÷4"], ["4/π", "π", "-π/4", "π/3", "0.78", "p/4", "1/4"]),
    "x ≤ 3": ([r"x \le 3", "x<=3", "3 ≥ x", "(-∞, 3]"], ["x<3", "x ≥ 3", "3 ≤ x", "(-∞,3)", "x=3", "[3,∞)"]),
    "2·10⁵": (["200000", "2e5", r"2\times10^5"], ["20000", "2·10⁴", "2105", "2·10^6", "25"]),
}
FURTHER_KINDS: Table = {
    "5": (["5", "5.", "$5$", "x=5"], ["5 or more", "5 is wrong", "5 if n is odd", "6, but maybe 5"]),
    "y=2x+1": (["2x+1"], ["xy=2x^2+x", "2y=2x+1", "y+2x+1", "x=2y+1", "y-2x=0", "(y-2x-1)(x-1)=0", "y=3"]),
    "x^2+y^2=4": (
        ["y^2=4-x^2", "4=x^2+y^2", "2x^2+2y^2=8"],
        ["x^2+y^2=2", "x^2-y^2=4", "y=2-x", r"y=\sqrt{4-x^2}", "(x+y)^2=4", "x^2+y^2=-4", "x^2+y^2<4"],
    ),
    "x=3": (
        ["3", "3=x", "x=6/2"],
        [
            "2x=6",
            "x-3=0",
            "x=1+2",
            "x=-3",
            "y=3",
            "x>3",
            "x^2=9",
            "|x|=3",
            "x=3,4",
            r"x \ne 3",
            "(x-3)(x-4)=0",
            "0=0",
            "x=x",
        ],
    ),
    "x=2, y=3": (
        ["y=3,x=2", "(2,3)", "x=2 and y=3", "x = 2; y = 3"],
        ["x=3,y=2", "(3,2)", "2", "x=2", "x=2,y=4", "x=2,y=3,z=4", "y=2,x=3"],
    ),
    "|x|<3": (["-3<x<3", "(-3,3)"], ["x<3", "|x|>3", "(3,-3)", "[-3,3]", r"|x| \le 3", "|y|<3", "|x|<4"]),
    r"\frac{x+1}{x-1}": (
        [r"1+\frac{2}{x-1}", "(x+1)/(x-1)", r"\frac{-x-1}{1-x}"],
        ["x+1/x-1", r"\frac{x-1}{x+1}", r"\frac{x+1}{1-x}", "-1", r"\frac{1}{-1}", "1"],
    ),
    "e^{2x}": (["(e^x)^2", "e^xe^x", r"\exp(2x)"], ["e^{x^2}", "2e^x", "e^2x", "e^{2}x", "e^{-2x}"]),
    r"\ln 2": (
        [r"-\ln\frac12", r"\log_e 2", "0.693147"],
        [r"\log 2", r"\ln 3", "0.693", r"\ln(-2)", r"2\ln 1", r"\log_2 e"],
    ),
    "2^{10}": (["1024", "4^5", "32^2"], ["2^{11}", "2^1 0", "20", "1000", "210", "2^{-10}", "-1024"]),
    r"\sin x\cos x": (
        [r"\frac{\sin 2x}{2}", r"\cos x \sin x", r"\frac12\sin(2x)"],
        [r"\sin 2x", r"\sin(x\cos x)", r"\frac12 \sin x", r"\sin x+\cos x", r"\sin^2 x"],
    ),
    r"\{1,2,3\}": (
        [r"\{3,2,1\}", "1,2,3"],
        [r"\{1,2\}", r"\{1,2,3,4\}", "(1,3,2)", "[1,3]", r"\{1,2,2\}", "1<x<3", "123"],
    ),
    "0.5": (["1/2", r"50\%", r"\frac{2}{4}", ".5"], ["5", "0.05", "-0.5", "1/5", r"500\%", "0.51"]),
    r"10\%": (["0.1", "10", "10 percent", "1/10"], ["1", r"100\%", "0.01", r"10.1\%", r"0.1\%", r"1\%"]),
    "12:30": (["12:30"], ["12:31", "13:30", "12.5", "30:12"]),
    "1000": (["1,000", "1e3", "10^3", "1 000", "1{,}000"], ["1.000", "1,00,0", "100", "10,000", "1,0", "10^2"]),
    "[-1,1]": (
        [r"-1\le x\le 1", "[-1, 1]", r"|x|\le 1"],
        ["(-1,1)", "[-1,1)", r"\pm 1", "-1,1", r"\{-1,1\}", "[1,-1]", "[-1,2]"],
    ),
    r"\emptyset": ([r"\varnothing", r"\{\}", "∅"], ["0", r"\{0\}", r"\{\emptyset\}", r"\mathbb{R}", "(0,0)"]),
    r"x\ge 0": ([r"[0,\infty)", r"0\le x", "x>=0"], ["x>0", r"(0,\infty)", r"x\le 0", "[0,1)", "x=0"]),
    r"3\sqrt{2}": (
        [r"\sqrt{18}", r"\frac{6}{\sqrt2}", "3*2^{1/2}", "4.242641"],
        [r"3\sqrt3", r"\sqrt6", r"2\sqrt3", "32", r"\sqrt[3]{2}", r"-3\sqrt2", "4.24", r"\sqrt{3^2}2"],
    ),
    r"-\frac{1}{2}": (
        [r"\frac{-1}{2}", r"\frac{1}{-2}", "-0.5", "-1/2"],
        [r"\frac{1}{2}", r"-\frac{1}{-2}", "-2", r"\frac{-1}{-2}", "1-2", "-1 2"],
    ),
    "a_n=2n-1": (["2n-1", "a_n = -1+2n"], ["a_n=2n+1", "a_n=2n", "b_n=2n-1", "a_m=2n-1", "a_n=n^2", "a_{n+1}=2n-1"]),
    "n(n+1)/2": (
        [r"\frac{n^2+n}{2}", r"\binom{n+1}{2}", r"\frac{n(n+1)}{2}"],
        ["n(n-1)/2", "n+1/2", r"\frac{n^2}{2}", r"\binom{n}{2}", "n(n+1)"],
    ),
}
UNITS_AND_FORMULAS: Table = {
    "0.0112 g": (
        [r"$0.0112 \mathrm{~g}$", "0.0112 grams", "0.0112", "0.0112 G's"],
        ["0.0112 a", r"$0.0112 \mathrm{~a}$", "0.0112 kg", "0.0112 N", "-0.0112 g"],
    ),
    r"8 \mathrm{rad} / \mathrm{s}": (
        ["8 rad/s", r"8\,\text{rad/s}", "8"],
        [r"8 \mathrm{rad} / \mathrm{p}", "8 rad/h", "-8 rad/s", "8 rad/hr"],
    ),
    r"v = 3\pi \text{ m}": (
        [r"v = 3\pi \text{ meters}", r"3\pi", r"v=3\pi"],
        [r"v = 3\pi \text{ km}", r"v = 3\pi \text{ q}", r"u = 3\pi \text{ m}", r"-v = 3\pi \text{ m}"],
    ),
    r"\cos x": (
        [r"\sin(90^\circ - x)", r"\sin(\frac{\pi}{2} - x)"],
        [r"\sin(90^\circ + 2x)", r"\sin(90 - x)", r"\sin(180^\circ - x)"],
    ),
    r"\frac{246}{595} = 0.4134": (
        ["246/595", r"\frac{246}{595}", r"\frac{492}{1190} = 0.4134"],
        [r"-\frac{246}{595} = 0.4134", "-0.4134", "-246/595"],
    ),
    "$a(1)=(1,2)$\n\n$a(2)=(3,4)$": (
        ["a(1)=(1,2), a(2)=(3,4)", "$a(1)=(1,2)$\n$a(2)=(3,4)$"],
        ["$a(1)=(1,3)$\n\n$a(2)=(3,4)$", "a(2)=(3,4)", "$a(1)=(1,2)$\n\n$a(2)=(3,5)$"],
    ),
    "18": (
        ["18 dollars", "$18", r"\$18", "18.00", "**18**", "18 dollars per day"],
        [
            *("1 8", "18/2", "18 or 19", "18-1", "18k", "18^2", "18!", "18, 19", "8", "180", "-18", "1.8"),
            *("18 thousand", "18 dozen", "$18M"),
        ],
    ),
    "3.5": (["3.5 hours", "7/2", "3 1/2", "3½", r"\frac72"], ["35", "3,5,1", "3", "3.5 million", "3:5", "5/3"]),
    "2 hours": (["2", "2 hrs", "2 h"], ["2 minutes", "2 min", "2 days", "3 hours"]),
    r"25\%": (["25%", "0.25", "25", "25 percent", r"\frac14"], ["2.5%", "250%", "0.25%", "75%", "-25%", "1/25"]),
    "x^2+2x": (["x(x+2)", "2x+x^2"], ["x^2", "2x", "x^2-2x", "x^2+2", "x+2", "x^2+2x=0", "3x^3"]),
    r"\frac{a+b}{2}": (
        [r"\frac{a}{2}+\frac{b}{2}", "(a+b)/2", "0.5a+0.5b"],
        ["a+b/2", r"\frac{a}{2}+b", r"\frac{ab}{2}", "a+b", r"\frac{2}{a+b}", r"\frac{b-a}{2}"],
    ),
    r"\sqrt{a^2+b^2}": (
        ["(a^2+b^2)^{1/2}", r"\sqrt{b^2+a^2}"],
        ["a+b", r"\sqrt{a^2-b^2}", "a^2+b^2", r"\sqrt{a+b}", r"\sqrt{a^2}+\sqrt{b^2}", r"-\sqrt{a^2+b^2}"],
    ),
    r"\frac{\pi}{6}": (
        [r"\pi/6", "0.523599"],
        [
            *("30", r"\frac{\pi}{3}", "0.52", r"\frac{6}{\pi}", r"-\frac{\pi}{6}", r"\frac{5\pi}{6}"),
            *(r"\frac{\pi}{6}+2\pi",),
        ],
    ),
    r"60^\circ": (["60", "60°", "60 degrees", r"60\text{ degrees}"], [r"\frac{\pi}{2}", "120", r"6^\circ", "-60°"]),
    "(x-1)(x-2)": (
        ["x^2-3x+2", "(x-2)(x-1)", "(1-x)(2-x)"],
        ["(x+1)(x+2)", "(x-1)(x+2)", "x=1,2", "(x-1),(x-2)", "(x-1)^2", "x-1", "1,2"],
    ),
    "1+2+3": (["6"], ["5", "1,2,3", "123", "7"]),
    "10^{-3}": (["0.001", "1/1000", "1e-3"], ["10^3", "-1000", "0.01", "10-3", "-30", "1/10^{-3}"]),
    r"\log_2 8": (["3"], ["8", r"\log_8 2", "1/3", r"\log 8"]),
    r"\binom{5}{2}": (["10"], ["5/2", r"\frac52", "25", "52", r"\binom52+1", "(5,2)"]),
    r"\lfloor 3.7 \rfloor": (["3"], ["4", "3.7", r"\lceil 3.7\rceil"]),
    "2^n-1": (["-1+2^n", r"2\cdot 2^{n-1}-1"], ["2^{n-1}", "2n-1", "n^2-1", "2^n", "2^n+1", "2^m-1", "1-2^n"]),
    r"\frac{1}{x}": (
        ["x^{-1}", "1/x"],
        ["x", r"-\frac1x", r"\frac{1}{y}", r"\frac{1}{x^2}", "1", "0/x", r"\frac{x}{x}"],
    ),
    r"k\pi, k \in \mathbb{Z}": (
        [r"k\pi, k\in\mathbb{Z}", r"\pi k, k \in Z"],
        [r"k\pi", r"2k\pi, k \in \mathbb{Z}", r"k\pi, k\in\mathbb{N}", r"\pi"],
    ),
    "f'(x)=2x": (["2x", "f'(x) = 2x"], ["f(x)=2x", "x^2", "f''(x)=2x", "f'(x)=2", "f'(x)=-2x"]),
    r"A=\pi r^2": (
        [r"\pi r^2", r"A = r^2\pi"],
        [r"\pi r", r"A=2\pi r", r"B=\pi r^2", r"\pi R^2", r"A=\pi r^2 h", "r^2"],
    ),
    r"\vec{a}+\vec{b}": (
        [r"\vec{b}+\vec{a}", r"\vec a+\vec b"],
        ["a-b", r"\vec{a}-\vec{b}", r"\vec{a}", r"\vec{a}\cdot\vec{b}"],
    ),
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}": (
        [r"\begin{bmatrix}1&2\\3&4\end{bmatrix}", r"\left[\begin{array}{cc}1&2\\3&4\end{array}\right]"],
        [
            *(r"\begin{pmatrix}1&3\\2&4\end{pmatrix}", "(1,2,3,4)", r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", "-2"),
            *(r"\begin{pmatrix}1&2&3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&-4\end{pmatrix}", "1,2,3,4"),
        ],
    ),
    r"x \in \{1,2\}": (
        [r"\{1,2\}", "1,2", "x=1 or x=2"],
        ["[1,2]", "(1,2)", r"x \in (1,2)", r"x \notin \{1,2\}", "1", r"y \in \{1,3\}", r"x\in\{1,2,3\}"],
    ),
    "4:3:2": (["8:6:4"], ["4:3", "2:3:4", "9", "4,3,2", "4/3/2"]),
    "9.8 m/s^2": (["9.8", r"9.8 \text{ m/s}^2", "9.8 m/s²"], ["9.8 m/s", "9.8 km/s^2", "98", "9.81 m/s^2"]),
    "$5.00": (["5", "$5", "5 dollars"], ["5 cents", "$50", "$5k", "500", "$5.01"]),
    r"1,2,\dots,n": ([r"1,2,\dots,n"], ["1,2", "1,2,3", "n", r"1,2,\dots,m"]),
}
# Responses with a reference that they state, and with one that they do not state.
FORMULAS_IN_SENTENCES: Responses = (
    [
        ("So the polynomial is $2x+3$.", "2x+3"),
        ("The solution is $[0, 5)$", "[0,5)"),
        ("So it is $(7, 6)$.", "(7, 6)"),
        ("Thus we get $x - 4$", "x-4"),
        (r"We find \(3y + 1\).", "3y+1"),
        (r"The set is $\{1,2\}$.", r"\{1,2\}"),
        ("So the interval is $(-3, 4]$", "(-3,4]"),
        ("Hence the ratio is $2:3$.", "2:3"),
        ("So the expression is $a(b+2)$", "ab+2a"),
        ("The result is $7x$", "7x"),
        ("In the end $5n/2$", "5n/2"),
        ("2x", "2x"),
        ("n(n+1)/2", "n(n+1)/2"),
        ("(1, 2)", "(1,2)"),
        ("It costs 2,74 in all", "2.74"),
        ("\u7b54\u6848\u662f99\u9897", "99"),
        ("We know that $a=1$. " + "Then we add $1$ to it. " * 50 + "So it is $(7, 6)$.", "(7,6)"),
    ],
    [
        ("So the polynomial is $2x+3$.", "3"),
        ("The solution is $[0, 5)$", "5"),
        ("So it is $(7, 6)$.", "6"),
        ("Thus we get $x - 4$", "-4"),
        ("Thus we get $x - 4$", "4"),
        ("So the points are $(1,2)$ and $(3,4)$.", "4"),
        (r"We find \(3y + 1\).", "1"),
        (r"The set is $\{1,2\}$.", "2"),
        ("So the interval is $(-3, 4]$", "4"),
        ("Hence the ratio is $2:3$.", "3"),
        ("So the expression is $a(b+2)$", "2"),
        ("The result is $7x$", "7"),
        ("In the end $5n/2$", "2"),
        ("2x", "2"),
        ("n(n+1)/2", "2"),
        ("(1, 2)", "2"),
        ("It costs 2,74 in all", "74"),
        ("It is H2", "2"),
        ("We know that $a=1$. " + "Then we add $1$ to it. " * 50 + "So it is $(7, 6)$.", "6"),
    ],
)
ANNOUNCEMENTS: Responses = (
    [
        ("Final Answer: The value of $x$ is 5.", "5"),
        ("The largest $n$ is 34. Final answer: the largest $n$ is 34.", "34"),
        ("The largest $n$ is 34.", "34"),
        (r"\boxed{6} was my guess. Final answer: 7", "7"),
        (r"The answer is 6. No: \boxed{7}", "7"),
        ("Final answer: the sum of $a$ and $b$ is 12.", "12"),
        ("The answer is $x = 5$.", "5"),
        ("Final Answer: $f(3)$ equals 10", "10"),
        (r"The final answer is: the area of $\triangle ABC$ is $6$.", "6"),
        ("Final answer: $n$ = 34", "34"),
        (r"\boxed{3}. Wait, the answer is 4.", "4"),
        (r"Answer: The value of $a+b$ is $\frac{1}{2}$.", "1/2"),
        ("The final answer is that $x$ equals $-2$", "-2"),
        ("The answer is therefore $k=9$", "9"),
        ("The answer is 3. #### 4", "4"),
        ("Final Answer: the number of solutions of $x^2=4$ is 2.", "2"),
        ('The answer is "5".', "5"),
        (r"The final answer is \"$12$ and $13$\".", "12 and 13"),
        (r"The answer is $\$4$.", "4"),
        ("Final answer: $x<2$ or $x>3$.", "x<2 or x>3"),
        ("The answer is $5$ meters, $7$ seconds.", "5, 7"),
        ("The answer is $x^2+$ $2x$.", "x^2+2x"),
        ("The answer is $x^2+$ C.", "x^2+C"),
        ("The answer is $5$ because $2+3=5$.", "5"),
    ],
    [
        ("Final Answer: The value of $x+y$ is 5.", "x+y"),
        ("Final answer: the largest $2n$ is 34.", "2n"),
        (r"\boxed{6} was my guess. Final answer: 7", "6"),
        (r"The answer is 6. No: \boxed{7}", "6"),
        ("Final answer: the sum of $2a$ and $b$ is 12.", "2a"),
        ("Final answer: the sum of $2a$ and $b$ is 12.", "2"),
        ("Final Answer: $f(3)$ equals 10", "3"),
        ("Final Answer: $f(3)$ equals 10", "f(3)"),
        (r"\boxed{3}. Wait, the answer is 4.", "3"),
        (r"Answer: The value of $a+b$ is $\frac{1}{2}$.", "a+b"),
        ("The answer is 3. #### 4", "3"),
        ("Final Answer: the number of solutions of $x^2=4$ is 2.", "4"),
        ("Final Answer: the number of solutions of $x^2=4$ is 2.", "x^2=4"),
        ("The final answer is that $3x$ equals $-2$", "3x"),
        ("The answer is not 5, it is 6", "5"),
        (r"The final answer is \"$12$ and $13$\".", "12"),
        ("Final answer: $x<2$ or $x>3$.", "x<2"),
        ("The answer is $5$ meters, $7$ seconds.", "5"),
        ("The answer is $x^2+$ $2x$.", "x^2"),
        ("The answer is $x^2+$ C.", "x^2"),
    ],
)
SEVERAL_BOXES: Responses = (
    [
        (r"\boxed{(2,2)} and \boxed{(6,2)}", "(2,2),(6,2)"),
        (r"\[\boxed{1}\] \quad \text{and} \quad \[\boxed{-2}\]", "-2,1"),
        (r"\boxed{1} papers and \boxed{2} bins", "1,2"),
        (r"$\boxed{3}$, $\boxed{4}$ and $\boxed{5}$", "3,4,5"),
        (r"$\boxed{x=1}$ or $\boxed{x=2}$", "x=1 or x=2"),
        (r"\boxed{3}, \boxed{-7}", "-7,3"),
        (r"The roots are \boxed{\frac12} and \boxed{\frac{32}{9}}.", r"\frac{32}{9},\frac12"),
        (r"\boxed{5} and \boxed{5}", "5"),
        (r"\boxed{x+1} \text{ or } \boxed{x-1}", "x-1,x+1"),
        (r"First I thought \boxed{9}. But that misses a case. So \boxed{7}", "7"),
        (r"\boxed{a} \quad \boxed{b}", "a,b"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"so $y_1 = \boxed{2x}$ and $y_2=\boxed{3}$", "y_{1}=2x, y_{2}=3"),
        (r"x = \boxed{3}, y = \boxed{4}", "(3, 4)"),
        (r"It gives \boxed{3}. So y = \boxed{4}", "4"),
    ],
    [
        (r"\boxed{(2,2)} and \boxed{(6,2)}", "(6,2)"),
        (r"\boxed{(2,2)} and \boxed{(6,2)}", "(2,2)"),
        (r"\boxed{6} no no no no no \boxed{7}", "6, 7"),
        (r"\boxed{6} and then \boxed{6}, wait, \boxed{7}", "6"),
        (r"$\boxed{3}$, $\boxed{4}$ and $\boxed{5}$", "5"),
        (r"$\boxed{3}$, $\boxed{4}$ and $\boxed{5}$", "4,5"),
        (r"\boxed{3}, \boxed{-7}", "-7"),
        (r"\boxed{3}, \boxed{-7}", "3"),
        (r"\boxed{1} or \boxed{2} or \boxed{3} or \boxed{4}", "4"),
        (r"\boxed{1}, \boxed{2}, \boxed{3}, \boxed{4}", "1"),
        (r"First I thought \boxed{9}. But that misses a case. So \boxed{7}", "9"),
        (r"\boxed{5} and \boxed{5}", "5,6"),
        (r"so $y_1 = \boxed{2x}$ and $y_2=\boxed{3}$", "3"),
        (r"x = \boxed{3}, y = \boxed{4}", "(4, 3)"),
        (r"It gives \boxed{3}. So y = \boxed{4}", "3"),
    ],
)
LETTERS: Responses = (
    [
        (r"\boxed{A}", "A"),
        ("<answer>A</answer>", "A"),
        (r"\boxed{\text{A}}", "A"),
        (r"\boxed{\textbf{(A)}}", "A"),
        (r"\boxed{A}", "(A)"),
        ("<answer>(A)</answer>", "(A)"),
        (r"\boxed{B}", "B"),
        (r"\boxed{\text{(C)}}", "C"),
        ("<answer>D</answer>", "D"),
        ("<answer>a</answer>", "A"),
        (r"\boxed{E}", "E"),
        (r"\boxed{A.}", "A"),
    ],
    [
        (r"\boxed{B}", "A"),
        (r"\boxed{A}", "B"),
        (r"\boxed{C}", "A"),
        ("<answer>an apple</answer>", "A"),
        (r"\boxed{AB}", "A"),
        (r"\boxed{A, B}", "A"),
        ("<answer>A or B</answer>", "A"),
        ("<answer></answer>", "A"),
        ("<answer>the</answer>", "A"),
        (r"\boxed{1}", "A"),
        (r"\boxed{-A}", "A"),
        (r"\boxed{}", "A"),
        ("<answer>A B C D</answer>", "A"),
    ],
)

TABLES = {
    "signs and relations": SIGNS_AND_RELATIONS,
    "several parts": SEVERAL_PARTS,
    "inline formulas": INLINE_FORMULAS,
    "letters beside numbers": LETTERS_BESIDE_NUMBERS,
    "equations without real roots": EQUATIONS_WITHOUT_REAL_ROOTS,
    "references": REFERENCES,
    "Unicode and separators": UNICODE_AND_SEPARATORS,
    "further kinds": FURTHER_KINDS,
    "units and formulas": UNITS_AND_FORMULAS,
}
ROWS = [pytest.param(*row, id=f"{name}: {row[0]}") for name, table in TABLES.items() for row in table.items()]
SENTENCES = {
    "formulas in sentences": FORMULAS_IN_SENTENCES,
    "announcements": ANNOUNCEMENTS,
    "several boxes": SEVERAL_BOXES,
}


def paid(reward: str, response: str, reference: str) -> bool:
    return get_reward_function(reward)(response, answer=reference) == 1.0


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_ten_neighbours_in_both_directions(name: str) -> None:
    right, wrong = (sum(len(row[side]) for row in TABLES[name].values()) for side in (0, 1))
    assert min(right, wrong) >= 10


@pytest.mark.parametrize(("reference", "answers"), ROWS)
def test_equal_answers_alone_are_paid(reference: str, answers: tuple[list[str], list[str]]) -> None:
    for answer, equal in [*((answer, True) for answer in answers[0]), *((answer, False) for answer in answers[1])]:
        comparison = compare_answers(answer, read_reference(reference), thorough=False)
        assert (comparison.verdict is Verdict.EQUAL) is equal, (answer, comparison.detail)
        for reward in ("math", "answer_correctness"):
            assert paid(reward, rf"so it is \boxed{{{answer}}}.", reference) is equal, (answer, reward)
            assert paid(reward, f"<answer>{answer}</answer>", reference) is equal, (answer, reward)


@pytest.mark.parametrize("name", SENTENCES)
def test_a_response_states_its_answer_and_no_other(name: str) -> None:
    for pairs, states in zip(SENTENCES[name], (True, False), strict=True):
        for response, reference in pairs:
            for reward in ("math", "answer_correctness"):
                assert paid(reward, response, reference) is states, (response, reference, reward)


def test_a_letter_is_compared_as_a_word() -> None:
    for pairs, equal in zip(LETTERS, (True, False), strict=True):
        for response, reference in pairs:
            assert paid("answer_correctness", response, reference) is equal, (response, reference)
