"""One reward on its problems: what every check asks of it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from agent_tunix.rewards.builtin import Kind
from agent_tunix.rewards.kinds import Range
from agent_tunix.rewards.sample import Score
from agent_tunix.workbench.checks.problems import STYLES, CheckProblem, respond, wrong_problem
from agent_tunix.workbench.checks.report import CheckExample, CheckFinding, Status
from agent_tunix.workbench.checks.responses import Response
from agent_tunix.workbench.checks.scoring import Scorer, mean

EPSILON = 1e-9
MOST_EXAMPLES = 3


@dataclass(frozen=True)
class Trial:
    """A reward before its problems, with what all checks ask of it.

    Attributes:
        scorer: Scores responses.
        kind: What the reward is about.
        range: Of its values, if declared.
        problems: At least one.
        style: The way of stating an answer that it pays best.
        gold: What the gold solution of each problem earns in that style; None where it is unscored.
    """

    scorer: Scorer
    kind: Kind | None
    range: Range | None
    problems: Sequence[CheckProblem]
    style: str
    gold: Sequence[float | None]
    _seen: list[tuple[CheckProblem, str, Score]] = field(default_factory=list)

    def score(self, problem: CheckProblem, response: str) -> Score:
        """Score a response and remember it for the checks of all values."""
        (score,) = self.score_each([(problem, response)])
        return score

    def score_each(self, responses: Sequence[tuple[CheckProblem, str]]) -> list[Score]:
        """Score responses, each with its problem, and remember them."""
        scores = self.scorer.score_each(responses)
        self._seen.extend(
            (problem, response, score) for (problem, response), score in zip(responses, scores, strict=True)
        )
        return scores

    @property
    def seen(self) -> Sequence[tuple[CheckProblem, str, Score]]:
        """All that was scored so far."""
        return self._seen

    def solve(self, problem: CheckProblem, work: str | None = None, answer: str | None = None) -> str:
        """The gold solution, or one with other work or another answer."""
        work = problem.work if work is None else work
        return respond(self.style, work, problem.answer if answer is None else answer, self.scorer.template)

    def wrong(self, index: int) -> CheckProblem:
        """Whose solution is the wrong one for a problem."""
        return wrong_problem(self.problems, index)

    def solved(self) -> Iterator[tuple[int, CheckProblem, float]]:
        """Each problem whose gold solution has a score: its index, itself, that score."""
        for index, (problem, gold) in enumerate(zip(self.problems, self.gold, strict=True)):
            if gold is not None:
                yield index, problem, gold


def begin(scorer: Scorer, kind: Kind | None, declared: Range | None, problems: Sequence[CheckProblem]) -> Trial:
    """Find the style that the reward pays best, by the gold solutions of the problems."""
    golds: dict[str, list[float | None]] = {}
    for style in STYLES:
        golds[style] = scorer.values(problems, _gold(style, scorer.template))
    style = max(golds, key=lambda name: _mean_or_lowest(golds[name]))
    return Trial(scorer, kind, declared, problems, style, golds[style])


def _gold(style: str, template: str) -> Response:
    return lambda problem: respond(style, problem.work, problem.answer, template)


def _mean_or_lowest(values: Iterable[float | None]) -> float:
    scored = [value for value in values if value is not None]
    return mean(scored) if scored else float("-inf")


def wins_of(trial: Trial, problem: CheckProblem, response: str, gold: float, name: str) -> list[CheckExample]:
    """The response as an example, if it earns what the gold solution earns."""
    score = trial.score(problem, response)
    if score.value is None or score.value < gold - EPSILON:
        return []
    detail = ": ".join(filter(None, (name, score.detail)))
    return [CheckExample(response, problem.answer, score.value, gold, detail)]


def judge(check: str, wins: Sequence[CheckExample], tried: int) -> CheckFinding:
    if not tried:
        return CheckFinding(check, Status.SKIPPED, "no problem is fit for it")
    if not wins:
        return CheckFinding(check, Status.PASSED, f"none of {tried} responses earns as much as the gold solution")
    text = f"{len(wins)} of {tried} responses earn as much as the gold solution"
    return CheckFinding(check, Status.FAILED, text, tuple(wins[:MOST_EXAMPLES]))


def mean_or_none(values: Iterable[float | None]) -> float | None:
    scored = [value for value in values if value is not None]
    return mean(scored) if scored else None


def show_value(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.3g}"
