"""Jobs in progress: their waiting tasks, and the consequences of a worker's death."""

import collections
import linecache
import re
import sysconfig
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from agent_tunix.errors import RewardError, SandboxUnavailableError
from agent_tunix.execution.workers.frames import BrokenFrameError
from agent_tunix.execution.workers.worker import WorkerDiedError
from agent_tunix.rewards.execution.calls import Call, Job, divide_concurrency, divide_into_chunks
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Outcome, Sample, Score

# Time for a worker's own work between calls, and for cancelling late calls.
_SLACK_S = 60.0


@dataclass(slots=True)
class Work:
    """A job in progress."""

    job: Job
    future: "Future[list[Score]]"
    scores: list[Score | None]  # known scores, by position
    remaining: int  # number of completions without a score
    failed_starts: int = 0  # number of times in a row that a worker ended before it began a call
    lost_idle: int = 0  # number of workers that were idle and ended before they began a call
    broken: str = ""  # reason why no worker can load it; "" while one may


@dataclass(slots=True)
class Task:
    """Calls of one job for one worker."""

    work: Work
    calls: list[Call]
    share: int | None  # number of concurrent calls; None: one after the other
    tries: int = 0  # number of times that each of them was started before
    # True if no other task may run at the same time, because all workers died during an earlier try.
    exclusive: bool = False
    # Start of each call that has begun, by number, in `time.monotonic`.
    begun: dict[int, float] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)  # numbers of calls that have their scores

    @property
    def samples(self) -> list[list[Sample]]:
        """Samples of each call."""
        return [[self.work.job.samples[position] for position in call] for call in self.calls]

    @property
    def left(self) -> list[int]:
        """Numbers of the calls without scores."""
        return [number for number in range(len(self.calls)) if number not in self.ended]

    def limit_s(self, timeout_s: float) -> float:
        """Return how long the worker may be silent: the limit of the running call, or the longest if several run."""
        if self.share is not None:
            return timeout_s * max(len(call) for call in self.calls)
        return timeout_s * len(self.calls[min(len(self.ended), len(self.calls) - 1)])

    def longest_s(self, timeout_s: float) -> float:
        """Return the time that all its calls may take one after the other."""
        return timeout_s * sum(len(call) for call in self.calls) + _SLACK_S

    def has(self, number: int) -> bool:
        """Return True if the number is that of one of its calls."""
        return 0 <= number < len(self.calls)

    def may_begin(self, number: int) -> bool:
        """Return True for the number of one of its calls that has not begun yet."""
        return self.has(number) and number not in self.begun and number not in self.ended

    def first_end(self, now: float, timeout_s: float) -> float:
        """Return the earliest deadline of the running calls; if none runs, that of the next call."""
        running = self.begun.keys() - self.ended
        return min(
            (self.begun[number] + timeout_s * len(self.calls[number]) for number in running),
            default=now + self.limit_s(timeout_s),
        )

    def rest(self) -> "Task":
        """Return the calls without scores as a task for another worker."""
        return Task(self.work, [self.calls[number] for number in self.left], self.share, self.tries)

    def one_by_one(self) -> list["Task"]:
        """Return a task for each call."""
        return [Task(self.work, [call], self.share and 1, self.tries) for call in self.calls]


