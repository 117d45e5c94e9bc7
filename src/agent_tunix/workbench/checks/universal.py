"""Checks of a reward of any kind: deterministic, bounded, a score for every response."""

from collections.abc import Iterable

from agent_tunix.rewards.kinds import format_range
from agent_tunix.rewards.sample import Outcome, Score
from agent_tunix.workbench.checks.problems import CheckProblem
from agent_tunix.workbench.checks.report import CheckExample, CheckFinding, Status
from agent_tunix.workbench.checks.responses import adversarial
from agent_tunix.workbench.checks.scoring import HangingRewardError
from agent_tunix.workbench.checks.trial import EPSILON, MOST_EXAMPLES, Trial

_SLOW_S = 1.0


def check_deterministic(trial: Trial) -> CheckFinding:
    """Check that a response earns the same each time, in any order of the responses."""
    problems = trial.problems[:16]
    trials = [(p, r) for p in problems for r in (trial.solve(p), p.prompt, "", trial.solve(p, work="", answer="7"))]
    first = [trial.score(problem, response) for problem, response in trials]
    for _ in range(2):
        trials.reverse()
        first.reverse()
        for (problem, response), before in zip(trials, first, strict=True):
            now = trial.score(problem, response)
            if (now.value, now.outcome) != (before.value, before.outcome):
                values = f"{_show(before)} at first and {_show(now)} later"
                example = CheckExample(response, problem.answer, now.value, detail=values)
                return CheckFinding(
                    "deterministic", Status.FAILED, "the same response earned different scores", (example,)
                )
    return CheckFinding("deterministic", Status.PASSED, f"{len(trials)} responses, three times each, in changing order")


def gave_up(error: HangingRewardError) -> CheckFinding:
    """Return the finding about a reward that repeatedly hangs or ends its process."""
    examples = tuple(CheckExample(r, problem.answer, None, detail=score.detail) for problem, r, score in error.lost)
    text = f"{len(examples)} responses hung or ended the process; the check stops here and skips its remaining parts"
    return CheckFinding("never raises", Status.FAILED, text, examples)


def check_robust(trial: Trial) -> CheckFinding:
    """Check that every response has a score: no exception, no timeout, and no response that is slow each time."""
    failures: list[CheckExample] = []
    slowest, slow_name, num_tried = 0.0, "", 0
    for problem in trial.problems[:2]:
        for name, response in adversarial(trial.style, trial.scorer.template):
            score = trial.score(problem, response)
            num_tried += 1
            # Once one response is known to be slow, the others need no second measurement.
            seconds = score.seconds if slowest > _SLOW_S else _lasting_seconds(trial, problem, response, score)
            if seconds > slowest:
                slowest, slow_name = seconds, name
            if score.outcome in (Outcome.ERROR, Outcome.TIMEOUT):
                failures.append(CheckExample(response, problem.answer, None, detail=f"{name}: {score.detail}"))
    for problem, response, score in trial.seen:
        if score.outcome in (Outcome.ERROR, Outcome.TIMEOUT) and len(failures) < MOST_EXAMPLES:
            failures.append(CheckExample(response, problem.answer, None, detail=score.detail))
    if failures:
        text = "a response went unscored; a malformed one earns a documented score"
        return CheckFinding("never raises", Status.FAILED, text, tuple(failures[:MOST_EXAMPLES]))
    if slowest > _SLOW_S:
        return CheckFinding(
            "never raises", Status.FAILED, f"{slow_name} took {slowest:.1f} s; no call should take over 1 s"
        )
    return CheckFinding(
        "never raises", Status.PASSED, f"{num_tried} hostile strings; the slowest took {1000 * slowest:.1f} ms"
    )


def _lasting_seconds(trial: Trial, problem: CheckProblem, response: str, first: Score) -> float:
    """Return the time that the reward itself takes: the least of up to three calls.

    A busy machine or a first import slows down only some of the calls. Line ends are added to the response, so that a
    cache of the reward does not answer.
    """
    seconds = first.seconds
    for number in (1, 2):
        if seconds > _SLOW_S and first.outcome is not Outcome.TIMEOUT:
            seconds = min(seconds, trial.score(problem, response + "\n" * number).seconds)
    return seconds


def check_bounded(trial: Trial) -> CheckFinding:
    """Check that all values lie in the declared range; without one, that values do not grow with the length."""
    problem = trial.problems[0]
    growth = [(unit, [trial.score(problem, unit * 10**n).value for n in range(1, 5)]) for unit in ("so 1 = 1 ", "a ")]
    entries = [(p, r, s) for p, r, s in trial.seen if s.value is not None]
    values = [score.value for _, _, score in entries if score.value is not None]
    if not values:
        return CheckFinding("bounded", Status.FAILED, "no response was scored", _unscored_example(trial))
    observed = (min(values), max(values))
    summary = f"{len(values)} values from {observed[0]:g} to {observed[1]:g}"
    if trial.range is not None:
        low, high = trial.range
        outside = [(p, r, s) for p, r, s in entries if not low - EPSILON <= (s.value or 0.0) <= high + EPSILON]
        if outside:
            p, r, s = outside[0]
            text = f"{len(outside)} values are outside the declared range {format_range(trial.range)}"
            return CheckFinding("bounded", Status.FAILED, text, (CheckExample(r, p.answer, s.value, detail=s.detail),))
        return CheckFinding("bounded", Status.PASSED, f"{summary}, in the declared range {format_range(trial.range)}")
    for unit, earned in growth:
        one, ten, hundred, thousand = (0.0 if value is None else abs(value) for value in earned)
        if thousand - hundred > hundred - ten + EPSILON and hundred > one:
            text = f"the value grows with the length without bound: {shorten_values(earned)}"
            return CheckFinding(
                "bounded", Status.FAILED, text, (CheckExample(unit * 10_000, problem.answer, earned[-1]),)
            )
    advice = "declare the range in the docstring, for example `Range [0, 1]`"
    return CheckFinding("bounded", Status.NOTED, f"{summary}; {advice}")


def shorten_values(values: Iterable[float | None]) -> str:
    """Return values as text, such as `1, 10, 100`."""
    return ", ".join("none" if value is None else f"{value:g}" for value in values)


def check_levels(trial: Trial) -> CheckFinding:
    """Note how many different values the reward takes. Only a constant reward fails."""
    values = {round(score.value, 6) for _, _, score in trial.seen if score.value is not None}
    if not values:
        return CheckFinding("levels", Status.SKIPPED, "no response was scored")
    if len(values) == 1:
        return CheckFinding(
            "levels", Status.FAILED, f"every response earned {values.pop():g}; there is no learning signal"
        )
    if len(values) == 2:
        low, high = sorted(values)
        return CheckFinding(
            "levels",
            Status.NOTED,
            f"only two values, {low:g} and {high:g}, on the responses tried: a model that never earns the higher one "
            "has no learning signal; add partial credit or a second component",
        )
    return CheckFinding("levels", Status.PASSED, f"{len(values)} different values")


def _unscored_example(trial: Trial) -> tuple[CheckExample, ...]:
    if not trial.seen:
        return ()
    problem, response, score = trial.seen[0]
    return (CheckExample(response, problem.answer, None, detail=f"{score.outcome}: {score.detail}"),)


def _show(score: Score) -> str:
    return score.outcome.value if score.value is None else f"{score.value:g}"
