r"""Kinds of answers that graders often misjudge: for each kind a table, with right and wrong answers."""

import pytest

from agent_tunix.rewards import get_reward_function
from agent_tunix.rewards.answers import Verdict, compare_answers, extract_answer, read_reference

Table = dict[str, tuple[list[str], list[str]]]

# Reference → answers that are equal, answers that are different.
LETTERS_AFTER_NUMBERS: Table = {
    "6": (["6 CDs"], ["6 ab"]),
    "18": (["18 yo-yos"], []),
    "zxy=1": (["xyz=1"], []),
    "1+cab": (["abc+1"], []),
    "2cab": (["2abc"], []),
    "abe+1": (["1+bea"], ["abc+1"]),
    "xyw=1": ([], ["xyz=1"]),
    "$bcda$": (["$abcd$"], []),
    "$wxyz$": (["$xyzw$"], []),
    r"\frac{cba}{2}": (["abc/2"], []),
    "1+ecb": (["bce+1"], []),
    "y+bax": (["abx+y"], []),
    "yz+xz+xy": (["xy+yz+zx"], []),
    "6ab": (["6 ab"], []),
    "6ba": (["6ab"], []),
    r"\frac{1}{2}bh": (["0.5bh"], []),
    "3": (["3eggs", "3 eggs"], []),
    "5": (["5days", "5th"], ["5ad"]),
    "12": (["12dollars"], ["12 pq"]),
    "6yx": (["6xy"], []),
    "6y": ([], ["6x"]),
    "4abd": ([], ["4abc"]),
    "4": ([], ["4abc", "4xyz"]),
    "4abc": ([], ["4"]),
    "0.5": ([], ["0.5bh"]),
    "12 qr": ([], ["12pq"]),
    "7": ([], ["7mn"]),
    "7mn": ([], ["7"]),
    "7rsu": ([], ["7rst"]),
    "2ac^2": ([], ["2ab^2"]),
    "3ab": ([], ["3ac"]),
    "3.5km": ([], ["3.5kl"]),
    "10": ([], ["10hk"]),
    "$4df$": ([], ["$4de$"]),
    "9uvx": ([], ["9uvw"]),
    "9abce": ([], ["9abcd"]),
    "9": ([], ["9abcd", "9bcd"]),
    "9deg": ([], ["9def"]),
}
UNITS: Table = {
    "5:00 pm": (["5:00 pm", "5:00 PM", "5:00 p.m.", "5:00"], ["5:00 am", "5:30 pm"]),
    "5:00 p.m.": ([], ["5:00 a.m."]),
    "5": (["5 Hz", "5kg", r"5\mbox{ cm}^2", r"5^\circ", r"5\%", r"x=5\text{ cm}"], []),
    "5 kHz": ([], ["5 Hz"]),
    "5 cm^3": (["5 cubic cm"], ["5 cm^2"]),
    "5 m": ([], ["5 m^{-1}"]),
    "5 m/s": (["5 m s^{-1}", "5 meters per second"], ["5 m s^{-2}", "5 feet per second"]),
    "5 m/s^2": ([], ["5 m/s"]),
    r"5\ \text{m/s}": ([], [r"5\ \text{m/s}^2"]),
    "5 cm^2": ([r"5\mbox{ cm}^2"], []),
    r"5\textrm{ lb}": ([], [r"5\textrm{ kg}"]),
    r"5\,\mathrm{g}": ([], [r"5\,\mathrm{kg}"]),
    r"5\,\mathrm{kg\,m/s^2}": ([], [r"5\,\mathrm{kg\,m/s}"]),
    "5 square feet": ([], ["5 square meters"]),
    "5 cubic meters": ([], ["5 square meters"]),
    "5 mph": (["5 miles per hour", "5 miles an hour", "5 mi/hr"], ["5 km/h", "5 kph", "5 miles"]),
    "5 kph": (["5 km/h", "5 kilometers per hour"], ["5 mph"]),
    "20 miles per gallon": (["20 mpg"], ["20 miles per hour"]),
    "40 sq ft": (["40", "40 square feet", "40 ft^2", "40 sq. ft.", "40 sqft"], ["40 ft", "40 sq m", "40 cubic feet"]),
    "12 in^3": (["12 cu in", "12 cubic inches"], ["12 square inches"]),
    "60 km/h": ([r"60 \frac{\text{km}}{\text{h}}"], [r"60 \frac{\text{m}}{\text{s}}"]),
    "8": (["8 tbsp", "8 tsp", "8 qts", "8 sq ft", "8 cu. ft.", "8 dry cells", "8 TVs", "8 yds", "8 hp", "8 ppm"], []),
    "3 quarts": (["3 qt"], ["3 gal"]),
    "5 km/h": (["5 km per hour"], []),
    "5 km per hour": ([], ["5 miles per hour"]),
    "5 lb": (["5 pounds"], []),
    "5 kg": ([], ["5 lbs"]),
    "5 oz": (["5 ounces"], []),
    "5 g": ([], ["5 oz", "5 mol"]),
    "5 J": ([], ["5 N"]),
    "5 A": ([], ["5 V"]),
    "5 kW": ([], ["5 W"]),
    "5 °F": ([], ["5 °C"]),
    "5 °C": (["5°C", r"5^\circ C", "5 degrees Celsius", "5 degrees"], []),
    r"5^\circ\text{F}": ([], [r"5^\circ\text{C}"]),
    "5 degrees Fahrenheit": ([], ["5 degrees Celsius"]),
    "5 rad": ([], [r"5^\circ"]),
    "5 minutes": ([], ["5 hours"]),
    "5 weeks": ([], ["5 days"]),
    "5 years": ([], ["5 months"]),
    "€5": ([], ["$5"]),
    "5 euros": ([], ["$5"]),
    "5 pounds": (["£5"], []),
    "5 dollars": (["$5"], []),
    "$5": ([], ["5 cents"]),
    "18 dollars per day": (["$18"], []),
    "18 apples": (["18 dollars"], []),
    "5 oranges": (["5 apples"], []),
    "5 pm": ([], ["5 am"]),
    "5 am": (["5 AM"], []),
    r"5\text{ p.m.}": ([], [r"5\text{ a.m.}"]),
    "12:30 am": ([], ["12:30 pm"]),
    "5 lb of rice": ([], ["5 kg of rice"]),
    "5 gallons": ([], ["5 liters"]),
    "5 L": ([], ["5 mL"]),
    "5 GB": ([], ["5 MB"]),
    r"2\sqrt{3}\text{ m}": ([], [r"2\sqrt{3}\text{ cm}"]),
    r"2\sqrt{3}\text{ cm}": ([], [r"2\sqrt{3}\text{ cm}^2"]),
    r"2\sqrt{3}": ([r"2\sqrt{3}\text{ cm}^2"], []),
    r"\frac{1}{2} lb": ([], [r"\frac{1}{2} kg"]),
    "18": (["18.0"], []),
}
BOUNDS_IN_WORDS: Table = {
    "5": (
        ["almost 5", "about 5", "the maximum is 5", "5 is the maximum", "5 is the minimum"],
        [
            "less than 5",
            "more than 5",
            "at least 5",
            "at most 5",
            "greater than 5",
            "fewer than 5",
            "no more than 5",
            "not more than 5",
            "over 5",
            "under 5",
            "up to 5",
            "above 5",
            "below 5",
            "exceeds 5",
            "5 or more",
            "5 or less",
            "5 and above",
            "5 at least",
            "5 minimum",
            "x is less than 5",
            "a number greater than 5",
            r"\text{less than } 5",
            r"\text{at least }5",
            r"$\text{more than } 5$",
            "less than 5 dollars",
            "less than $5",
            "less than or equal to 5",
            "greater than or equal to 5",
            "between 4 and 6",
            "strictly less than 5",
            "smaller than 5",
            "bigger than 5",
            "5 or fewer",
        ],
    ),
    r"\frac12": ([], [r"less than \frac12"]),
    r"50\%": ([], [r"less than 50\%"]),
    "x<5": (["less than 5"], []),
    r"x \ge 5": (["at least 5"], []),
    r"[5,\infty)": (["at least 5"], []),
    "x > 5": ([], ["at least 5"]),
    "less than 5": (["less than 5"], ["more than 5", "5"]),
    r"\sqrt{5}": ([], [r"less than \sqrt{5}", r"at least \sqrt{5}"]),
    r"\pi": ([], [r"less than \pi"]),
    "2x": ([], ["more than 2x"]),
}
SOLVED_EQUATIONS: Table = {
    "x=y=4, z=2": ([], ["x=z=4, z=2", "x=y=4, z=3"]),
    "x=4, y=4, z=2": (["x=y=4, z=2"], []),
    "x=y=4": (["x=4, y=4", "y=x=4"], ["x=z=4", "x=4", "x=y=5"]),
    "a=b=c=2": (["a=b=c=2"], ["a=b=2"]),
    "2=x": (["2", "x=2"], ["3"]),
    "2": (["2=x"], []),
    "x=2": (["2=x"], ["2=y"]),
    r"\frac{1}{2}=p": ([r"\frac12"], []),
    r"\sqrt{2}=x": ([r"\sqrt2"], []),
    "x=5": (
        ["5=x", "x=5", "x=10/2", "x=5.0", "x == 5"],
        ["3x=15", "2x+6=16", "x-5=0", "5-x=0", "x+1=6", "x=2x-5", "x^2=25, x>0"],
    ),
    r"x=\sqrt{3}": ([], [r"2x=2\sqrt{3}"]),
    "x=2, y=3": ([], ["3y=9, x=2"]),
    "x=2 or x=3": ([], ["(x-2)(x-3)=0", "2x-4=0 or x=3"]),
    "5": ([], ["2x=10", "3x=15"]),
    "x<5": (["-x>-5", "5>x"], ["2x+6<16"]),
    "y=2x+3": (["2x-y+3=0"], []),
    "5 pm": ([], ["5 a.m."]),
    "x + 1 + x**2 == 0": (["x**2 + x + 1 == 0"], []),
    "x=6": ([], ["x == 5"]),
}
BESIDE_THE_ANSWER: Table = {
    "42": ([], ["42 + 0x", "42 + x - x", "42x^0"]),
    "x+1": ([], ["x+1+0^{y}", "x+1+0^{x}"]),
    "x+2": ([], ["x+2+0y", "2+x+y-y", "(x+2)y^0"]),
}
CALCULATIONS: Table = {
    "56877": ([], [r"123\cdot 456+789"]),
    "5": (
        ["x=2+3=5", "2+3=5", "10/2", r"\frac{10}{2}", r"\sqrt{25}", "5^1"],
        ["2+3", "12-7", r"\sqrt{9+16}", "10-5", "x=2+3"],
    ),
    "12": ([r"3 \cdot 4 = 12"], [r"3\cdot 4", "3*4", r"3 \times 4"]),
    "25": ([], ["(2+3)^2"]),
    "2": ([], [r"\frac{1+3}{2}"]),
    "1.5": ([r"1\frac12"], [r"\frac{2\cdot 3}{4}"]),
    "x=5": ([], ["x=2+3", "2+3", "2+3=x"]),
    "xy=7": (["7=xy", "yx=7"], ["3+4=xy"]),
    "2, 3": ([], ["1+1, 3"]),
    "(2, 3)": ([], ["(1+1, 3)"]),
    "8": (["2^3"], []),
    "1024": (["2^{10}"], []),
    "120": (["5!"], []),
    "30000": ([r"3\times 10^4"], []),
    "0.0015": ([r"1.5\cdot 10^{-3}"], []),
    "-30000": ([r"-3\times 10^4"], []),
    "10": ([r"\binom{5}{2}"], []),
    "3": ([r"\log_2 8"], []),
    r"1+\sqrt5": ([r"\sqrt{5}+1"], []),
    r"\sqrt{12}": ([r"2\sqrt3"], []),
    "2+3": (["5", "1+4"], []),
    "1+2+3": (["6"], []),
    "i+4": (["4+i"], []),
    "(7,6)": (["14/2, 6"], []),
    "e": (["e^1"], []),
    "i": ([r"\sqrt{-1}"], []),
}
NUMBERS_IN_BASES: Table = {
    "-1010_3": ([], ["-1010_2"]),
    "-A_{16}": (["-1010_2"], []),
    "-12_3": ([], ["-12_{10}", "-5"]),
    "1011_2": ([], ["1010_2+1"]),
    "204_6": ([], ["204_5"]),
    "204_5": (["204_5"], []),
    "12_3 cm": ([], ["12_3"]),
    "255": ([], ["FF_{16}"]),
    r"\log_2(3^{4000}+1)": ([], [r"\log_2(3^{5000}+1)"]),
}
HUGE_POWERS: Table = {
    "e^1": (["2.718281828459045"], []),
    "10^{16}": (["1e+16"], []),
    r"\frac{1}{2006!}": ([], [r"\frac{1}{2004!}"]),
    r"\frac{1}{2^{98}}": ([], [r"\frac{1}{2^{99}}"]),
    "2^{2009}-1": ([], ["2^{3009}-1"]),
    r"\sqrt{2^{2009}-1}": ([], [r"\sqrt{2^{3009}-1}"]),
    r"\sqrt[3]{2^{2009}+5}": ([], [r"\sqrt[3]{2^{3009}+5}"]),
    "10^{10^{11}}": ([], ["10^{10^{10}}"]),
    "2^{2^{101}}": ([], ["2^{2^{100}}"]),
    r"\ln(2^{2009}-1)": ([], [r"\ln(2^{3009}-1)", r"\ln(2^{2009}+1)", r"2009\ln 2"]),
    r"\ln(10^{20})": ([r"20\ln 10"], [r"21\ln 10"]),
    r"\ln(2^{2009})": ([r"2009\ln 2"], []),
    r"\sqrt{7^{2024}+1}": ([r"\sqrt{1+7^{2024}}"], [r"\sqrt{7^{2024}+2}", "7^{1012}"]),
    r"\sqrt[3]{5^{3000}+7}": ([], ["5^{1000}", r"\sqrt[3]{5^{3000}+8}"]),
    r"\sqrt{10^{100}+10^{50}}": ([r"10^{25}\sqrt{10^{50}+1}"], ["10^{50}"]),
    r"2^{100}+\sqrt{2}": ([r"\sqrt{2}+2^{100}"], ["2^{100}", r"2^{100}+\sqrt{3}"]),
    "e^{2009}": ([r"e^{1000}\cdot e^{1009}"], ["e^{3009}", "e^{2009}+1"]),
    r"\sqrt{\frac{2^{3009}-1}{3}}": ([r"\sqrt{\frac{2^{3009}-1}{3}}"], []),
    "2^{1503.5}": ([r"\frac{\sqrt{2^{3009}}}{2}"], []),
    "2^{2^{100}}": (["2^{2^{100}}"], []),
}
FLOATS: Table = {
    "0.3": (["0.30000000000000004"], ["0.1 + 0.2"]),
    "1/3": (
        ["0.3333333333333333", "0.3333333333333334", r"33.33333333333333\%"],
        ["0.3333", "0.333333333333333", "0.3333333333333434"],
    ),
    r"\frac{1}{3}": (["0.3333333333333333"], []),
    "2/3": (["0.6666666666666666"], []),
    r"\sqrt{13}": (["3.605551275463989"], []),
    r"\pi/4": (["0.7853981633974483"], []),
    r"\pi": (["3.141592653589793"], []),
    "0": ([], ["6.123233995736766e-17", "5e-324"]),
    "0.00001": (["1e-05", "1E-05"], ["-1e-05"]),
    "10^{-5}": (["1e-05"], []),
    r"1.5 \times 10^{-7}": (["1.5e-07"], []),
    "18": ([], ["18.000000000000000001"]),
    "9007199254740992": ([], ["9007199254740993"]),
    "3": (["2.9999999999999996"], []),
    "-1/2": (["-0.49999999999999994"], ["0.49999999999999994"]),
    "1e-05": (["1.0e-05"], []),
    "-0.00001": (["-1e-05"], []),
    "0.0001": ([], ["1e-05"]),
    "0.000001": (["1e-06"], []),
    r"2.5\times 10^{20}": (["2.5e+20"], []),
    "0.30000000000000004": ([], ["0.1+0.2"]),
    r"\frac{\sqrt{2}}{2}": (["0.7071067811865476", "0.7071067811865475"], ["0.7071067811865576"]),
    r"\sqrt{3}": (["1.7320508075688772"], []),
    r"\sqrt5": (["2.23606797749979"], []),
    r"\frac{1+\sqrt5}{2}": (["1.618033988749895"], []),
    r"x=\sqrt2": (["x=1.4142135623730951"], []),
    r"(\sqrt2, 1/10)": (["(1.4142135623730951, 0.1)"], []),
    r"\pm\sqrt2": (["1.4142135623730951, -1.4142135623730951"], []),
    "100": (["99.99999999999999"], ["99.9999999999"]),
    "4": (["4.000000000000001"], []),
    "1": (["0.9999999999999999", "1.0000000000000002"], []),
    "1.0000000000000004": (["1.0000000000000002"], []),
    "1/7": (["0.1428571428571428"], []),
}
SETS: Table = {
    r"\{1,2,3\}": (
        [r"A=\{1,2,3\}", r"\{1,2\} \cup \{3\}", r"\{1,2\} \cup \{2,3\}", r"\{1,2\} ∪ \{3\}"],
        [r"A=\{1,2\}", r"\{1,2\} \cup \{4\}", r"\{1,2\} \cap \{2,3\}"],
    ),
    r"A=\{3,2,1\}": ([r"\{1,2,3\}"], []),
    r"B=\{1,2\}": ([], [r"A=\{1,2\}"]),
    r"\{-2, 3\}": ([r"L = \{-2; 3\}"], []),
    r"\{5\}": ([r"S = \{5\}"], []),
    r"\emptyset": ([r"A=\emptyset", r"\{1,2\} \cap \{3\}", "no solution"], []),
    r"(-\infty,1)\cup(1,\infty)": ([r"D = \mathbb{R} \setminus \{1\}"], []),
    r"\{1,2\}": ([r"A \cup B = \{1,2\}"], [r"\{1,2,3\} \setminus \{2\}"]),
    r"\{2\}": ([r"\{1,2\} \cap \{2,3\}", r"(\{1\} \cup \{2\}) \cap \{2\}"], []),
    r"\{1,3\}": ([r"\{1,2,3\} \setminus \{2\}", r"\{1,2,3\} ∖ \{2\}"], []),
    r"\{5,7\}": ([r"\{5,7,8\} - \{8\}", r"\{5,7,8\} \backslash \{8\}"], [r"\{5,7\} - \{7\}"]),
    r"\mathbb{R} \setminus \{2\}": ([r"\mathbb{R} - \{2\}"], [r"\mathbb{R} - \{3\}"]),
    r"\{a,b,c\}": ([r"\{a,b\} \cup \{c\}"], []),
    r"\{1,2\} \cup \{3\}": ([r"\{1,2,3\}"], []),
    r"\{3,2,1\}": ([r"\{1\} \cup \{2\} \cup \{3\}"], []),
    r"[2,3] \cup \{1\}": ([r"\{1\} \cup [2,3]"], []),
    r"\mathbb{R}": ([r"\text{all real numbers}", "All reals", r"x \in \R"], ["all integers"]),
    r"(-\infty,\infty)": (["all real numbers"], []),
    r"\text{all real numbers}": ([r"\mathbb{R}"], []),
    "all real numbers": ([r"(-\infty, \infty)", "all real numbers"], [r"\emptyset", r"(0,\infty)"]),
    r"\mathbb{Z}": (["all integers"], []),
    r"\varnothing": ([r"\text{no real solutions}"], []),
    r"\{\}": (["empty set"], []),
}
LOGIC: Table = {
    r"(-\infty,-2)\cup(1,\infty)": ([r"x<-2 \lor x>1", "x<-2 ∨ x>1"], [r"x<-2 \land x>1"]),
    "(1,2)": (["x>1 ∧ x<2"], []),
    "1<x<2": ([r"x>1 \wedge x<2"], []),
    "x=1 or x=2": ([r"x=1 \vee x=2"], [r"x=1 \vee x=3"]),
}
CASES: Table = {
    r"\begin{cases} y=2 \\ x=1 \end{cases}": ([r"\begin{cases} x=1 \\ y=2 \end{cases}", "x=1, y=2"], []),
    "x=1, y=2": (
        [
            r"\begin{cases} x=1 \\ y=2 \end{cases}",
            r"\begin{cases} x=1, \\ y=2. \end{cases}",
            r"\left\{\begin{array}{l} x=1 \\ y=2 \end{array}\right.",
            r"\left\{\begin{aligned} x&=1 \\ y&=2 \end{aligned}\right.",
        ],
        [r"\begin{cases} x=2 \\ y=1 \end{cases}"],
    ),
    r"\begin{cases} x=1 \\ y=2 \end{cases}": (["(1,2)"], []),
    r"\begin{cases} x=1 \\ y=3 \end{cases}": ([], [r"\begin{cases} x=1 \\ y=2 \end{cases}"]),
    r"\left\{\begin{array}{l} x=1 \\ y=2 \end{array}\right.": (["x=1, y=2"], []),
    r"f(x)=\begin{cases} -x & x\le 0 \\ x & x>0 \end{cases}": (
        [
            r"f(x)=\begin{cases} x & x>0 \\ -x & x\le 0 \end{cases}",
            r"f(x)=\begin{cases} x & \text{if } x>0 \\ -x & \text{if } x\le 0 \end{cases}",
        ],
        [r"f(x)=\begin{cases} x & x<0 \\ -x & x\le 0 \end{cases}"],
    ),
    r"\begin{cases} n/2 & n \text{ even} \\ 3n & n \text{ odd} \end{cases}": (
        [r"\begin{cases} \frac{n}{2} & \text{if } n \text{ is even} \\ 3n & \text{if } n \text{ is odd} \end{cases}"],
        [r"\begin{cases} n/2 & n \text{ odd} \\ 3n & n \text{ even} \end{cases}"],
    ),
    "1 if n is odd, 0 if n is even": (["0 if n is even, 1 if n is odd"], ["1 if n is even, 0 if n is odd"]),
    "2^p, p prime": (["2^p, p prime"], ["2^p, p odd"]),
    r"f(x)=\begin{cases} x & x>0 \\ -x & \text{otherwise} \end{cases}": (
        [r"f(x)=\begin{cases} x & \text{if } x>0 \\ -x & \text{otherwise} \end{cases}"],
        [r"f(x)=\begin{cases} x & \text{if } x>0 \\ x & \text{otherwise} \end{cases}"],
    ),
    "$f(y)=2y$ for $0<y<1$ and 0 otherwise": (
        [r"$f(y)=y\cdot 2$ for $0<y<1$ and $0$ otherwise"],
        [
            "$f(y)=3y$ for $0<y<1$ and 0 otherwise",
            "$f(y)=2y$ for $0<y<2$ and 0 otherwise",
            "$f(y)=2y$ for $0<y<1$ and 1 otherwise",
            "$f(y)=2y$ for $0<y<1$",
        ],
    ),
    "1+x if x>2, 0 otherwise": (["x+1 if x>2, 0 otherwise"], ["x+1 if x>3, 0 otherwise"]),
    "5": ([], ["5 if n is odd"]),
}
PARAMETERS: Table = {
    r"x=1, y\in\mathbb{R}": ([r"x=1, y \in \mathbb{R}"], [r"x=1, z\in\mathbb{R}", r"x=2, y\in\mathbb{R}"]),
    r"x=1, y\in\{2\}": ([], [r"x=1, z\in\{2\}"]),
    r"n\pi, n\in\mathbb{Z}": (
        [r"k\pi, k\in\mathbb{Z}"],
        [r"2k\pi, k\in\mathbb{Z}", r"k\pi, k\in\mathbb{N}", r"k\pi, n\in\mathbb{Z}", r"n\pi, k\in\mathbb{Z}"],
    ),
    r"x=\frac{\pi}{4}+k\pi, k\in\mathbb{Z}": (
        [r"x=\frac{\pi}{4}+m\pi, m\in\mathbb{Z}"],
        [r"x=\frac{\pi}{3}+m\pi, m\in\mathbb{Z}"],
    ),
    r"x=\frac{\pi}{4}+k\pi, k\in Z": ([r"x=\frac{\pi}{4}+\pi m, m ∈ ℤ"], []),
    r"x=n\pi, n\in\mathbb{Z}": ([], [r"y=k\pi, k\in\mathbb{Z}"]),
    r"\{2n \mid n\in\mathbb{Z}\}": ([r"\{2k \mid k\in\mathbb{Z}\}"], [r"\{2k+1 \mid k\in\mathbb{Z}\}"]),
    r"\{x | x>0\}": ([r"\{y | y>0\}"], []),
    r"a + n b, n\in\mathbb{Z}": ([r"a + k b, k \in \mathbb{Z}"], []),
    r"k\pi, k\in\mathbb{Z}": (
        [r"k\pi, where k is an integer", r"n\pi where n \in \mathbb{Z}", r"n\pi, n \text{ is an integer}"],
        [r"2n\pi, n \text{ an integer}"],
    ),
    r"x = k\pi, k\in\mathbb{Z}": ([r"x = n\pi \text{ for } n \in \mathbb{Z}"], []),
    r"k\pi, k\in\mathbb{Z}, k\ne 0": ([r"n\pi, n\in\mathbb{Z}, n\ne 0"], [r"n\pi, n\in\mathbb{Z}, n\ne 1"]),
    r"\frac{\pi}{4}+k\pi, k\in\mathbb{Z}": ([r"\frac{\pi}{4}+n\pi, n\in\mathbb{Z}"], []),
    r"x=2n\pi \pm \frac{\pi}{3}, n\in\mathbb{Z}": ([r"x=2k\pi \pm \frac{\pi}{3}, k\in\mathbb{Z}"], []),
    r"(s, 2s), s\in\mathbb{R}": ([r"(t, 2t), t\in\mathbb{R}"], [r"(t, 3t), t\in\mathbb{R}"]),
    r"\{(s,2s) \mid s\in\mathbb{R}\}": ([r"\{(t,2t) \mid t\in\mathbb{R}\}"], []),
    r"\{n\in\mathbb{Z} \mid n>0\}": ([r"\{x\in\mathbb{Z} \mid x>0\}"], []),
    r"(0,\infty)": ([r"\{x\in\mathbb{R} \mid x>0\}", r"\{x : x>0\}", r"\{x\in\mathbb{R} : x>0\}"], [r"\{x : x<0\}"]),
    r"\{3k+1 \mid k\in\mathbb{Z}\}": ([r"\{3n+1 : n\in\mathbb{Z}\}"], [r"\{3n+2 : n\in\mathbb{Z}\}"]),
    r"2k\pi, k\in\mathbb{Z}": ([r"2n\pi\ (n\in\mathbb{Z})", r"2\pi n (n ∈ ℤ)"], [r"n\pi\ (n\in\mathbb{Z})"]),
    r"f(x)=cx, c\in\mathbb{R}": ([r"f(x)=kx, k\in\mathbb{R}"], [r"f(x)=kx+1, k\in\mathbb{R}"]),
    "x+C": (["x+C"], []),
    r"\frac{x^2}{2}+C": ([], [r"\frac{x^2}{2}+c"]),
}
OPERATORS: Table = {
    "5": ([], [r"\sum_{k=1}^{5} 1"]),
    r"\frac12": ([], [r"\int_0^1 x dx"]),
    "e-1": ([], [r"\int_0^1 e^x dx"]),
    r"\int_0^1 x dx": ([r"\int_0^1 x\,dx", r"\int_0^1 t\,dt", r"\int_0^1 x\,\mathrm{d}x"], []),
    r"\int_0^1 x\,dx": ([r"\frac12"], [r"\frac13", r"\int_0^2 x\,dx", r"\int_0^1 x^2\,dx"]),
    r"\iint_D xy\,dx\,dy": ([r"\iint_D yx\,dx\,dy"], [r"\iint_E xy\,dx\,dy"]),
    r"\sum_{k=0}^{n-1}F_kF_{n-k-1}": (
        [r"\sum_{k=0}^{n-1}F_{n-k-1}F_k", r"\sum_{j=0}^{n-1}F_jF_{n-j-1}"],
        [r"\sum_{k=0}^{n-2}F_kF_{n-k-2}", r"\sum_{k=0}^{n}F_kF_{n-k-1}"],
    ),
    r"\sum_{i=1}^n a_i b_i": (
        [r"\sum_{i=1}^n a_ib_i", r"\sum_{i=1}^n b_ia_i"],
        [r"\sum_{i=1}^n a_ic_i", r"\sum_{i=1}^{n} a_i"],
    ),
    r"\sum_{k=1}^n k": ([r"\frac{n(n+1)}{2}"], []),
    r"\prod_{j=1}^{n} j": ([r"\prod_{k=1}^n k"], []),
    r"\int_0^{\infty} e^{-x^2}\,dx": ([r"\int_0^\infty e^{-x^2} dx"], []),
    "1": ([], [r"\lim_{x\to 0} \frac{\sin x}{x}"]),
    r"\int (1+x)\,dx": ([r"\int (x+1) dx"], []),
    r"\oint_C F \cdot dr": ([r"\oint_C F\cdot dr"], []),
}

