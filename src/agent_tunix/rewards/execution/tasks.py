"""Jobs under way: what of them no worker has yet, and what becomes of calls whose worker is gone.

Everything here belongs to one thread; only the futures reach others.
"""

import collections
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from agent_tunix.errors import RewardError, SandboxUnavailableError
from agent_tunix.rewards.execution.calls import Call, divide_concurrency, divide_into_chunks
from agent_tunix.rewards.execution.executor import Job
from agent_tunix.rewards.execution.settings import ExecutionSettings
from agent_tunix.rewards.execution.traces import last_frame
from agent_tunix.rewards.execution.wire import BrokenFrameError
from agent_tunix.rewards.sample import Outcome, Sample, Score

# What a worker may take between calls, and to cancel those that took too long.
_SLACK_S = 60.0


@dataclass(slots=True)
class Work:
    """A job under way.

    Attributes:
        job: The job.
        key: The number by which workers know its reward.
        future: Of its scores.
        scores: Those that are known, by position.
        remaining: Completions without a score.
        failed_builds: How often a worker could not load its reward.
        failed_deliveries: How often in a row a worker that had loaded it was gone before it began with a task.
        broken: Why no worker can; "" as long as one may.
    """

    job: Job
    key: int
    future: "Future[list[Score]]"
    scores: list[Score | None]
    remaining: int
    failed_builds: int = 0
    failed_deliveries: int = 0
    broken: str = ""


