"""Number of completions that a reward scores per second, by sort of completion."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agent_tunix.rewards.mixture import Mixture
from agent_tunix.rewards.sample import Sample
from agent_tunix.workbench.checks.problems import DEFAULT_FORMAT, CheckProblem, respond, wrong_problem
from agent_tunix.workbench.checks.responses import long_work
from agent_tunix.workbench.checks.scoring import LATE_STEP, Scorer, make_sample


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed on completions of one sort."""

    sort: str  # the sort, one of `SORTS` or "all"
    outcome: str  # outcomes of the completions, joined by `, `
    completions: int
    per_second: float
    slowest: float  # minimum over the repeats, per second

    def to_data(self) -> dict[str, Any]:
        """Return the speed as JSON data."""
        return asdict(self)


def measure_speed(
    mixture: Mixture,
    problems: Sequence[CheckProblem],
    *,
    count: int = 256,
    repeats: int = 5,
    step: int = LATE_STEP,
    template: str = DEFAULT_FORMAT,
    timeout_s: float = 5.0,
) -> list[Speed]:
    """Measure right, wrong, unanswered, long and unusable completions separately, and then all of them together.

    Each sort has `count` completions, made from the problems (at least one). It is measured `repeats` times after one
    round to warm up. `timeout_s` limits the first few calls in this process; workers have their own limit.

    Raises:
        HangingRewardError: The reward hangs or ends its process on the first few completions.
    """
    mixture.check_parameters(problems[0].columns)
    scorer = Scorer(mixture, step, template, timeout_s)
    for number in range(min(count, _FIRST)):  # finds a reward that hangs before hundreds of calls wait for it
        problem = problems[number % len(problems)]
        scorer(problem, respond("template", problem.work, problem.answer, template))
    sorts = {sort: _samples(sort, problems, count, step, template) for sort in SORTS}
    sorts["all"] = [sample for samples in sorts.values() for sample in samples]
    return [_measure(mixture, sort, samples, repeats) for sort, samples in sorts.items()]


_FIRST = 3
SORTS = ("right", "wrong", "no answer", "long", "bad reference")


def _samples(sort: str, problems: Sequence[CheckProblem], count: int, step: int, template: str) -> list[Sample]:
    samples = []
    for number in range(count):
        index = number % len(problems)
        problem = problems[index]
        work, answer = problem.work, problem.answer
        match sort:
            case "wrong":
                other = wrong_problem(problems, index)
                work, answer = other.work, other.answer
            case "long":
                work = long_work(problem)
            case "bad reference":
                problem = problem.with_reference("", work)
        response = "I would rather not say." if sort == "no answer" else respond("template", work, answer, template)
        samples.append(make_sample(problem, response, template, step))
    return samples


def _measure(mixture: Mixture, sort: str, samples: Sequence[Sample], repeats: int) -> Speed:
    scores = mixture.score(samples)
    outcomes = dict.fromkeys(score.outcome.value for score in scores)
    rates = []
    for _ in range(repeats):
        started = time.perf_counter()
        mixture.score(samples)
        rates.append(len(samples) / (time.perf_counter() - started))
    return Speed(sort, ", ".join(outcomes), len(samples), statistics.median(rates), min(rates))
