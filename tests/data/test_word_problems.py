import re
from itertools import islice
from typing import Any

import pytest

from agent_tunix.data.generated.word_problems import Split, WordProblem, count_available, draw_problems, make_problems

# What another name or thing does not change.
NAMES = r"Mia|Ana|Eva|Lily|Nora|Ruth|Zoe|Kate|Ben|Sam|Tom|Max|Leo|Noah|Omar|Jack|\bs?he\b"
THINGS = r"pens|apples|cards|books|shells|beads|stamps|coins|cakes|balls"


@pytest.fixture(scope="module")
def drawn() -> dict[Split, list[WordProblem]]:
    counts: dict[Split, int] = {"train": 20_000, "test": 5000}
    return {split: list(islice(draw_problems(split, 0), count)) for split, count in counts.items()}


def evaluate(expression: str) -> int:
    """An independent calculator for ``a?b``."""
    left, operator, right = re.split(r"([-+*/])", expression)
    a, b = int(left), int(right)
    if operator == "/":
        assert a % b == 0
    return {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[operator]


@pytest.mark.parametrize("split", ["train", "test"])
def test_rows_have_the_schema_of_gsm8k(split: Split) -> None:
    for row in make_problems(split, 500, seed=0):
        assert list(row) == ["question", "answer"]
        assert row["question"].endswith("?")
        worked, _, final = row["answer"].partition("\n#### ")
        assert worked.rpartition("=")[2] == final
        assert final.isdecimal()


def test_rows_follow_the_seed() -> None:
    rows = make_problems("test", 300, seed=7)
    assert rows == make_problems("test", 300, seed=7)
    assert rows[:20] == make_problems("test", 20, seed=7) != make_problems("test", 20, seed=1)


def test_rows_do_not_change_between_releases() -> None:
    """The shipped model and every recorded figure rest on these."""
    assert make_problems("test", 1, seed=0) == [
        {
            "question": "Sam splits 24 coins into 2 equal bags and adds 4 to one bag. How many coins are in that bag?",
            "answer": "24/2=12; 12+4=16\n#### 16",
        }
    ]


def test_no_question_comes_twice_and_splits_share_no_problem(drawn: dict[Split, list[WordProblem]]) -> None:
    def shape(problem: WordProblem) -> tuple[str, tuple[str, str]]:
        return re.sub(f"{NAMES}|{THINGS}", "_", problem.question), problem.steps  # Each template has its own wording.

    for problems in drawn.values():
        assert len({problem.question for problem in problems}) == len(problems)
    assert not set(map(shape, drawn["train"])) & set(map(shape, drawn["test"]))


@pytest.mark.parametrize("split", ["train", "test"])
def test_steps_lead_from_the_numbers_of_the_question_to_a_small_answer(
    split: Split, drawn: dict[Split, list[WordProblem]]
) -> None:
    for problem in drawn[split][:5000]:
        (first, partial), (second, final) = (step.split("=") for step in problem.steps)
        assert evaluate(first) == int(partial) == problem.partial
        assert evaluate(second) == int(final) == problem.answer
        assert 0 < problem.answer < 100
        assert problem.partial != problem.answer
        used = re.findall(r"\d+", f"{first} {second}")
        used.remove(partial)
        assert sorted(used) == sorted(re.findall(r"\d+", problem.question))


@pytest.mark.parametrize(
    ("split", "count", "words"),
    [
        ("test", count_available("test") + 1, f"between 0 and {count_available('test')}"),
        ("train", -1, "got -1"),
        ("validation", 1, "validation"),
    ],
)
def test_what_there_is_not_is_refused(split: Any, count: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_problems(split, count, seed=0)
