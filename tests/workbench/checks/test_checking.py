"""Rewards that can be exploited are caught, and those that ship are not."""

import difflib
import functools
import logging
import time
from typing import Any

import pytest

from agent_tunix.errors import RewardError, RewardSignatureError
from agent_tunix.rewards import Outcome, resolve_reward
from agent_tunix.workbench.checks import Budget, CheckProblem, CheckReport, Kind, check_reward
from agent_tunix.workbench.checks.scoring import Scorer
from tests.raising import raises
from tests.workbench.checks.known_limits import CHECKED, check_builtin, documented_rows, row_of
from tests.workbench.checks.planted import PLANTED
from tests.workbench.checks.support import sums

BUDGET = Budget(tries=200, seconds=600.0)


def check(reward: Any, problems: list[CheckProblem] | None = None, **options: Any) -> CheckReport:
    mixture = resolve_reward(reward, args=options.pop("args", None))
    return check_reward(mixture, problems or sums(12), **{"budget": BUDGET, **options})


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_exploitable_reward_is_caught(name: str) -> None:
    reward, caught_by = PLANTED[name]
    report = check(reward, timeout_s=1.0 if name == "backtracking" else 60.0)
    assert caught_by in report.failed, report.text
    assert not report.passed


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKED)
def test_a_built_in_passes_and_the_docs_tell_its_limits(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "agent_tunix.rewards")  # `debug` tells everything
    report = check_builtin(name)
    assert report.passed, report.text
    assert None not in (report.kind, report.range)
    assert documented_rows().get(name) == row_of(name, report), (
        "run `python -m tests.workbench.checks.known_limits`, and read what changed"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("times", "fails"), [(1, False), (1000, True)])
def test_only_a_response_that_is_slow_each_time_fails(times: int, fails: bool) -> None:
    delays = [1.1] * times

    @functools.cache
    def parse(response: str) -> str:
        if response.strip() == "①②" and delays:
            time.sleep(delays.pop())
        return response.strip()

    def reward(response: str) -> float:
        """Range [0, 1]."""
        return 0.5 if parse(response) else 0.0

    report = check(reward, sums(2))
    assert len(delays) < times
    assert ("never raises" in report.failed) is fails, report.text
    assert ("circled digits took" in report.text) is fails


@pytest.mark.slow
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
    names = {finding.check for finding in report.findings}
    assert "gold solution" not in names
    assert "not run" in names
    assert not check(polite, sums(4), kind=Kind.CORRECTNESS).passed


def test_the_kind_of_a_component_decides_what_is_checked_and_what_was_not_is_told() -> None:
    def polite(response: str) -> float:
        """Range [0, 1]."""
        return 1.0 if "please" in response else 0.0

    (untold,) = [one for one in check({"a": "format", "b": polite}, sums(4)).findings if one.check == "not run"]
    assert "b has none" in untold.text
    assert "`b: {function: …, kind: quality}`" in untold.text
    told = check({"a": "format", "b": {"function": polite, "kind": "form"}}, sums(4))
    assert told.kind is Kind.FORM
    assert "not run" not in {one.check for one in told.findings}
    several = check({"a": "format", "b": {"function": polite, "kind": "quality"}}, sums(4))
    assert any(one.check == "not run" and "form, quality" in one.text for one in several.findings)


def test_an_undeclared_kind_is_refused() -> None:
    def polite(response: str) -> float:
        return 1.0

    polite.kind = "politeness"  # type: ignore[attr-defined]
    with pytest.raises(RewardError, match="politeness"):
        check(polite)
    with pytest.raises(RewardError, match="politeness"):
        check({"manners": {"function": polite, "kind": "politeness"}})


def test_a_constant_reward_teaches_nothing() -> None:
    assert "levels" in check(lambda response: 1.0, sums(4)).failed


def test_a_reward_that_hangs_is_stopped_and_told() -> None:
    def hangs(response: str) -> float:
        while "\\boxed{\\boxed{" in response:
            pass
        return 0.5 * ("answer" in response)

    assert (
        Scorer(resolve_reward(hangs), limit_s=0.2)(CheckProblem("", {}), "\\boxed{\\boxed{").outcome is Outcome.TIMEOUT
    )
    assert Scorer(resolve_reward(hangs), limit_s=60.0)(CheckProblem("", {}), "answer").value == 0.5


def test_the_search_is_the_same_for_the_same_seed() -> None:
    first, second = (check(PLANTED["yes_when_unsure"][0], sums(4), seed=5) for _ in range(2))
    found = [finding for report in (first, second) for finding in report.findings if finding.check == "exploit search"]
    assert found[0] == found[1]


def test_a_check_can_be_left_out() -> None:
    report = check(PLANTED["zero_is_falsy"][0], sums(4), skip=["edge references"])
    assert report.passed, report.text
    assert "edge references" not in report.text


def test_data_that_lack_a_required_column_are_refused() -> None:
    with raises(RewardSignatureError, "invalid_reward_signature"):
        check("citations")


def test_no_problems_are_refused() -> None:
    with raises(RewardError, "invalid_cases"):
        check_reward(resolve_reward("math"), [])


