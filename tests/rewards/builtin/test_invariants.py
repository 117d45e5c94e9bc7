import doctest
import importlib
import math
import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_tunix.rewards import Outcome, get_reward_function, list_reward_functions
from agent_tunix.rewards.answers import Ruling, Verdict, set_thorough_runner
from agent_tunix.rewards.builtin import BUILTINS, FAMILIES
from agent_tunix.rewards.judges import JUDGES
from agent_tunix.rewards.reward_model import REWARD_MODELS
from tests.rewards.builtin.cases import score

NAMES = sorted(FAMILIES)
# `environment` applies to episodes alone.
IN_PROCESS = sorted(
    name
    for name, builtin in BUILTINS.items()
    if not (builtin.isolated or builtin.library or name in ("environment", "agent"))
)
TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
PIECES = (*TAGS, "4", "-", "5", ",", ".", "\\boxed{", "}", "#### ", " so ", "=")
RESPONSES = st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join))


def documented_range(name: str) -> tuple[float, float]:
    found = re.search(r"Range \[(.+?), (.+?)\]", get_reward_function(name).function.__doc__ or "")
    assert found, f"the docstring of {name} gives no range"
    return float(found[1]), float(found[2])


@pytest.fixture(autouse=True)
def the_thorough_tier_answers_at_once() -> Iterator[None]:
    previous = set_thorough_runner(lambda questions: [Ruling(Verdict.DIFFERENT)] * len(questions))
    yield
    set_thorough_runner(previous)


@pytest.mark.parametrize("name", NAMES)
def test_the_table_has_the_range_of_the_docstring(name: str) -> None:
    assert documented_range(name) == (BUILTINS[name].low, BUILTINS[name].high)


@pytest.mark.parametrize("name", IN_PROCESS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    response=RESPONSES,
    answer=st.one_of(st.just("4"), st.just("-5"), st.just("0"), st.text()),
    step=st.integers(0, 9999),
)
def test_any_response_earns_a_value_in_the_documented_range_or_a_typed_outcome(
    name: str, response: str, answer: str, step: int
) -> None:
    result = score(name, response, answer, step=step)
    if result.outcome is Outcome.SCORED:
        low, high = documented_range(name)
        assert low <= (result.value if result.value is not None else math.nan) <= high
    else:
        assert result.outcome is Outcome.BAD_REFERENCE
    assert result.detail


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_PROCESS)
def test_a_long_response_is_scored(name: str) -> None:
    """Quadratic time would be a hang."""
    for unit in (
        *("a ", "1,", "<answer>", "</answer>", "\\boxed{", "{", "}", "<reasoning>4</reasoning>", "-1 "),
        *("```\n", "<", "1. b\n", "[a]", "$", "answer is ", "\\[", "B "),
    ):
        result = score(name, unit * (40_000 // len(unit)), step=2000)
        assert result.outcome is (Outcome.BAD_REFERENCE if name == "multiple_choice" else Outcome.SCORED), unit


MODULES = [
    *(f"builtin.{family}" for family in sorted(set(FAMILIES.values()))),
    *("answers.extraction", "answers.numbers", "answers.grammar", "answers.thorough", "transforms"),
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_the_docstrings_are_true(name: str) -> None:
    module = importlib.import_module(f"agent_tunix.rewards.{name}")
    result = doctest.testmod(module, extraglobs={"get_reward_function": get_reward_function})
    assert result.attempted > 0
    assert result.failed == 0


def test_every_builtin_has_an_example() -> None:
    assert set(NAMES) == set(list_reward_functions()) - set(JUDGES) - set(REWARD_MODELS)
    for name in NAMES:
        assert ">>>" in (get_reward_function(name).function.__doc__ or ""), name
