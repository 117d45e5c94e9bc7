"""Jobs in progress: their waiting tasks, and the consequences of a worker's death.

All of this belongs to one thread; only the futures reach other threads.
"""

import collections
import linecache
import re
import sysconfig
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from agent_tunix.errors import RewardError, SandboxUnavailableError
from agent_tunix.execution.workers.frames import BrokenFrameError
from agent_tunix.rewards.execution.calls import Call, Job, divide_concurrency, divide_into_chunks
from agent_tunix.rewards.execution.settings import ExecutionSettings
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Outcome, Sample, Score

# Time for a worker's own work between calls, and for cancelling late calls.
_SLACK_S = 60.0


@dataclass(slots=True)
class Work:
    """A job in progress."""

    job: Job
    key: int  # number by which workers know its reward
    future: "Future[list[Score]]"
    scores: list[Score | None]  # known scores, by position
    remaining: int  # number of completions without a score
    failed_builds: int = 0  # number of times that a worker could not load the reward
    failed_deliveries: int = 0  # number of times in a row that a worker ended after loading it, before it began a task
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


@dataclass(frozen=True, slots=True)
class Death:
    """End of a worker that was making calls."""

    how: str  # description for a person: `exited with status 7`
    limit_s: float | None = None  # limit on silence for which it was killed; None if it died by itself
    trace: str = ""  # traceback of its code, if known
    all_died: bool = False  # True if all other workers died too, so that it alone cannot be blamed


class Backlog:
    """Jobs in progress, and the tasks that wait for a worker."""

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
        """Return the next task. Tasks before it whose reward no worker can load become errors."""
        while self._queue and self._queue[0].work.broken:
            task = self._queue.popleft()
            self.fail(task, task.work.broken)
        return self._queue[0] if self._queue else None

    def take(self) -> Task:
        """Remove the first task and return it, for a worker."""
        return self._queue.popleft()

    def put_back(self, *tasks: Task) -> None:
        """Queue tasks before all others, in order."""
        self._queue.extendleft(reversed(tasks))

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
        work.remaining -= len(call)
        if not work.remaining:
            self._running.pop(id(work), None)
            if work.future.set_running_or_notify_cancel():
                work.future.set_result([score for score in work.scores if score is not None])

    def fail(self, task: Task, detail: str) -> None:
        """Give an error to every call of a task that has no scores yet."""
        for number in task.left:
            self.record(task, number, [Score.failed(Outcome.ERROR, detail)] * len(task.calls[number]))

    def settle_death(self, task: Task, death: Death) -> None:
        """Settle a task whose worker has ended.

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
        if len(suspects) == 1 and alone and (death.limit_s is not None or task.tries):
            self._blame(task, suspects[0], death)
            return
        share = None if task.share is None else 1
        for number in suspects:
            again = Task(task.work, [task.calls[number]], share, task.tries + 1, exclusive=death.all_died)
            self._queue.appendleft(again)

    def give_up(self, fault: BaseException | None) -> None:
        """End all waiting futures: with an error about `fault`, or cancelled if it is None."""
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
    """Return the samples of these calls only, and the calls with positions among them."""
    positions = [position for call in calls for position in call]
    new = {position: number for number, position in enumerate(positions)}
    return [samples[position] for position in positions], [tuple(new[p] for p in call) for call in calls]


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