class Backlog:
    """Jobs in progress, and the tasks that wait for a worker. Thread-safe.

    Args:
        num_workers: Number of workers among which jobs are divided.
        max_concurrency: Limit on the concurrent calls of an async job.
    """

    def __init__(self, num_workers: int, max_concurrency: int) -> None:
        self._num_workers = num_workers
        self._max_concurrency = max_concurrency
        self._changed = threading.Condition()
        self._queue: collections.deque[Task] = collections.deque()
        self._busy: list[Task] = []
        self._running: dict[int, Work] = {}
        self._fault: BaseException | None = None
        self.is_closed = False

    def submit(self, job: Job) -> "Future[list[Score]]":
        """Queue the tasks of a job.

        Raises:
            RewardError: The workers are closed or have failed.
        """
        work = Work(job, Future(), [None] * len(job.samples), len(job.samples))
        if job.is_async:
            divided = divide_concurrency(job.calls, self._num_workers, self._max_concurrency)
            tasks = [Task(work, chunk, share) for chunk, share in divided]
        else:
            tasks = [Task(work, chunk, None) for chunk in divide_into_chunks(job.calls, self._num_workers)]
        with self._changed:
            if isinstance(self._fault, SandboxUnavailableError):
                raise self._fault
            if self.is_closed:
                raise RewardError("the reward workers are closed", code="workers_failed") from self._fault
            if tasks:
                self._running[id(work)] = work
            self._queue.extend(tasks)
            self._changed.notify_all()
        if not tasks:
            work.future.set_result([])
        return work.future

    def take(self, has_else_to_do: Callable[[], bool] = lambda: False) -> Task | None:
        """Wait for the next task, until `release`; None if the backlog is closed or there is something else to do."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_closed or self._has_task() or has_else_to_do())
            if self.is_closed or not self._has_task():
                return None
            task = self._queue.popleft()
            self._busy.append(task)
            return task

    def release(self, task: Task) -> None:
        """Note that nobody works on a task any more."""
        with self._changed:
            self._busy.remove(task)
            self._changed.notify_all()

    def wake(self) -> None:
        """Have those who wait for a task look for something else to do."""
        with self._changed:
            self._changed.notify_all()

    def put_back(self, *tasks: Task) -> None:
        """Queue tasks before all others, in order."""
        with self._changed:
            self._queue.extendleft(reversed(tasks))
            self._changed.notify_all()

    def record(self, task: Task, number: int, scores: Sequence[Score]) -> None:
        """Store the scores of a call. The last call completes the job's future.

        Raises:
            BrokenFrameError: The scores are not those of this call.
        """
        call, work = task.calls[number], task.work
        if number in task.ended or len(scores) != len(call):
            raise BrokenFrameError("scores of another call")
        task.ended.add(number)
        for position, score in zip(call, scores, strict=True):
            work.scores[position] = score
        with self._changed:
            work.remaining -= len(call)
            is_last = not work.remaining
            if is_last:
                self._running.pop(id(work), None)
        if is_last and work.future.set_running_or_notify_cancel():
            work.future.set_result([score for score in work.scores if score is not None])

    def fail(self, task: Task, detail: str) -> None:
        """Give an error to every call of a task that has no scores yet."""
        for number in task.left:
            self.record(task, number, [Score.failed(Outcome.ERROR, detail)] * len(task.calls[number]))

    def settle_death(self, task: Task, death: WorkerDiedError, limit_s: float) -> None:
        """Settle a task whose worker has ended, or was silent for `limit_s` seconds.

        The running call is to blame if it ran alone and either exceeded its limit or has now ended two workers.
        Otherwise it is made once more. Concurrent calls are made again one by one. The remaining calls continue.
        """
        left = task.left
        if not left:
            return
        suspects = left[:1] if task.share is None else [number for number in left if number in task.begun] or left
        others = [task.calls[number] for number in left if number not in suspects]
        if others:
            self.put_back(Task(task.work, others, task.share))
        alone = task.exclusive or not death.all_died
        if len(suspects) == 1 and alone and (death.timed_out or task.tries):
            self._blame(task, suspects[0], death, limit_s)
            return
        share = None if task.share is None else 1
        for number in suspects:
            self.put_back(Task(task.work, [task.calls[number]], share, task.tries + 1, exclusive=death.all_died))

    def close(self, fault: BaseException | None = None) -> None:
        """End all waiting futures: with an error about `fault`, or cancelled if it is None."""
        with self._changed:
            self._fault = self._fault or fault
            self.is_closed = True
            running, self._running = list(self._running.values()), {}
            self._changed.notify_all()
        for work in running:
            if fault is None:
                work.future.cancel()
            elif work.future.set_running_or_notify_cancel():
                is_plain = isinstance(fault, SandboxUnavailableError)
                work.future.set_exception(fault if is_plain else RewardError(f"the reward workers failed: {fault!r}"))

    def _has_task(self) -> bool:
        return bool(self._queue) and not (
            self._busy and (self._queue[0].exclusive or any(task.exclusive for task in self._busy))
        )

    def _blame(self, task: Task, number: int, death: WorkerDiedError, limit_s: float) -> None:
        if death.timed_out:
            where = last_frame(death.trace, task.work.job.recipe)
            detail = f"took longer than {limit_s:g} s (rewards.timeout_s){where}"
            score = Score.failed(Outcome.TIMEOUT, detail, limit_s)
        else:
            score = Score.failed(Outcome.ERROR, f"the worker process {death.how}")
        self.record(task, number, [score] * len(task.calls[number]))


_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d{1,9}) in ')
_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_OURS = str(Path(__file__).parents[1])


def last_frame(trace: str, recipe: RewardRecipe) -> str:
    """Return the innermost frame of the user's own code, ` (rewards.py:12: return re.match(…))`; "" if none is known.

    Args:
        trace: The traceback, innermost frame first.
        recipe: The reward. A file named in its `spec` counts as the user's even among installed packages. For an
            upload, no file is ever read here, because its code can forge a traceback.
    """
    frames = [(match["file"], int(match["line"])) for match in _FRAME.finditer(trace)]
    if recipe.uploaded is not None:
        own = [frame for frame in frames if frame[0] == recipe.uploaded.file]
    else:
        own = [frame for frame in frames if not frame[0].startswith((*_LIBRARIES, _OURS, "<"))]
    if not own and recipe.uploaded is None:
        name = Path(recipe.spec.partition(".py")[0] + ".py").name
        own = [frame for frame in frames if Path(frame[0]).name == name]
    if not own:
        return ""
    file, line = own[0]
    return f" ({file}:{line}: {linecache.getline(file, line).strip()})"
