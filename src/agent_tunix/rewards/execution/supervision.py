"""Supervision of workers: their tasks, time limits and deaths.

    a call is silent for longer than its limit  → its worker is killed; the call times out
    a worker dies during a call                 → the call is made once more, first on a fresh worker
    it dies again                               → the call is an error
    the other calls of the chunk                → continue on a fresh worker

Among concurrent async calls, no single one can be blamed at first. So those that had begun are made again, one at a
time. One thread does all of this. It waits on the selector.
"""

import itertools
import logging
import math
import pickle
import selectors
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from agent_tunix.errors import RewardError, SandboxUnavailableError
from agent_tunix.execution.isolation.requirements import REMEDY_FOR_UPLOADS, unavailable
from agent_tunix.execution.workers.connection import Connection
from agent_tunix.execution.workers.frames import LARGEST_JSON_BYTES, BrokenFrameError, FrameReader, load_json
from agent_tunix.execution.workers.nursery_client import NurseryClient
from agent_tunix.execution.workers.output import OutputLimit, OutputLog
from agent_tunix.rewards.execution import worker as worker_program
from agent_tunix.rewards.execution.calls import Job
from agent_tunix.rewards.execution.settings import ExecutionSettings
from agent_tunix.rewards.execution.tasks import Backlog, Death, Task, last_frame, renumber
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Score
from agent_tunix.rewards.score_data import unpack

logger = logging.getLogger("agent_tunix.rewards")

# Time for starting a worker, or for sending it a chunk.
_DELIVERY_S = 60.0
# The same for a worker that runs other people's code, which may keep it from answering.
ISOLATED_DELIVERY_S = 10.0
# Time for such a worker to cancel a late call before it is killed.
_GRACE_S = 5.0
# Failed starts, and failed deliveries to or deaths of workers that loaded no reward, in a row, after which no further
# worker is tried.
_MOST_FAILED_STARTS = 5
_KILLED = "died of SIGKILL"
# Bytes that an uploaded reward may print during a call, because reading them is work of the trainer.
_MOST_PRINTED_BYTES = 16 * 2**20
# Time for a worker without a connection to end by itself. Its exit status is the best hint at the cause.
_FAREWELL_S = 2.0
# Reads from a worker before its deadline is checked, enough to empty the socket's buffer.
_MOST_READS = 8


@dataclass(slots=True)
class _Worker:
    """State of a worker."""

    number: int  # number by which the nursery knows it
    connection: Connection
    log: OutputLog
    built: set[int] = field(default_factory=set)  # keys of the rewards that it has loaded
    attempted: set[int] = field(default_factory=set)  # keys of the rewards that it was told to load
    building: int | None = None  # key of the reward that it loads now
    loads: bool = False  # True once it has begun to load it
    has_loaded: bool = False  # True once it has begun to load any reward
    task: Task | None = None
    sent: bool = False  # True if its task was sent
    ready: bool = False  # True if it has begun its task
    used: bool = False  # True if it has ever made a call
    deadline: float | None = None  # end of the permitted silence, in `time.monotonic`; None: no limit
    limit_s: float = 0.0  # permitted silence during a call
    end: float = math.inf  # latest end of its task, whatever it sends, in `time.monotonic`
    verdict: str = ""  # description of its fault, for the user; "" without one
    timed_out: bool = False  # True if it was killed for its silence
    doomed: bool = False  # True if the nursery was told to kill it
    lost: bool = False  # True if its connection closed before the cause was known