@dataclass(slots=True)
class Task:
    """Calls for one worker.

    Attributes:
        work: The job that they belong to.
        calls: The calls, in order.
        share: How many at once; None: one after the other.
        tries: How often each of them was begun before.
        exclusive: Whether no other task may be under way beside it: one that did the like took all workers with it.
        begun: Numbers of calls that have begun, and when they did, by `time.monotonic`.
        ended: Numbers of calls that have their scores.
    """

    work: Work
    calls: list[Call]
    share: int | None
    tries: int = 0
    exclusive: bool = False
    begun: dict[int, float] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)

    @property
    def left(self) -> list[int]:
        """Numbers of the calls without scores."""
        return [number for number in range(len(self.calls)) if number not in self.ended]

    def limit_s(self, timeout_s: float) -> float:
        """How long its worker may be silent: what the call that runs now may take, or the longest of several."""
        if self.share is not None:
            return timeout_s * max(len(call) for call in self.calls)
        return timeout_s * len(self.calls[min(len(self.ended), len(self.calls) - 1)])

    def longest_s(self, timeout_s: float) -> float:
        """How long all of its calls may take together, if none waits beside another."""
        return timeout_s * sum(len(call) for call in self.calls) + _SLACK_S

    def has(self, number: int) -> bool:
        """Whether that is the number of one of its calls."""
        return 0 <= number < len(self.calls)

    def may_begin(self, number: int) -> bool:
        """Return True for the number of one of its calls that has not begun yet."""
        return self.has(number) and number not in self.begun and number not in self.ended

    def first_end(self, now: float, timeout_s: float) -> float:
        """Return when the first of the calls that run now must have ended; the next one if none runs."""
        running = self.begun.keys() - self.ended
        return min(
            (self.begun[number] + timeout_s * len(self.calls[number]) for number in running),
            default=now + self.limit_s(timeout_s),
        )

    def rest(self) -> "Task":
        """What is left of it, for another worker."""
        return Task(self.work, [self.calls[number] for number in self.left], self.share, self.tries)

    def one_by_one(self) -> list["Task"]:
        """A task for each call."""
        return [Task(self.work, [call], self.share and 1, self.tries) for call in self.calls]


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker ended that was making calls.

    Attributes:
        how: For a person: `exited with status 7`.
        limit_s: The limit beyond which it was silent, for which it was killed; None: it died by itself.
        trace: Where its code was, if that is known.
        all_died: Whether every other worker died with it, so that it alone cannot be blamed.
    """

    how: str
    limit_s: float | None = None
    trace: str = ""
    all_died: bool = False


class Backlog:
    """The jobs under way, and the tasks that wait for a worker.

    Args:
        settings: Workers and limits, by which jobs are divided.
    """

    def __init__(self, settings: ExecutionSettings) -> None:
        self._settings = settings
        self._queue: collections.deque[Task] = collections.deque()
        self._running: dict[int, Work] = {}

    def begin(self, job: Job, key: int, future: "Future[list[Score]]") -> None:
        """Queue the tasks of a job of at least one sample."""
        work = Work(job, key, future, [None] * len(job.samples), len(job.samples))
        self._running[id(work)] = work
        num_workers = self._settings.workers
        if job.is_async:
            divided = divide_concurrency(job.calls, num_workers, self._settings.max_concurrency)
            self._queue.extend(Task(work, chunk, share) for chunk, share in divided)
        else:
            self._queue.extend(Task(work, chunk, None) for chunk in divide_into_chunks(job.calls, num_workers))

    def first(self) -> Task | None:
        """The task whose turn it is; those whose reward no worker can load are failed on the way."""
        while self._queue and self._queue[0].work.broken:
            task = self._queue.popleft()
            self.fail(task, task.work.broken)
        return self._queue[0] if self._queue else None

    def take(self) -> Task:
        """The first task, which now has a worker."""
        return self._queue.popleft()

    def put_back(self, *tasks: Task) -> None:
        """Queue tasks before all others, in order."""
        self._queue.extendleft(reversed(tasks))

    def record(self, task: Task, number: int, scores: Sequence[Score]) -> None:
        """Take in the scores of a call; the job's future is done once it was the last.

        Raises:
            BrokenFrameError: They are not those of this call.
        """
        call, work = task.calls[number], task.work
        if number in task.ended or len(scores) != len(call):
            raise BrokenFrameError("scores of another call")
        task.ended.add(number)
        for position, score in zip(call, scores, strict=True):
            work.scores[position] = score
        work.remaining -= len(call)
        if not work.remaining:
            self._running.pop(id(work), None)
            if work.future.set_running_or_notify_cancel():
                work.future.set_result([score for score in work.scores if score is not None])

    def fail(self, task: Task, detail: str) -> None:
        """Every call of a task that has no scores is an error."""
        for number in task.left:
            self.record(task, number, [Score.failed(Outcome.ERROR, detail)] * len(task.calls[number]))

    def settle_death(self, task: Task, death: Death) -> None:
        """What becomes of a task whose worker is gone.

        The call that ran is to blame if it ran alone, and was silent for too long or has now died twice; otherwise it
        is made once more. Of calls that ran side by side each is made again by itself. The others go on.
        """
        left = task.left
        if not left:
            return
        suspects = left[:1] if task.share is None else [number for number in left if number in task.begun] or left
        others = [task.calls[number] for number in left if number not in suspects]
        if others:
            self.put_back(Task(task.work, others, task.share))
        alone = task.exclusive or not death.all_died
        if len(suspects) == 1 and alone and (death.limit_s is not None or task.tries):
            self._blame(task, suspects[0], death)
            return
        share = None if task.share is None else 1
        for number in suspects:
            again = Task(task.work, [task.calls[number]], share, task.tries + 1, exclusive=death.all_died)
            self._queue.appendleft(again)

    def give_up(self, fault: BaseException | None) -> None:
        """Tell whoever still waits: of a fault of ours, or that it is over."""
        for work in self._running.values():
            if isinstance(fault, SandboxUnavailableError):
                work.future.set_exception(fault)
            elif fault is not None:
                work.future.set_exception(RewardError(f"the reward workers failed: {fault!r}"))
            else:
                work.future.cancel()

    def _blame(self, task: Task, number: int, death: Death) -> None:
        if death.limit_s is not None:
            where = last_frame(death.trace, task.work.job.recipe)
            detail = f"took longer than {death.limit_s:g} s (rewards.timeout_s){where}"
            score = Score.failed(Outcome.TIMEOUT, detail, death.limit_s)
        else:
            score = Score.failed(Outcome.ERROR, f"the worker process {death.how}")
        self.record(task, number, [score] * len(task.calls[number]))


def renumber(calls: Sequence[Call], samples: Sequence[Sample]) -> tuple[list[Sample], list[Call]]:
    """The samples of these calls alone, and the calls' positions among them."""
    positions = [position for call in calls for position in call]
    new = {position: number for number, position in enumerate(positions)}
    return [samples[position] for position in positions], [tuple(new[p] for p in call) for call in calls]
