"""Scoring of single responses with a time limit."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType

from agent_tunix.errors import RewardError
from agent_tunix.rewards.execution.probe import settle_completions
from agent_tunix.rewards.execution.runner import is_isolated
from agent_tunix.rewards.mixture import Mixture
from agent_tunix.rewards.sample import Outcome, Sample, Score
from agent_tunix.workbench.checks.problems import DEFAULT_FORMAT, CheckProblem

# A step late in any training, when a reward that changes with the step has reached its full demands.
LATE_STEP = 1_000_000
# Responses that may hang or end the process before scoring stops.
_MOST_LOST = 3
# Responses sent to workers at once: enough to hide the round trip, few enough to wait for if all of them hang.
_BATCH_SIZE = 16
_DIED = "the worker process "


class OutOfTimeError(BaseException):
    """A call exceeded its time limit. User code with `except Exception` does not catch it."""


class HangingRewardError(RewardError):
    """A reward hung or ended its process on so many responses that scoring stops.

    Attributes:
        lost: The lost responses, each with its problem and score.
    """

    def __init__(self, name: str, lost: "Sequence[tuple[CheckProblem, str, Score]]") -> None:
        self.lost = tuple(lost)
        super().__init__(f"reward {name!r} hung or ended its process on {len(lost)} responses: {lost[-1][2].detail}")


@dataclass(slots=True)
class _Progress:
    has_scored: bool = False
    lost: list[tuple[CheckProblem, str, Score]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Scorer:
    """A reward with the arguments and limits of a trial."""

    mixture: Mixture  # The reward. If it runs in workers (`make_runner`), their limits apply.
    step: int = LATE_STEP
    template: str = DEFAULT_FORMAT  # format that responses should follow
    # Time limit of a call in this process, where the platform supports one; None for no limit. A call that exceeds it
    # has the outcome `timeout`. A judge has its own limits.
    limit_s: float | None = 5.0
    _progress: _Progress = field(default_factory=_Progress)

    def __call__(self, problem: CheckProblem, response: str) -> Score:
        """Score one response, as `score_each` does."""
        (score,) = self.score_each([(problem, response)])
        return score

    def score_each(self, responses: Sequence[tuple[CheckProblem, str]]) -> list[Score]:
        """Score responses, each as a group of its own. Workers receive several at once.

        Raises:
            HangingRewardError: The reward has hung or ended its process too often.
        """
        scores: list[Score] = []
        while len(scores) < len(responses):
            some = responses[len(scores) : len(scores) + self._batch_size()]
            batch_scores = self._score(some)
            for (problem, response), score in zip(some, batch_scores, strict=True):
                self._note(problem, response, score)
            scores += batch_scores
        return scores

    def values(self, problems: Iterable[CheckProblem], respond: Callable[[CheckProblem], str]) -> list[float | None]:
        """Return the value of one response to each problem; None if it is unscored."""
        return [score.value for score in self.score_each([(problem, respond(problem)) for problem in problems])]

    def _batch_size(self) -> int:
        """Return the number of responses to score at once: 1 in this process, and in workers until one was scored."""
        together = is_isolated(self.mixture) and not _needs_batch(self.mixture)
        return _BATCH_SIZE if together and self._progress.has_scored else 1

    def _score(self, responses: Sequence[tuple[CheckProblem, str]]) -> list[Score]:
        samples = [
            make_sample(problem, response, self.template, self.step, group_id=number)
            for number, (problem, response) in enumerate(responses)
        ]
        if self.limit_s is None or is_isolated(self.mixture) or _has_own_limits(self.mixture):
            return self.mixture.score(samples)
        try:
            with time_limit(self.limit_s):
                return self.mixture.score(samples)
        except OutOfTimeError as error:
            return [Score.failed(Outcome.TIMEOUT, str(error), seconds=self.limit_s)] * len(samples)

    def _note(self, problem: CheckProblem, response: str, score: Score) -> None:
        if score.outcome is Outcome.TIMEOUT or (score.outcome is Outcome.ERROR and _DIED in score.detail):
            self._progress.lost.append((problem, response, score))
            if len(self._progress.lost) >= _MOST_LOST:
                raise HangingRewardError(self.mixture.name, self._progress.lost)
        elif score.outcome is not Outcome.ERROR:
            self._progress.has_scored = True


def settle_forms(
    mixture: Mixture,
    problem: CheckProblem,
    response: str,
    template: str,
    *,
    timeout_s: float,
    allow_unsandboxed: bool = False,
) -> None:
    """Decide the form of completions before a mixture is placed in workers, as a run does.

    A worker would make the trial calls within the time limit of the first call.

    Raises:
        RewardSignatureError: The reward requires a parameter that the problem lacks.
        RewardError: A function takes both forms and scores them differently.
    """
    mixture.check_parameters(problem.columns)
    rewards = [component.reward for component in mixture.components]
    sample = make_sample(problem, response, template)
    settle_completions(rewards, sample, timeout_s=timeout_s, allow_unsandboxed=allow_unsandboxed)


def _has_own_limits(mixture: Mixture) -> bool:
    return any(getattr(component.reward, "limits_itself", False) for component in mixture.components)


def _needs_batch(mixture: Mixture) -> bool:
    return any(
        _needs_batch(component.reward)
        if isinstance(component.reward, Mixture)
        else getattr(component.reward, "needs_batch", False)
        for component in mixture.components
    )


def make_sample(
    problem: CheckProblem, response: str, template: str = DEFAULT_FORMAT, step: int = LATE_STEP, group_id: int = 0
) -> Sample:
    """Return a sample as a run would make it, with a token for every four characters. Their ids are made up."""
    num_tokens = len(response) // 4 + 1
    return Sample(
        response,
        prompt=problem.prompt,
        messages=({"role": "user", "content": problem.prompt}, {"role": "assistant", "content": response}),
        columns=dict(problem.columns),
        format=template,
        step=step,
        max_steps=max(step, 1),
        group_id=group_id,
        rollout_id=f"{step}_{group_id}_0",
        num_tokens=num_tokens,
        tokens=tuple(range(num_tokens)),
    )


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError in the block after `seconds`. Outside the main thread this has no effect."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise OutOfTimeError(f"no verdict after {seconds:g} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous)


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean; 0 if there are no values."""
    return sum(values) / len(values) if values else 0.0