FURTHER_NEIGHBOURS: Table = {
    "7pr": ([], ["7pq"]),
    "$12mk$": ([], ["$12mn$"]),
    "2.5rs": ([], ["2.5rt"]),
    "8uv": ([], ["8"]),
    r"\frac{1}{2}bc": ([], [r"\frac{1}{2}bh"]),
    r"20\text{ m}^3": ([], [r"20\text{ m}^2"]),
    "20 in^3": ([], ["20 in^2"]),
    r"20\,\mathrm{cm}^2": ([], [r"20\,\mathrm{cm}^3"]),
    "30 km": ([], ["30 miles"]),
    "30 seconds": ([], ["30 minutes"]),
    "7:30 PM": ([], ["7:30 AM"]),
    "x=5": ([], ["4x=20", "x+3=8"]),
    "x=6": ([], [r"\frac{x}{2}=3"]),
    "-2011_4": ([], ["-2011_3"]),
    "-77_9": ([], ["-77_8"]),
    "-25_6": ([], ["-25"]),
    "7": ([], ["7 + 0^{n}", r"7 \cdot 1^{x}", r"7 + \sin(x) - \sin(x)", "7^{x^0}", "no less than 7"]),
    "a=b=3, c=1": ([], ["a=c=3, b=1"]),
    r"\sqrt{\frac{3^{1500}-1}{2}}": ([], [r"\sqrt{\frac{3^{2500}-1}{2}}"]),
    r"\frac{2^{1501}+1}{3}": ([], [r"\frac{2^{1500}+1}{3}"]),
    r"\sqrt{5^{1998}}": ([], [r"\sqrt{5^{1999}}"]),
    "323": ([], [r"17\cdot 19", r"$17 \times 19$"]),
    "63": ([], ["100 - 37"]),
    "10": ([], ["1+2+3+4"]),
    "18": ([], [r"2 \cdot 3^2"]),
    "3.5": ([r"\frac{7}{2}"], []),
    r"\sqrt{5}": (["2.23606797749979"], []),
    r"\ln 2": (["0.6931471805599453"], []),
    "10^{-7}": (["1e-07"], []),
    "0": ([], ["1.1102230246251565e-16"]),
    r"\{y,x\}": ([r"B=\{x,y\}"], []),
    r"\{1,3,5\}": ([r"\{1,3\} \cup \{5\}"], []),
    r"(-\infty,-1]\cup[4,\infty)": ([r"x \le -1 \lor x \ge 4"], []),
    "[0,3]": ([r"x \ge 0 \wedge x \le 3"], []),
    r"\begin{cases} c=0 \\ a=2 \\ b=-1 \end{cases}": ([r"\begin{cases} a=2 \\ b=-1 \\ c=0 \end{cases}"], []),
    "rqp=2": (["pqr=2"], []),
    "-1+knm": (["mnk-1"], []),
    "7=y": (["7", "y=7"], []),
    r"\mathbb{Z}": ([r"\text{all integers}"], []),
    r"\emptyset": ([r"\text{the empty set}"], []),
    r"\mathbb{R}": ([], [r"\text{All real numbers except } 2", r"\text{all real numbers greater than 2}", r"\text{R}"]),
    r"2k\pi, k\in\mathbb{Z}": ([r"2m\pi, m\in\mathbb{Z}"], []),
    "x**3 == 1": (["x^3 - 1 == 0"], []),
    r"\pi": ([r"\pi^1"], []),
    "e": ([r"\sqrt{e^2}"], []),
    r"\int_0^2 x^2\,dx": ([r"\int_0^2 x^2 dx", r"\frac{8}{3}"], [r"\frac{7}{3}"]),
    r"\sum_{k=1}^{10} k": ([r"\sum_{k=1}^{10} k", "55"], ["54"]),
    r"\prod_{i=1}^{n} a_i": ([r"\prod_{i=1}^n a_i"], []),
    r"\iint_R (x+y) dA": ([r"\iint_R (x+y)\,dA"], []),
    r"\int_C f ds": ([r"\int_C f\,ds"], []),
    r"\lim_{n \to \infty} a_n": ([r"\lim_{n\to\infty} a_n"], []),
    r"\frac{1}{2}": ([], [r"greater than \frac{1}{2}"]),
    "5 kilograms": (["5 kg"], []),
    "$2x>4$": (["$x>2$"], []),
    "6 grams": (["6 g"], []),
    "6 g": (["6"], []),
    "5": ([], ["5x"]),
    "12 (apples)": (["12"], []),
    "1234 kg": ([], ["1,234 lb"]),
    "5 miles": (["5 mi"], []),
    "4 ft": ([], ["4 ft 3 in"]),
    "6 p.m.": ([], ["6 a.m."]),
    "3 am": (["3 a.m."], []),
    r"5\text{ euros}": ([], [r"\$5"]),
}

