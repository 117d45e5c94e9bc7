"""A reward and its problems, as every check uses them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from agent_tunix.rewards.builtin import Kind
from agent_tunix.rewards.kinds import Range
from agent_tunix.rewards.sample import Score
from agent_tunix.workbench.checks.problems import BARE, STYLES, CheckProblem, respond, wrong_problem
from agent_tunix.workbench.checks.report import CheckExample, CheckFinding, Status
from agent_tunix.workbench.checks.responses import Response
from agent_tunix.workbench.checks.scoring import Scorer, mean

EPSILON = 1e-9
MOST_EXAMPLES = 3


@dataclass(frozen=True)
class Trial:
    """A reward on its problems, with the helpers that checks share."""

    scorer: Scorer
    kind: Kind | None
    range: Range | None
    problems: Sequence[CheckProblem]
    style: str  # the style in which the gold solutions earn most
    gold: Sequence[float | None]  # score of each problem's gold solution in that style; None if it is unscored
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
    def has_references(self) -> bool:
        """True if all problems have references."""
        return all(problem.has_reference for problem in self.problems)

    @property
    def seen(self) -> Sequence[tuple[CheckProblem, str, Score]]:
        """All responses scored so far, with their problems and scores."""
        return self._seen

    def solve(self, problem: CheckProblem, work: str | None = None, answer: str | None = None) -> str:
        """Return the gold solution, or one with other work or another answer."""
        work = problem.work if work is None else work
        return respond(self.style, work, problem.answer if answer is None else answer, self.scorer.template)

    def wrong(self, index: int) -> CheckProblem:
        """Return a problem whose solution is wrong for the problem at `index`."""
        return wrong_problem(self.problems, index)

    def solved(self) -> Iterator[tuple[int, CheckProblem, float]]:
        """Yield the index, problem and gold score of each problem whose gold solution is scored."""
        for index, (problem, gold) in enumerate(zip(self.problems, self.gold, strict=True)):
            if gold is not None:
                yield index, problem, gold


def begin(scorer: Scorer, kind: Kind | None, declared: Range | None, problems: Sequence[CheckProblem]) -> Trial:
    """Return a trial in the style in which gold solutions earn most.

    The answer alone is that style for a reward of correctness if all other styles earn less, and otherwise if they earn
    less than half, because a shorter response may earn a little more from a part that measures the length. A reward
    that pays as much for a sentence with the answer reads the answer from a text, and is tried with its work.
    """
    golds = {style: scorer.values(problems, _gold(style, scorer.template)) for style in (*STYLES, BARE)}
    means = {style: _mean_or_lowest(values) for style, values in golds.items()}
    bare = means.pop(BARE)
    style = max(means, key=lambda name: means[name])
    margin = EPSILON if kind is Kind.CORRECTNESS else max(EPSILON, abs(bare) / 2)
    if bare > means[style] + margin and bare > EPSILON + _mean_or_lowest(
        scorer.values(problems, lambda problem: respond("sentence", "", problem.answer))
    ):
        style = BARE
    return Trial(scorer, kind, declared, problems, style, golds[style])


def _gold(style: str, template: str) -> Response:
    return lambda problem: respond(style, problem.work, problem.answer, template)


def _mean_or_lowest(values: Iterable[float | None]) -> float:
    numbers = [value for value in values if value is not None]
    return mean(numbers) if numbers else float("-inf")


def wins_of(trial: Trial, problem: CheckProblem, response: str, gold: float, name: str) -> list[CheckExample]:
    """Return the response as an example if it earns at least what the gold solution earns; otherwise no example."""
    score = trial.score(problem, response)
    if score.value is None or score.value < gold - EPSILON:
        return []
    detail = ": ".join(filter(None, (name, score.detail)))
    return [CheckExample(response, problem.answer, score.value, gold, detail)]


def judge(check: str, wins: Sequence[CheckExample], num_tried: int) -> CheckFinding:
    """Return the finding of a check that fails if any response wins."""
    if not num_tried:
        return CheckFinding(check, Status.SKIPPED, "no suitable problem")
    if not wins:
        return CheckFinding(check, Status.PASSED, f"none of {num_tried} responses earns as much as the gold solution")
    text = f"{len(wins)} of {num_tried} responses earn as much as the gold solution"
    return CheckFinding(check, Status.FAILED, text, tuple(wins[:MOST_EXAMPLES]))


def mean_or_none(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None if there are none."""
    numbers = [value for value in values if value is not None]
    return mean(numbers) if numbers else None


def show_value(value: float | None) -> str:
    """Return a value as text."""
    return "nothing" if value is None else f"{value:.3g}"
