"""Worker processes on this machine that make the calls of rewards.

    a call is silent for longer than its limit  → its worker is killed; the call times out
    a worker dies during a call                 → the call is made once more, first on a fresh worker
    it dies again                               → the call is an error
    the other calls of the chunk                → continue on a fresh worker

Among concurrent async calls, no single one can be blamed at first. So those that had begun are made again, one at a
time. Each worker is served by a thread.

Workers for uploaded code, and for built-ins whose library may run a model's text, are isolated. Where isolation is
impossible, they are plain workers if the user allows it.
"""

import abc
import logging
import pickle
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from agent_tunix.closing import Closing
from agent_tunix.errors import SandboxUnavailableError
from agent_tunix.execution.isolation.requirements import REMEDY_FOR_UPLOADS, problems, require_isolation
from agent_tunix.execution.workers.frames import LARGEST_JSON_BYTES, FrameReader, load_json
from agent_tunix.execution.workers.pool import WorkerPool
from agent_tunix.execution.workers.worker import Worker, WorkerDiedError
from agent_tunix.rewards.execution.calls import Job
from agent_tunix.rewards.execution.settings import ExecutionSettings
from agent_tunix.rewards.execution.tasks import Backlog, Task, last_frame
from agent_tunix.rewards.execution.worker import Build, Chunk, RewardProgram
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Score
from agent_tunix.rewards.score_data import from_data, unpack

logger = logging.getLogger("agent_tunix.rewards")

# Time for sending a chunk to a worker, and to one that runs other people's code, which may keep it from answering.
_DELIVERY_S = 60.0
ISOLATED_DELIVERY_S = 10.0
# Time for such a worker to cancel a late call before it is killed.
_GRACE_S = 5.0
# Deaths in a row of workers that have not begun a call, after which the job's calls become errors.
_MOST_FAILED_STARTS = 1


class QueueExecutor(Closing):
    """Executor whose threads take tasks from one backlog.

    Args:
        num_threads: Number of threads, and of workers among which jobs are divided.
        max_concurrency: Limit on the concurrent calls of an async reward.
    """

    def __init__(self, num_threads: int, max_concurrency: int) -> None:
        self._backlog = Backlog(num_threads, max_concurrency)
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"reward-worker-{number}", daemon=True)
            for number in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> "Future[list[Score]]":
        """Begin a job."""
        return self._backlog.submit(job)

    def close(self) -> None:
        """End the workers and the threads."""
        self._backlog.close()
        self._interrupt()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        try:
            self._serve(number)
        except BaseException as fault:  # a defect of this package must not leave a caller waiting
            if not isinstance(fault, SandboxUnavailableError):  # no worker ran anything
                logger.exception("the reward workers failed")
            self._backlog.close(fault)
            self._interrupt()

    @abc.abstractmethod
    def _serve(self, number: int) -> None:
        """Do tasks of the backlog until it is closed."""

    def _interrupt(self) -> None:
        """End what threads may wait for."""


@dataclass(slots=True)
class _Slot:
    """The worker of a thread, replaced when it dies."""

    worker: Worker | None = None
    loaded: set[int] = field(default_factory=set)  # keys of the rewards that it has loaded
    attempted: set[int] = field(default_factory=set)  # keys of the rewards that it was told to load
    is_used: bool = False  # True if it has ever made a call

    def clear(self) -> None:
        """End the worker, if there is one."""
        if self.worker is not None:
            self.worker.close()
        self.worker, self.is_used = None, False
        self.loaded.clear()
        self.attempted.clear()


def _isolated_reader() -> FrameReader:
    return FrameReader(load_json, LARGEST_JSON_BYTES)