TABLES = {
    "letters after numbers": LETTERS_AFTER_NUMBERS,
    "units": UNITS,
    "bounds in words": BOUNDS_IN_WORDS,
    "solved equations": SOLVED_EQUATIONS,
    "beside the answer": BESIDE_THE_ANSWER,
    "calculations": CALCULATIONS,
    "numbers in bases": NUMBERS_IN_BASES,
    "huge powers": HUGE_POWERS,
    "floats": FLOATS,
    "sets": SETS,
    "logic": LOGIC,
    "cases": CASES,
    "parameters": PARAMETERS,
    "operators": OPERATORS,
    "further neighbours": FURTHER_NEIGHBOURS,
}
ROWS = [
    pytest.param(reference, answer, equal, id=f"{name}: {answer} for {reference}")
    for name, table in TABLES.items()
    for reference, (right, wrong) in table.items()
    for equal, answers in ((True, right), (False, wrong))
    for answer in answers
]
# Responses with several boxes → their answer: the last, unless a comma or a word joins them.
BOXES = {
    r"\boxed{5}, \boxed{6}": "5, 6",
    "\\[\\boxed{5}\\]\n\\[\\boxed{6}\\]": "6",
    r"$\boxed{5}$. $\boxed{6}$": "6",
    "$$\\boxed{5}$$\n\n$$\\boxed{6}$$": "6",
    r"\boxed{5}. x = \boxed{6}": "6",
    "so \\boxed{840}., and then\n\n**Final Answer**\n\\boxed{840}": "840",
    r"\boxed{5}; \boxed{6}": "5, 6",
    r"$\boxed{5}$ and $\boxed{6}$": "5, 6",
    r"$\boxed{5}$, and $\boxed{6}$": "5, 6",
    r"\boxed{5} or \boxed{6}": "5, 6",
    r"\boxed{5} \text{ or } \boxed{6}": "5, 6",
    r"\boxed{5}\text{ and }\boxed{6}": "5, 6",
    r"\boxed{5} \quad \boxed{6}": "5, 6",
    r"\boxed{5} \boxed{6}": "6",
    r"\boxed{5}\boxed{6}": "6",
    "\\boxed{5}\n\\boxed{6}": "6",
    r"\boxed{5}. And \boxed{6}": "6",
    "\\boxed{5}.\n\nThe answer is \\boxed{6}": "6",
    r"**\boxed{5}** and **\boxed{6}**": "5, 6",
    r"\boxed{5}\,,\;\boxed{6}": "5, 6",
    r"x=\boxed{5}, y=\boxed{6}": "5, 6",
    r"x=\boxed{5}\ y=\boxed{6}": "6",
    r"\boxed{5}. \boxed{6} and \boxed{7}": "6, 7",
    r"\boxed{5}, \boxed{6}. \boxed{7}": "7",
    r"\boxed{5} papers and \boxed{6} bins": "5, 6",
    r"\boxed{5}, so \boxed{6}": "6",
    r"\boxed{5}! \boxed{6}": "6",
    r"\boxed{5}: \boxed{6}": "6",
    "1. \\boxed{5}\n2. \\boxed{6}": "6",
    r"\(\boxed{5}\), \(\boxed{6}\)": "5, 6",
    r"\[\boxed{1}\] \quad \text{and} \quad \[\boxed{-2}\]": "1, -2",
    "\\boxed{5}\n\nand\n\n\\boxed{6}": "5, 6",
    r"\boxed{5}\; \boxed{6}": "6",
    "\\boxed{5}.\n\\boxed{5}": "5",
    r"\boxed{5} = \boxed{6}": "6",
    r"\boxed{5}. Or \boxed{6}": "6",
}


