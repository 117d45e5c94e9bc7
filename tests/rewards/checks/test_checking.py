"""Rewards that can be exploited are caught, and those that ship are not."""

import functools
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.errors import RewardError, RewardSignatureError
from agent_tunix.rewards import resolve_reward
from agent_tunix.rewards.checks import Budget, CheckReport, Kind, Problem, check_reward
from tests.rewards.checks.known_limits import CHECKED, check_builtin, documented_rows, row_of
from tests.rewards.checks.support import sums

PLANTED = Path(__file__).parent / "planted"
BUDGET = Budget(tries=200, seconds=60.0)

# What each planted reward must be caught by, whatever else catches it too.
CAUGHT_BY = {
    "answer_in_response": "every answer listed",
    "any_number_of_the_prompt": "prompt echo",
    "backtracking": "never raises",
    "contains_ignoring_case": "every answer listed",
    "drops_the_sign": "near misses",
    "first_number": "gold solution",
    "keyword_stuffing": "exploit search",
    "last_line_of_numbers": "every answer listed",
    "mutates_metadata": "arguments untouched",
    "nondeterministic": "deterministic",
    "pays_for_length": "word stuffing",
    "raises_on_garbage": "never raises",
    "same_digits": "near misses",
    "short_and_wrong": "long beats short",
    "tag_counting": "tag spam",
    "tags_only": "another reference",
    "unbounded": "bounded",
    "wide_tolerance": "near misses",
    "within_one_percent": "edge references",
    "yes_when_unsure": "empty",
    "zero_is_falsy": "edge references",
}


def check(reward: Any, problems: list[Problem] | None = None, **options: Any) -> CheckReport:
    mixture = resolve_reward(reward, args=options.pop("args", None))
    return check_reward(mixture, problems or sums(12), **{"budget": BUDGET, **options})


@pytest.mark.parametrize("name", sorted(file.stem for file in PLANTED.glob("*.py")))
def test_a_planted_exploitable_reward_is_caught(name: str) -> None:
    report = check(f"{PLANTED / name}.py:reward")
    assert CAUGHT_BY[name] in report.failed, report.text
    assert not report.passed


def test_there_are_at_least_ten_planted_rewards() -> None:
    assert len(CAUGHT_BY) >= 10


@pytest.mark.parametrize("name", CHECKED)
def test_a_built_in_passes_and_the_docs_tell_its_limits(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "agent_tunix.rewards")  # `debug` tells everything
    report = check_builtin(name)
    assert report.passed, report.text
    assert report.kind is not None
    assert report.range is not None
    assert documented_rows().get(name) == row_of(name, report), (
        "run `python -m tests.rewards.checks.known_limits`, and read what changed"
    )


def test_a_response_that_is_slow_each_time_fails() -> None:
    @functools.cache
    def parse(response: str) -> str:
        time.sleep(1.1 if response.strip() == "①②" else 0.0)
        return response.strip()

    def slow(response: str) -> float:
        """Range [0, 1]."""
        return 0.5 if parse(response) else 0.0

    report = check(slow, sums(2))
    assert "never raises" in report.failed
    assert "circled digits took 1." in report.text


def test_a_call_that_the_machine_held_up_once_does_not() -> None:
    held_up: list[str] = []

    def quick(response: str) -> float:
        """Range [0, 1]."""
        if response == "①②" and not held_up:
            held_up.append(response)
            time.sleep(1.1)
        return 0.5

    report = check(quick, sums(2))
    assert held_up
    assert "never raises" not in report.failed, report.text


def test_a_mixture_of_built_ins_passes_as_a_composite() -> None:
    report = check({"correct": "math", "tags": {"function": "format", "weight": 0.2}}, sums(8))
    assert report.passed, report.text
    assert (report.kind, report.range) == (Kind.COMPOSITE, (0.0, 1.2))


def test_a_mixture_that_pays_more_for_form_than_for_the_answer_fails() -> None:
    report = check({"correct": {"function": "check_numbers", "weight": 0.1}, "brevity": brevity}, sums(8))
    assert "long beats short" in report.failed


def brevity(response: str) -> float:
    """Range [0, 1]."""
    return 1.0 / (1.0 + len(response.split()))


def test_a_curriculum_is_checked_late_in_training_unless_told_otherwise() -> None:
    assert check("curriculum", sums(8)).passed
    assert "another reference" in check("curriculum", sums(8), step=1).failed


def test_a_reward_of_unknown_kind_has_the_universal_checks_only() -> None:
    def polite(response: str) -> float:
        """Range [0, 1]."""
        return 1.0 if "answer" in response else 0.0

    report = check(polite, sums(4))
    assert report.kind is None
    assert report.passed
    assert "gold solution" not in {finding.check for finding in report.findings}
    assert not check(polite, sums(4), kind=Kind.CORRECTNESS).passed


def test_an_undeclared_kind_is_refused() -> None:
    def polite(response: str) -> float:
        return 1.0

    polite.kind = "politeness"  # type: ignore[attr-defined]
    with pytest.raises(RewardError, match="politeness"):
        check(polite)


def test_a_constant_reward_teaches_nothing() -> None:
    assert "levels" in check(lambda response: 1.0, sums(4)).failed


def test_a_reward_that_hangs_is_stopped_and_told() -> None:
    def hangs(response: str) -> float:
        while "\\boxed{\\boxed{" in response:
            pass
        return 0.5 * ("answer" in response)

    from agent_tunix.rewards.checks.problems import Problem as Row
    from agent_tunix.rewards.checks.scoring import Scorer
    from agent_tunix.rewards.sample import Outcome

    scorer = Scorer(resolve_reward(hangs), limit_s=0.2)
    assert scorer(Row("", {}), "\\boxed{\\boxed{").outcome is Outcome.TIMEOUT
    assert scorer(Row("", {}), "answer").value == 0.5


def test_the_search_is_the_same_for_the_same_seed() -> None:
    first, second = (check(f"{PLANTED / 'yes_when_unsure'}.py:reward", seed=5) for _ in range(2))
    found = [finding for report in (first, second) for finding in report.findings if finding.check == "exploit search"]
    assert found[0] == found[1]


def test_a_check_can_be_left_out() -> None:
    report = check(f"{PLANTED / 'zero_is_falsy'}.py:reward", skip=["edge references"])
    assert report.passed, report.text
    assert "edge references" not in report.text


def test_data_that_lack_a_required_column_are_refused() -> None:
    with pytest.raises(RewardSignatureError, match="sources"):
        check("citations")


def test_no_problems_are_refused() -> None:
    with pytest.raises(RewardError, match="at least one"):
        check_reward(resolve_reward("math"), [])


def test_a_report_is_ready_for_json() -> None:
    data = check("check_numbers", sums(4)).to_data()
    assert data["passed"] is True
    assert {finding["status"] for finding in data["findings"]} <= {"passed", "noted", "skipped"}
