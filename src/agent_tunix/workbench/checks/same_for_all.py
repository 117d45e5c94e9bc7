"""Strings that are the same for every problem: references of other rows, and what a policy writes most often.

A policy finds such a string soon, because it need not read the prompt. Its pay is a share of what the gold solution
earns over an empty response, averaged over the problems. A wrong answer is no measure of zero here: a reward that pays
well for the likeness to the reference pays every wrong answer well.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from agent_tunix.rewards.kinds import needs_answer
from agent_tunix.workbench.checks.fuzzer import Pay, guessing_share
from agent_tunix.workbench.checks.problems import CheckProblem
from agent_tunix.workbench.checks.report import CheckExample, CheckFinding, Status, shorten
from agent_tunix.workbench.checks.scoring import mean
from agent_tunix.workbench.checks.trial import EPSILON, Trial

_MOST_REFERENCES = 8
_MOST_COMPLETIONS = 3


@dataclass(frozen=True, slots=True)
class _Result:
    """Scores of one string on the problems."""

    response: str
    problem: CheckProblem  # the first of the problems
    value: float | None  # score on that problem
    share: float  # mean share of what the gold solution earns over nothing


def check_same_reference(trial: Trial, most: float) -> CheckFinding:
    """Check that the reference of one row earns little on the rows of which it is not the reference.

    Args:
        trial: The reward and its problems.
        most: Largest share of what the gold solution earns over nothing.
    """
    name, pays = "one reference for all", _pays(trial)
    results = []
    for reference in _spread(list(dict.fromkeys(pay.problem.answer for pay in pays))):
        others = [pay for pay in pays if pay.problem.answer.casefold() != reference.casefold()]
        for response in dict.fromkeys((trial.solve(others[0].problem, "", reference), reference)) if others else ():
            results.append(_measure(trial, others, response))
    if not results:
        return CheckFinding(name, Status.SKIPPED, "no rows with different references, of which the gold solution earns")
    return _judge(trial, name, "a reference, given to all other rows,", results, most)


def check_frequent_completions(trial: Trial, completions: Sequence[str], most: float) -> CheckFinding:
    """Check that what a policy writes most often earns little over all problems, apart from guessing."""
    name, pays = "frequent completions", _pays(trial)
    if not pays or not completions:
        reason = "no completions" if pays else "the gold solution earns no more than nothing"
        return CheckFinding(name, Status.SKIPPED, reason)
    commonest = [text for text, _ in Counter(completions).most_common(_MOST_COMPLETIONS)]
    results = [_measure(trial, pays, text) for text in commonest]
    subject = "a completion that the policy writes most often"
    return _judge(trial, name, subject, results, most + guessing_share([pay.problem for pay in pays]))


def _pays(trial: Trial) -> list[Pay]:
    """Return the problems whose gold solution earns more than nothing."""
    pays = [
        Pay(problem, gold, trial.score(problem, "").value or 0.0)
        for _, problem, gold in trial.solved()
        if problem.has_reference
    ]
    return [pay for pay in pays if pay.gold > pay.wrong + EPSILON]


def _spread(references: Sequence[str]) -> list[str]:
    count = min(_MOST_REFERENCES, len(references))
    return [references[place * len(references) // count] for place in range(count)]


def _measure(trial: Trial, pays: Sequence[Pay], response: str) -> _Result:
    scores = trial.score_each([(pay.problem, response) for pay in pays])
    share = mean([pay.share(score.value) for pay, score in zip(pays, scores, strict=True)])
    return _Result(response, pays[0].problem, scores[0].value, share)


def _judge(trial: Trial, name: str, subject: str, results: Sequence[_Result], most: float) -> CheckFinding:
    """Return the finding about the best string. Only kinds that must not pay without the answer can fail."""
    best = max(results, key=lambda result: result.share)
    text = (
        f"{subject} earns {best.share:.0%} of what the gold solution earns over nothing: "
        f"{shorten(best.response, 60)}; at most {most:.0%} is allowed"
    )
    if best.share <= most:
        return CheckFinding(name, Status.PASSED, text)
    status = Status.FAILED if needs_answer(trial.kind) else Status.NOTED
    return CheckFinding(name, status, text, (CheckExample(best.response, best.problem.answer, best.value),))