@pytest.mark.parametrize(("reference", "answer", "equal"), ROWS)
def test_equal_answers_alone_are_equal(reference: str, answer: str, equal: bool) -> None:
    comparison = compare_answers(answer, read_reference(reference))
    assert (comparison.verdict is Verdict.EQUAL) is equal, comparison.detail


@pytest.mark.parametrize("name", TABLES)
def test_rewards_pay_equal_answers_alone(name: str) -> None:
    for reference, answers in TABLES[name].items():
        for answer, equal in [*((text, 1.0) for text in answers[0]), *((text, 0.0) for text in answers[1])]:
            for reward in ("math", "answer_correctness"):
                score = get_reward_function(reward)(rf"so it is \boxed{{{answer}}}.", answer=reference)
                assert (score == 1.0) is (equal == 1.0), (answer, reference, reward)


@pytest.mark.parametrize("response", BOXES)
def test_boxes_are_joined_by_commas_and_words_alone(response: str) -> None:
    assert extract_answer(response) == BOXES[response]


CALCULATION = (r"<answer>123\cdot 456+789</answer>", "56877")


@pytest.mark.parametrize("name", ["math", "debug", "check_numbers", "check_answer", "answer_correctness"])
def test_a_calculation_is_accepted_if_the_argument_says_so(name: str) -> None:
    reward = get_reward_function(name)
    response, reference = CALCULATION
    assert reward(response, answer=reference) in (0.0, -0.5)
    assert reward(response, answer=reference, accept_expressions=True) in (1.0, 1.5)