class LocalExecutor(QueueExecutor):
    """Executor of jobs in worker processes of this machine."""

    def __init__(self, settings: ExecutionSettings) -> None:
        self._settings = settings
        self._pool = WorkerPool(
            RewardProgram,
            "reward worker",
            settings.worker_limits(),
            settings.isolation if settings.sandboxed else None,
            _isolated_reader if settings.sandboxed else FrameReader,
        )
        self._recipes: list[RewardRecipe] = []
        self._recipes_lock = threading.Lock()
        self._wanted: list[int] = []  # keys of the rewards that idle workers load ahead
        super().__init__(settings.workers, settings.max_concurrency)

    def prepare(self, recipe: RewardRecipe) -> None:
        """Start the workers and load a reward in each."""
        key = self._key_of(recipe)
        if key not in self._wanted:
            self._wanted.append(key)
        self._backlog.wake()

    def _key_of(self, recipe: RewardRecipe) -> int:
        with self._recipes_lock:
            for key, known in enumerate(self._recipes):
                if known is recipe or known == recipe:
                    return key
            self._recipes.append(recipe)
            return len(self._recipes) - 1

    def _interrupt(self) -> None:
        self._pool.close()

    def _serve(self, number: int) -> None:
        slot = _Slot()
        try:
            while not self._backlog.is_closed:
                task = self._backlog.take(lambda: self._next_to_load(slot) is not None)
                if slot.worker is not None and not slot.worker.is_alive:  # it died while idle
                    slot.clear()
                if task is not None:
                    try:
                        self._do(slot, task)
                    finally:
                        self._backlog.release(task)
                elif (key := self._next_to_load(slot)) is not None and not self._backlog.is_closed:
                    self._load_ahead(slot, key)
        finally:
            slot.clear()

    def _next_to_load(self, slot: _Slot) -> int | None:
        return next((key for key in self._wanted if key not in slot.attempted), None)

    def _load_ahead(self, slot: _Slot, key: int) -> None:
        try:
            if slot.worker is None:
                slot.worker = self._pool.start()
        except WorkerDiedError:
            return
        try:
            self._load(slot, slot.worker, key)
        except WorkerDiedError:  # a job will report the error
            slot.clear()
            self._wanted = [wanted for wanted in self._wanted if wanted != key]

    def _load(self, slot: _Slot, worker: Worker, key: int) -> str:
        """Load a reward in a worker; return why it cannot be loaded, or ""."""
        slot.attempted.add(key)
        worker.send(Build(key, self._recipes[key]))
        match worker.receive(self._settings.start_timeout_s):
            case ("built",):
                slot.loaded.add(key)
                self._pool.forgive()
                return ""
            case ("unbuilt", str(why)):
                return why
            case reply:
                raise worker.refuse(reply)

    # --- tasks -------------------------------------------------------------------------------------------------------

    def _do(self, slot: _Slot, task: Task) -> None:
        """Make the calls of a task, or put them back for another worker."""
        work = task.work
        if work.broken:
            self._backlog.fail(task, work.broken)
            return
        if task.tries and slot.is_used:
            slot.clear()
        was_idle = slot.worker is not None
        try:
            worker = slot.worker = slot.worker or self._pool.start()
        except WorkerDiedError:
            self._backlog.put_back(task)
            return
        why, limit_s = "the reward could not be loaded in a worker", self._settings.start_timeout_s
        try:
            key = self._key_of(work.job.recipe)
            if key not in slot.loaded and (fault := self._load(slot, worker, key)):
                work.broken = f"{why}: {fault}"
                self._backlog.fail(task, work.broken)
                return
            why = "the worker was lost before it could be called"
            limit_s = ISOLATED_DELIVERY_S if self._settings.sandboxed else _DELIVERY_S
            if not self._deliver(worker, task, key, limit_s):
                return
            work.failed_starts, slot.is_used, why = 0, True, ""
            tired = self._follow(worker, task)
        except WorkerDiedError as death:
            slot.clear()
            if self._backlog.is_closed:
                return
            if why:
                self._settle_failed_start(task, death, why, limit_s, was_idle)
            else:
                self._backlog.settle_death(task, death, task.limit_s(self._settings.timeout_s))
            return
        if task.left:  # it stopped early, to be replaced
            tired = tired or "stopped early"
            self._backlog.put_back(task.rest())
        if tired:
            logger.debug("a reward worker is replaced: %s", tired)
            slot.clear()

    def _deliver(self, worker: Worker, task: Task, key: int, limit_s: float) -> bool:
        """Send a task, and return True once the worker has taken it up; False if it cannot be sent."""
        try:
            calls = pickle.dumps(task.samples, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # a column may hold anything
            if len(task.calls) == 1:
                self._backlog.fail(task, f"the completion cannot be sent to a worker: {error!r}")
            else:
                self._backlog.put_back(*task.one_by_one())
            return False
        worker.send(Chunk(key, calls, self._settings.timeout_s, task.share))
        match worker.receive(limit_s):
            case ("ready",):
                return True
            case reply:
                raise worker.refuse(reply)

    def _follow(self, worker: Worker, task: Task) -> str:
        """Record the scores of a task's calls; return why the worker should be replaced, or ""."""
        is_sandboxed = self._settings.sandboxed
        end = time.monotonic() + task.longest_s(self._settings.timeout_s)
        while True:
            match reply := worker.receive(min(self._patience_s(task), end - time.monotonic())):
                case ("began", int(number)) if task.share and task.may_begin(number):
                    task.begun[number] = time.monotonic()
                case ("beat",) if task.share and not is_sandboxed:
                    pass
                case ("ended", int(number), list(plain)) if task.has(number):
                    read = unpack if is_sandboxed else from_data
                    try:
                        self._backlog.record(task, number, [read(score) for score in plain])
                    except Exception as error:  # code of others may write anything
                        raise worker.refuse(error) from error
                case ("broke", str(why)):
                    raise worker.kill(f"had to stop: {why}")
                case ("done", str(tired)) if task.ended or not task.left:
                    return tired
                case _:
                    raise worker.refuse(reply)

    def _patience_s(self, task: Task) -> float:
        """Return how long the worker may be silent.

        In a sandboxed worker, the limit of a concurrent call counts from the call's start.
        """
        timeout_s = self._settings.timeout_s
        if self._settings.sandboxed and task.share:
            now = time.monotonic()
            return task.first_end(now, timeout_s) + _GRACE_S - now
        return task.limit_s(timeout_s)

    def _settle_failed_start(
        self, task: Task, death: WorkerDiedError, why: str, limit_s: float, was_idle: bool
    ) -> None:
        """Put a task back whose worker ended before it began a call, unless that happened before.

        A worker that was idle may have died before it got the task. That says nothing about the task, but code that
        ends every idle worker must not go on for ever.
        """
        work = task.work
        if was_idle and not death.timed_out and work.lost_idle < self._settings.workers:
            work.lost_idle += 1
        elif not death.all_died:
            work.failed_starts += 1
        if death.timed_out:
            where = last_frame(death.trace, work.job.recipe)
            work.broken = f"{why}: it took longer than {limit_s:g} s{where}"
        elif work.failed_starts > _MOST_FAILED_STARTS:
            work.broken = f"{why}: the worker process {death.how}"
        self._backlog.put_back(task)


def make_sandboxed_executor(settings: ExecutionSettings, what: str = "uploaded code") -> LocalExecutor:
    """Start workers for one upload or built-in and no other, whatever `settings.execution` says.

    Args:
        settings: Limits of the workers.
        what: The code to run, for messages.

    Raises:
        SandboxUnavailableError: Workers cannot be isolated here, and `settings` does not allow them to run otherwise.
    """
    if settings.allow_unsandboxed and (reasons := problems()):
        logger.warning(
            "%s runs with all permissions of this user, as allowed, because this machine cannot isolate it (%s)",
            what,
            "; ".join(reasons),
        )
        return LocalExecutor(replace(settings, execution="process", sandboxed=False))
    require_isolation(what, REMEDY_FOR_UPLOADS)
    return LocalExecutor(replace(settings, execution="process", sandboxed=True))
