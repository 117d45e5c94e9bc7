"""Putting responses to a reward, each for itself and with a time limit."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType

from agent_tunix.errors import RewardError
from agent_tunix.rewards.execution.runner import is_isolated
from agent_tunix.rewards.mixture import Mixture
from agent_tunix.rewards.sample import Outcome, Sample, Score
from agent_tunix.workbench.checks.problems import DEFAULT_FORMAT, CheckProblem

# Late in any training: a reward that changes with the step asks for everything by then.
LATE_STEP = 1_000_000
# A reward that hangs or ends its process has failed; nothing need wait for it any longer.
_MOST_LOST = 3
# Responses sent to workers at once: enough to make little of the way there and back, few enough to wait for if they all
# hang.
_BATCH_SIZE = 16
_DIED = "the worker process "


class OutOfTimeError(BaseException):
    """A call took longer than it may; no `except Exception` of a user's code holds it up."""


class HangingRewardError(RewardError):
    """A reward hung, or ended its process, on so many responses that the rest of them need not wait for it.

    Attributes:
        lost: The responses, each with its problem and score.
    """

    def __init__(self, name: str, lost: "Sequence[tuple[CheckProblem, str, Score]]") -> None:
        self.lost = tuple(lost)
        super().__init__(f"reward {name!r} hung or ended its process on {len(lost)} responses: {lost[-1][2].detail}")


@dataclass(slots=True)
class _Progress:
    """What became of the responses so far."""

    has_scored: bool = False
    lost: list[tuple[CheckProblem, str, Score]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Scorer:
    """A reward under the circumstances of a trial.

    Attributes:
        mixture: The reward; where it runs in workers (`make_runner`), their limits hold.
        step: The training step that it is told.
        template: The format that responses should follow.
        limit_s: In this process, a call that takes longer is stopped, where the platform can do so, and has the outcome
            `timeout`; None: however long it takes. A judge has limits of its own.
    """

    mixture: Mixture
    step: int = LATE_STEP
    template: str = DEFAULT_FORMAT
    limit_s: float | None = 5.0
    _progress: _Progress = field(default_factory=_Progress)

    def __call__(self, problem: CheckProblem, response: str) -> Score:
        """Score one response; it is a group of its own.

        Raises:
            HangingRewardError: It is one too many on which the reward hangs or ends its process.
        """
        (score,) = self.score_each([(problem, response)])
        return score

    def score_each(self, responses: Sequence[tuple[CheckProblem, str]]) -> list[Score]:
        """Score responses, each with its problem and a group of its own; in workers several are sent at once.

        Raises:
            HangingRewardError: There are too many on which the reward hangs or ends its process.
        """
        scores: list[Score] = []
        while len(scores) < len(responses):
            some = responses[len(scores) : len(scores) + self._batch_size()]
            found = self._score(some)
            for (problem, response), score in zip(some, found, strict=True):
                self._note(problem, response, score)
            scores += found
        return scores

    def values(self, problems: Iterable[CheckProblem], respond: Callable[[CheckProblem], str]) -> list[float | None]:
        """The values of one response to each problem; None where there is none."""
        return [score.value for score in self.score_each([(problem, respond(problem)) for problem in problems])]

    def _batch_size(self) -> int:
        """One in this process, where each has its own time limit, and one in workers until any was scored."""
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
    """A sample as a run would make it; tokens are estimated at four characters each."""
    return Sample(
        response,
        prompt=problem.prompt,
        messages=({"role": "user", "content": problem.prompt}, {"role": "assistant", "content": response}),
        columns=dict(problem.columns),
        format=template,
        step=step,
        max_steps=max(step, 0),
        group_id=group_id,
        rollout_id=f"{step}_{group_id}_0",
        num_tokens=len(response) // 4 + 1,
    )


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError in the code below after so many seconds; without effect outside the main thread."""
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
    """The arithmetic mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0