def test_a_column_that_alone_earns_everything_is_named() -> None:
    def keywords(response: str, keywords: list[str]) -> float:
        return sum(word in response for word in keywords) / len(keywords)

    def sentences(response: str, keywords: list[str]) -> float:
        return float(response.endswith(".")) * keywords_share(response, keywords)

    def keywords_share(response: str, keywords: list[str]) -> float:
        return sum(response.count(word) == 1 for word in keywords) / len(keywords)

    problems = [CheckProblem("Where?", {"answer": f"on page {n}.", "keywords": ["page", str(n)]}) for n in range(4)]
    stuffed = [finding for finding in check(keywords, problems).findings if finding.check == "stuffing"]
    assert len(stuffed) == 1
    assert "keywords" in stuffed[0].text
    assert not [finding for finding in check(sentences, problems).findings if finding.check == "stuffing"]

    def optional(response: str, keywords: list[str] | None = None) -> float | None:
        return None if keywords is None else sum(word in response for word in keywords) / len(keywords)

    without = [CheckProblem("Where?", {"answer": "on page 1."}), *problems]
    assert [finding.check for finding in check(optional, without).findings].count("stuffing") == 1


QUERIES = [
    CheckProblem(f"How many {name} are there?", {"answer": f"SELECT COUNT(*) FROM {name}"})
    for name in ("ships", "towns", "birds", "songs", "trees", "clubs")
]


def findings(report: CheckReport) -> dict[str, str]:
    return {finding.check: finding.status.value for finding in report.findings}


def likeness(response: str, answer: str) -> float:
    """Range [0, 1]."""
    return difflib.SequenceMatcher(None, response, answer).ratio()


def test_pay_for_likeness_to_the_reference_fails_by_the_references_of_other_rows() -> None:
    report = check(likeness, QUERIES, kind=Kind.CORRECTNESS, budget=Budget(0))
    assert "one reference for all" in report.failed
    assert findings(check(likeness, QUERIES, budget=Budget(0)))["one reference for all"] == "noted"
    same = [CheckProblem("Again?", {"answer": "yes"})] * 3
    assert findings(check(likeness, same, budget=Budget(0)))["one reference for all"] == "skipped"


def test_what_a_policy_writes_most_often_is_tried_on_every_problem() -> None:
    def counts(response: str, answer: str) -> float:
        """Range [0, 1]."""
        return 1.0 if response == answer else 0.8 * ("count(" in response.lower() and "*" in response)

    written = ["select count(*)", "SELECT 1", "select count(*)"]
    options: dict[str, Any] = {"kind": Kind.CORRECTNESS, "budget": Budget(0)}
    assert "frequent completions" in check(counts, QUERIES, completions=written, **options).failed
    passed = check(counts, QUERIES, completions=["SELECT 1"], **options)
    assert findings(passed)["frequent completions"] == "passed"
    assert "frequent completions" not in findings(check(counts, QUERIES, **options))


def test_a_completion_that_guesses_the_commonest_reference_is_no_exploit() -> None:
    truths = [CheckProblem(f"Is {n} even?", {"answer": "no" if n % 4 else "yes"}) for n in range(8)]
    report = check(
        lambda response, answer: float(response == answer),
        truths,
        kind=Kind.CORRECTNESS,
        budget=Budget(0),
        completions=["no"] * 9,
    )
    assert findings(report)["frequent completions"] == "passed"


@pytest.mark.parametrize("kind", [Kind.CORRECTNESS, Kind.COMPOSITE])
def test_the_answer_alone_is_a_style(kind: Kind) -> None:
    def equal(response: str, answer: str) -> float:
        return float(response.strip() == answer)

    report = check(equal, sums(6), kind=kind, budget=Budget(0), skip=["levels"])
    assert report.style == "bare"
    assert "gold solution" not in report.failed
    assert "empty" not in report.failed


def test_the_answer_alone_is_no_style_of_a_reward_that_only_prefers_it() -> None:
    spec = {"correct": "math", "short": {"function": brevity, "weight": 0.2}}
    assert check(spec, sums(4), budget=Budget(0)).style != "bare"


@pytest.mark.parametrize("kind", [Kind.CORRECTNESS, Kind.COMPOSITE])
def test_gold_solutions_far_below_the_declared_maximum_fail(kind: Kind) -> None:
    def tenth(response: str, answer: str) -> float:
        """Range [0, 1]."""
        return 0.1 * (response.endswith(f"<answer>{answer}</answer>"))

    assert "gold solution" in check(tenth, sums(6), kind=kind, budget=Budget(0)).failed


def test_rows_without_references_have_the_checks_that_need_none() -> None:
    problems = [CheckProblem(f"Write {n} words.", {"words": n}) for n in (2, 3)]
    report = check(
        lambda response, words: float(len(response.split()) == words), problems, kind=Kind.CORRECTNESS, skip=["levels"]
    )
    assert report.passed, report.text
    assert findings(report)["gold solution"] == "skipped"
    assert findings(report)["exploit search"] == "noted"
