"""Problems for the tests of checks, made here so that they depend on no data set."""

from agent_tunix.workbench.checks import CheckProblem

NAMES = ("Ann", "Bob", "Cid", "Dora")


def sums(count: int = 16) -> list[CheckProblem]:
    """Word problems of two steps whose answers are whole numbers."""
    problems = []
    for number in range(count):
        a, b, c = 3 + number, 2 + number % 5, 4 + 3 * (number % 7)
        first, answer = a * b, a * b + c
        prompt = f"{NAMES[number % 4]} has {a} boxes of {b} pens and {c} more. How many pens is that?"
        columns = {"question": prompt, "answer": str(answer), "solution": f"{a}*{b}={first}; {first}+{c}={answer}"}
        problems.append(CheckProblem(prompt, columns))
    return problems


def capitals() -> list[CheckProblem]:
    pairs = {"France": "Paris", "Peru": "Lima", "Chile": "Santiago", "Kenya": "Nairobi", "Japan": "Tokyo"}
    problems = []
    for land, city in pairs.items():
        source = land.lower()
        work = f"The government of {land} sits there [{source}]."
        columns = {"answer": city, "solution": work, "sources": [source]}
        problems.append(CheckProblem(f"What is the capital of {land}?", columns))
    return problems


def choices(count: int = 10) -> list[CheckProblem]:
    return [
        CheckProblem(
            f"Which of these is {number}? (A) one (B) two (C) three (D) four",
            {"answer": "ABCD"[number % 4], "solution": "We compare the options."},
        )
        for number in range(count)
    ]