def test_a_calculation_that_is_not_worked_out_says_so() -> None:
    comparison = compare_answers("2+3", read_reference("5"))
    assert "is not worked out" in comparison.detail
    assert compare_answers("2+3", read_reference("5"), accept_expressions=True).equal


@pytest.mark.parametrize("words", ["e", "i", "all real numbers", "No solution."])
def test_words_that_are_a_formula_are_compared_as_words_too(words: str) -> None:
    assert get_reward_function("math")(f"<answer>{words}</answer>", answer=words) == 1.0
    assert get_reward_function("answer_correctness")(f"<answer>the {words.upper()}</answer>", answer=words) == 1.0


@pytest.mark.parametrize(("reference", "answer"), [("zyx", "xyz"), ("cab", "abc"), ("xyz", "zyx"), ("bad", "dab")])
def test_letters_alone_are_a_word(reference: str, answer: str) -> None:
    assert get_reward_function("answer_correctness")(f"<answer>{answer}</answer>", answer=reference) == 0.0


def test_one_letter_is_a_choice_and_no_constant() -> None:
    assert get_reward_function("answer_correctness")("<answer>E</answer>", answer="e") == 1.0
    assert get_reward_function("answer_correctness")(r"\boxed{e^1}", answer="e") == 1.0


def test_a_factorial_of_an_unknown_is_a_formula() -> None:
    for reward in ("math", "answer_correctness"):
        score = get_reward_function(reward)
        assert [score(rf"\boxed{{{answer}}}", answer="n!") for answer in ("n!", "n", "(n-1)!")] == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("response", ["The answer can't be C", "The answer cannot be C", "It isn't C", "It is not (C)"])
def test_a_denied_choice_is_no_choice(response: str) -> None:
    assert get_reward_function("multiple_choice")(response, answer="C") == 0.0