class Supervisor:
    """Supervisor of the workers of one pool: starts them, gives them calls, and replaces those that hang or die.

    Its owner calls `selector.select()` and, for each returned `key`, the callback `key.data()`.
    """

    def __init__(self, settings: ExecutionSettings, selector: selectors.BaseSelector) -> None:
        self._settings = settings
        self._selector = selector
        self._backlog = Backlog(settings)
        self._recipes: dict[int, RewardRecipe] = {}
        self._workers: dict[int, _Worker] = {}
        self._numbers = itertools.count()
        self._failed_starts = 0
        self._wanted: list[int] = []
        self._output_limit = OutputLimit("reward workers")
        self._nursery = self._start_nursery()

    def prepare(self, recipe: RewardRecipe) -> None:
        """Start the workers and have each load a reward when it is idle."""
        key = self._key_of(recipe)
        while len(self._workers) < self._settings.workers:
            self._spawn()
        if key not in self._wanted:
            self._wanted.append(key)

    def begin(self, job: Job, future: "Future[list[Score]]") -> None:
        """Accept a job of at least one sample."""
        self._backlog.begin(job, self._key_of(job.recipe), future)

    def patience_s(self) -> float | None:
        """Return the seconds until `supervise` must be called; None: until an event."""
        deadlines = [worker.deadline for worker in self._workers.values() if worker.deadline is not None]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def supervise(self) -> None:
        """Kill workers whose time is up, and give tasks to idle ones.

        Raises:
            RewardError: No worker can be started or kept alive.
        """
        self._judge()
        self._hand_out()

    def end(self, fault: BaseException | None) -> None:
        """End all workers. Waiting futures get `fault`, a fault of this package, or are cancelled if it is None."""
        try:
            self._nursery.close()
        except Exception:
            logger.exception("the supervisor of the reward workers could not be stopped")
        for worker in list(self._workers.values()):
            self._forget(worker)
        self._output_limit.tell_omitted()
        self._backlog.give_up(fault)

    # --- handing out -------------------------------------------------------------------------------------------------

    def _key_of(self, recipe: RewardRecipe) -> int:
        for key, known in self._recipes.items():
            if known is recipe or known == recipe:
                return key
        key = len(self._recipes)
        self._recipes[key] = recipe
        return key

    def _hand_out(self) -> None:
        """Give tasks to idle workers. Idle workers without a task load rewards ahead."""
        while (task := self._backlog.first()) is not None:
            worker = self._worker_for(task)
            if worker is None:
                break
            self._assign(worker, self._backlog.take())
        for worker in self._idle():
            ahead = [key for key in self._wanted if key not in worker.attempted]
            if ahead:
                self._build(worker, ahead[0])

    def _idle(self) -> list[_Worker]:
        return [w for w in self._workers.values() if w.task is None and w.building is None and not (w.doomed or w.lost)]

    def _worker_for(self, task: Task) -> _Worker | None:
        """Return an idle worker, started if needed; None if the task must wait."""
        busy = [worker.task for worker in self._workers.values() if worker.task is not None]
        if busy and (task.exclusive or any(other.exclusive for other in busy)):
            return None
        while True:
            idle = self._idle()
            suited = [worker for worker in idle if not (task.tries and worker.used)]
            if suited:
                return next((worker for worker in suited if task.work.key in worker.built), suited[0])
            if not self._make_room(idle):
                return None

    def _make_room(self, idle: Sequence[_Worker]) -> bool:
        """Start a worker, or replace an idle one that does not suit the next task; return False if all are busy."""
        if sum(not worker.doomed for worker in self._workers.values()) < self._settings.workers:
            self._spawn()
            return True
        if idle:
            self._kill(idle[0])
        return bool(idle)

    def _assign(self, worker: _Worker, task: Task) -> None:
        worker.task = task
        worker.sent = worker.ready = False
        if task.work.key in worker.built:
            self._send_task(worker, task)
        else:
            self._build(worker, task.work.key)

    def _build(self, worker: _Worker, key: int) -> None:
        worker.building = key
        worker.loads = False
        worker.attempted.add(key)
        worker.deadline = time.monotonic() + _DELIVERY_S
        worker.connection.send(worker_program.Build(key, self._recipes[key]))

    def _send_task(self, worker: _Worker, task: Task) -> None:
        chosen, calls = renumber(task.calls, task.work.job.samples)
        try:
            samples = pickle.dumps(chosen, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # a column may hold anything
            worker.task = None
            if len(task.calls) == 1:
                self._backlog.fail(task, f"the completion cannot be sent to a worker: {error!r}")
            else:
                self._backlog.put_back(*task.one_by_one())
            return
        worker.sent = True
        worker.deadline = time.monotonic() + (ISOLATED_DELIVERY_S if self._settings.sandboxed else _DELIVERY_S)
        worker.connection.send(
            worker_program.Chunk(task.work.key, samples, calls, self._settings.timeout_s, task.share)
        )

    # --- listening ---------------------------------------------------------------------------------------------------

    def _listen_on(self, worker: _Worker) -> None:
        """Handle all that a worker has sent so far, up to `_MOST_READS` reads."""
        for _ in range(_MOST_READS):
            self._listen(worker)
            if not worker.connection.has_more:
                break

    def _listen(self, worker: _Worker) -> None:
        """Handle the replies of one read."""
        try:
            for reply in worker.connection.replies():
                self._hear(worker, reply)
        except SandboxUnavailableError:
            raise
        except Exception as error:
            # Other people's code may write anything. In other workers, other errors are defects of this package.
            if not (self._settings.sandboxed or isinstance(error, BrokenFrameError | ValueError | TypeError)):
                raise
            worker.verdict = f"wrote to the connection with the trainer ({error})"
            worker.connection.ignore()
            self._kill(worker)
        if not (worker.connection.is_open or worker.doomed or worker.lost):
            # It has probably died, and the nursery will report how. If it still lives, it is killed later.
            worker.deadline = time.monotonic() + _FAREWELL_S
            worker.lost = True

    def _hear(self, worker: _Worker, reply: tuple[Any, ...]) -> None:
        match reply:
            case ("refused", str(why)) if self._settings.sandboxed and not worker.has_loaded:
                raise unavailable("uploaded code", why, REMEDY_FOR_UPLOADS)
            case ("building", int(key)) if key == worker.building and not worker.loads:
                worker.loads = worker.has_loaded = True
                worker.deadline = time.monotonic() + self._settings.start_timeout_s
            case ("built", int(key)) if key == worker.building:
                worker.built.add(key)
                worker.log.num_bytes = 0
                worker.building = worker.deadline = None
                self._failed_starts = 0
                if worker.task is not None:
                    self._send_task(worker, worker.task)
            case ("unbuilt", int(key), str(why)) if key == worker.building:
                worker.building = worker.deadline = None
                if worker.task is not None:
                    task, worker.task = worker.task, None
                    task.work.broken = f"the reward could not be loaded in a worker: {why}"
                    self._backlog.fail(task, task.work.broken)
            case _ if worker.task is None or not worker.sent:
                raise BrokenFrameError(f"an unexpected reply: {str(reply)[:100]}")
            case ("ready",) if not worker.ready:
                worker.ready = worker.used = True
                worker.task.work.failed_deliveries = 0
                worker.end = time.monotonic() + worker.task.longest_s(self._settings.timeout_s)
                self._wait_for_call(worker, worker.task)
            case ("began", int(number)) if worker.ready and worker.task.share and worker.task.may_begin(number):
                worker.task.begun[number] = time.monotonic()
                self._wait_for_call(worker, worker.task)
            case ("beat",) if worker.ready and worker.task.share and not self._settings.sandboxed:
                self._wait_for_call(worker, worker.task)
            case ("ended", int(number), list(scores)) if worker.ready and worker.task.has(number):
                self._backlog.record(worker.task, number, [unpack(score) for score in scores])
                worker.log.num_bytes = 0
                self._wait_for_call(worker, worker.task)
            case ("broke", str(why)):
                worker.verdict = f"had to stop: {why}"
                worker.connection.ignore()
                if self._settings.sandboxed:  # it may write on without end
                    self._kill(worker)
            case ("done", str(tired)) if worker.ready and (worker.task.ended or not worker.task.left):
                self._finish(worker, worker.task, tired)
            case _:
                raise BrokenFrameError(f"an unexpected reply: {str(reply)[:100]}")

    def _wait_for_call(self, worker: _Worker, task: Task) -> None:
        """Restart the limit on silence for the running call, because the worker has shown that it lives.

        In a sandboxed worker, the limit of a concurrent call counts from the call's start.
        """
        now, timeout_s = time.monotonic(), self._settings.timeout_s
        worker.limit_s = task.limit_s(timeout_s)
        worker.deadline = min(now + worker.limit_s, worker.end)
        if self._settings.sandboxed and task.share:
            worker.deadline = min(task.first_end(now, timeout_s) + _GRACE_S, worker.end)

    def _finish(self, worker: _Worker, task: Task, tired: str) -> None:
        worker.task = worker.deadline = None
        if task.left:  # it stopped early, to be replaced
            tired = tired or "stopped early"
            self._backlog.put_back(task.rest())
        if tired:
            logger.debug("reward worker %d is replaced: %s", worker.number, tired)
            self._kill(worker)

    # --- limits and deaths -------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """Kill workers that print without end, and those whose time is up, after reading what they have sent."""
        now = time.monotonic()
        for worker in list(self._workers.values()):
            if self._settings.sandboxed and worker.log.num_bytes > _MOST_PRINTED_BYTES and not worker.doomed:
                worker.verdict = f"printed more than {_MOST_PRINTED_BYTES:,} bytes"
                self._kill(worker)
            if worker.deadline is None or worker.deadline > now or worker.doomed:
                continue
            self._listen_on(worker)
            if worker.deadline is None or worker.deadline > time.monotonic() or worker.doomed:
                continue
            if worker.lost:
                worker.deadline = None
                self._nursery.kill(worker.number)
                continue
            if self._settings.sandboxed and worker.sent and not worker.ready:
                worker.verdict = "did not start with the completions that it was sent"
                worker.ready = True
            else:
                worker.timed_out = worker.ready or worker.building is not None
            self._kill(worker, trace=True)

    def _spawn(self) -> None:
        number = next(self._numbers)
        reader = FrameReader()
        if self._settings.sandboxed:
            reader = FrameReader(load_json, LARGEST_JSON_BYTES)
        log = OutputLog(f"reward worker {number}", self._output_limit)
        connection = Connection(log, self._selector, lambda: self._listen(worker), reader)
        worker = self._workers[number] = _Worker(number, connection, log)
        self._nursery.spawn(number, connection.remote_ends)
        connection.hand_over()

    def _kill(self, worker: _Worker, trace: bool = False) -> None:
        worker.doomed = True
        worker.deadline = None
        self._nursery.kill(worker.number, trace)

    def _forget(self, worker: _Worker) -> None:
        self._workers.pop(worker.number, None)
        worker.connection.close()

    def _hear_nursery(self) -> None:
        event = self._nursery.hear()
        if event is None:
            self._replace_nursery()
        elif worker := self._workers.get(event.number):
            self._bury(worker, event.how, event.trace)

    def _replace_nursery(self) -> None:
        """Start a new nursery after users' code killed the old one, and every worker with it."""
        logger.warning("the supervisor of the reward workers was killed; restarting it")
        self._nursery.close()
        self._nursery.sweep()
        for worker in list(self._workers.values()):
            self._bury(worker, "was killed with the supervisor of the workers", "", all_died=True)
        self._failed_starts += 1
        if self._failed_starts > _MOST_FAILED_STARTS:
            raise RewardError("the supervisor of the reward workers keeps dying", code="workers_failed")
        self._nursery = self._start_nursery()

    def _start_nursery(self) -> NurseryClient:
        settings = self._settings
        return NurseryClient(
            worker_program.__name__,
            settings.worker_limits(),
            settings.isolation(),
            self._selector,
            self._hear_nursery,
            self._output_limit,
        )

    def _bury(self, worker: _Worker, how: str, trace: str, all_died: bool = False) -> None:
        """Settle the task of a worker that has ended."""
        self._listen_on(worker)  # replies sent before its death count
        self._forget(worker)
        if worker.lost and how == _KILLED:
            worker.verdict = worker.verdict or "closed its connection with the trainer"
        if worker.building is not None:
            if all_died:
                if worker.task is not None:
                    self._backlog.put_back(worker.task)
                return
            where = last_frame(trace, self._recipes[worker.building])
            self._settle_failed_build(worker, f"took longer than {self._settings.start_timeout_s:g} s{where}", how)
        elif worker.task is not None and worker.sent and worker.ready:
            limit_s = worker.limit_s if worker.timed_out else None
            self._backlog.settle_death(worker.task, Death(worker.verdict or how, limit_s, trace, all_died))
        elif worker.task is not None:
            worker.task.work.failed_deliveries += 1
            if worker.task.work.failed_deliveries > _MOST_FAILED_STARTS:
                worker.task.work.broken = f"the worker process {worker.verdict or how} each time it was called"
            self._backlog.put_back(worker.task)
            self._failed_starts += not worker.built
        elif not worker.doomed:
            self._failed_starts += not (worker.used or worker.built)
        if self._failed_starts > _MOST_FAILED_STARTS:
            raise RewardError(f"reward workers cannot be started: {worker.verdict or how}", code="workers_failed")

    def _settle_failed_build(self, worker: _Worker, too_long: str, how: str) -> None:
        task = worker.task
        if task is None:  # it loaded ahead of a job; stop that, and let the job report the error
            self._wanted = [key for key in self._wanted if key != worker.building]
            return
        task.work.failed_builds += 1
        if task.work.failed_builds > 1 or worker.timed_out:
            why = too_long if worker.timed_out else f"the worker {worker.verdict or how}"
            task.work.broken = f"the reward could not be loaded in a worker: {why}"
        self._backlog.put_back(task)
