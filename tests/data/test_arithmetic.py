import ast
import operator
from itertools import islice
from typing import Any

import pytest

from agent_tunix.config.compose import with_overrides
from agent_tunix.config.schema import Config
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.generated.arithmetic import Split, draw_arithmetic, make_arithmetic
from agent_tunix.data.generated.numbers import make_numbers
from agent_tunix.data.sources.synthetic import read_synthetic
from agent_tunix.environments.builtin.calculator import calculator
from agent_tunix.errors import ConfigError
from tests.raising import raises

OPERATORS: dict[type[ast.operator], Any] = {ast.Add: operator.add, ast.Mult: operator.mul}


def value(node: ast.expr) -> int:
    """An independent calculator of sums and products."""
    if isinstance(node, ast.BinOp):
        return int(OPERATORS[type(node.op)](value(node.left), value(node.right)))
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, int)
    return node.value


@pytest.mark.parametrize("split", ["train", "test"])
def test_answers_are_exact_and_have_three_to_five_digits(split: Split) -> None:
    for problem in islice(draw_arithmetic(split, 0), 2000):
        assert problem.expression in problem.question
        assert value(ast.parse(problem.expression, mode="eval").body) == problem.answer
        assert calculator(problem.expression) == str(problem.answer)
        assert 3 <= len(str(problem.answer)) <= 5


def test_the_sum_of_the_numbers_is_never_near_the_answer() -> None:
    """The embedded model guesses it; `math` pays for an answer within a tenth."""
    for problem in islice(draw_arithmetic("train", 0), 5000):
        assert sum(problem.numbers) < 0.7 * problem.answer


def test_splits_share_no_expression_and_no_expression_comes_twice() -> None:
    drawn = {split: [p.expression for p in islice(draw_arithmetic(split, 0), 5000)] for split in ("train", "test")}
    assert len({*drawn["train"], *drawn["test"]}) == 10_000


def test_arithmetic_follows_the_seed() -> None:
    rows = make_arithmetic("test", 300, seed=7)
    assert rows == make_arithmetic("test", 300, seed=7)
    assert rows[:20] == make_arithmetic("test", 20, seed=7) != make_arithmetic("test", 20, seed=1)


def test_arithmetic_does_not_change_between_releases() -> None:
    """Recorded figures rest on it."""
    assert make_arithmetic("test", 2, seed=0) == [
        {"question": "Work out 97 * 53 + 88 * 34.", "answer": "8133"},
        {"question": "Calculate 91 * 93 + 59 * 46.", "answer": "11177"},
    ]


def test_numbers_have_no_answer_and_each_ten_have_every_target_once() -> None:
    for split in ("train", "test"):
        rows = make_numbers(split, 40, seed=3)
        assert rows == make_numbers(split, 45, seed=3)[:40] != make_numbers(split, 40, seed=4)
        assert all(row.keys() == {"question", "target"} for row in rows)
        assert [sorted(row["target"] for row in rows[start : start + 10]) for start in range(0, 40, 10)] == [
            list(range(1, 11))
        ] * 4


def test_splits_of_numbers_share_no_question() -> None:
    train, test = ({row["question"] for row in make_numbers(split, 500, seed=0)} for split in ("train", "test"))
    assert train
    assert test
    assert not train & test


@pytest.mark.parametrize("make", [make_arithmetic, make_numbers])
def test_impossible_arguments_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="split"):
        make("dev", 1, seed=0)
    with pytest.raises(ValueError, match="count"):
        make("train", -1, seed=0)


@pytest.mark.parametrize("problems", ["word_problems", "arithmetic", "numbers"])
def test_more_problems_than_there_are_is_a_configuration_error(problems: str) -> None:
    config = with_overrides(Config(), [f"data.problems={problems}", "data.num_test=10000000000"])
    with raises(ConfigError, "invalid_config"):
        list(read_synthetic(config, "test", Dropped()))
