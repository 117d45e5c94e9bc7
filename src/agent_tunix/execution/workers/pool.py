"""Pool of workers: processes that run one program, forked from one nursery.

    pool = WorkerPool(RewardProgram, "reward worker", limits)
    worker = pool.start()
    reply = worker.ask(request, limit_s)      # or WorkerDiedError
    reply = pool.ask(request, limit_s)        # of any worker, with one retry after a death

A program is a class of the `Program` protocol of `process`, imported by the nursery. Isolation and limits are those of
the pool. Whatever runs in the workers, `close` leaves nothing of them behind.
"""

import contextlib
import itertools
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_tunix.closing import Closing
from agent_tunix.errors import AgentTunixError
from agent_tunix.execution.isolation import module_directories, scratch
from agent_tunix.execution.isolation.requirements import REMEDY_FOR_UPLOADS, unavailable
from agent_tunix.execution.workers import linux, nursery
from agent_tunix.execution.workers.frames import FrameReader
from agent_tunix.execution.workers.limits import Isolation, WorkerLimits
from agent_tunix.execution.workers.output import OutputLimit, OutputLog
from agent_tunix.execution.workers.process import Program
from agent_tunix.execution.workers.worker import Worker, WorkerDiedError

logger = logging.getLogger("agent_tunix.execution")

BOOT = (
    "import sys; sys.path.insert(0, sys.argv[2]); from agent_tunix.execution.workers import nursery;"
    " from {module} import {name}; nursery.main(int(sys.argv[1]), {name})"
)
_PACKAGE_ROOT = str(Path(__file__).parents[3])
# Time for starting a worker, with its nursery.
_START_S = 60.0
_CLOSE_S = 15.0
_MOST_SWEEPS = 100
# Starts in a row that may fail, deaths of the nursery included.
_MOST_FAILURES = 5
# Bytes that isolated code may print between two replies, because reading them is work of the trainer.
_MOST_PRINTED_BYTES = 16 * 2**20
_LOGGED_BYTES = 2**16

_DEVICES = ("CUDA_", "NVIDIA_", "JAX_", "XLA_", "TPU_", "LIBTPU", "ROCR_", "HIP_", "NEURON_")
_NO_DEVICE = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
# There is a worker per core, so libraries with a thread per core would make workers wait for each other.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
# Variables that affect libraries and computation and hold nothing private.
_HARMLESS = ("LD_LIBRARY_PATH", "PYTHONHASHSEED", "TZ")


class WorkersFailedError(AgentTunixError, RuntimeError):
    """No worker of a pool can be started or kept alive."""

    code = "workers_failed"


class WorkerPool(Closing):
    """Workers that run one program. Several threads may start workers; each worker serves one thread at a time.

    Args:
        program: Class of the program, at the top level of a module.
        name: Name of a worker in logs and errors.
        limits: Limits of each worker.
        isolate: Returns the rights of the workers of one nursery; None for workers with the rights of this process.
        make_reader: Returns a reader of replies; by default, of pickles of built-in types.
        most_printed_bytes: Output between two replies beyond which a worker is killed; None: no limit, but for isolated
            workers.
    """

    def __init__(
        self,
        program: type[Program],
        name: str,
        limits: WorkerLimits,
        isolate: Callable[[], Isolation] | None = None,
        make_reader: Callable[[], FrameReader] = FrameReader,
        most_printed_bytes: int | None = None,
    ) -> None:
        self._program = program
        self._name = name
        self._limits = limits
        self._isolate = isolate
        self._make_reader = make_reader
        self._most_printed_bytes = most_printed_bytes if isolate is None else _MOST_PRINTED_BYTES
        self._output_limit = OutputLimit(f"{name}s")
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._nursery: _Nursery | None = None
        self._idle: list[Worker] = []
        self._num_failures = 0
        self._is_closed = False

    def start(self) -> Worker:
        """Return a new worker that waits for its first request.

        Raises:
            WorkerDiedError: It could not be started; it may be tried again.
            WorkersFailedError: None could be started for several times.
            SandboxUnavailableError: It cannot be isolated on this machine.
        """
        with self._lock:
            nursery_process = self._running_nursery()
            number = next(self._numbers)
            log = OutputLog(f"{self._name} {number}", self._output_limit)
            worker = Worker(number, nursery_process, log, self._make_reader(), self._most_printed_bytes)
        try:
            reply = worker.receive(_START_S)
        except WorkerDiedError as death:
            self._count_failure(f"the {self._name}s cannot be started: {death.how}")
            raise
        match reply:
            case ("started",):
                return worker
            case ("refused", str(why)) if self._isolate is not None:
                worker.close()
                raise unavailable("uploaded code", why, REMEDY_FOR_UPLOADS)
        raise worker.refuse(reply)

    def ask(self, request: object, limit_s: float) -> Any:
        """Return the reply of an idle worker, or of a new one. If a worker dies by itself, ask another one.

        Raises:
            WorkerDiedError: The worker was silent for longer than `limit_s`, or two workers died.
            WorkersFailedError: None could be started for several times.
        """
        num_deaths = 0
        while True:
            try:
                worker = (self.idle_worker() if not num_deaths else None) or self.start()
                reply = worker.ask(request, limit_s)
            except WorkerDiedError as death:
                num_deaths += not death.all_died
                if death.timed_out or num_deaths > 1:
                    raise
            else:
                self.forgive()
                self.keep(worker)
                return reply

    def idle_worker(self) -> Worker | None:
        """Return a worker that was kept and is alive; None without one."""
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.is_alive:
                    return worker
                worker.close()
        return None

    def keep(self, worker: Worker) -> None:
        """Keep a worker that waits for a request, until it is needed or the pool closes."""
        self._idle.append(worker)

    def forgive(self) -> None:
        """Note that a worker has answered a request, so that earlier failures do not count."""
        self._num_failures = 0

    def close(self) -> None:
        """End every worker and the nursery. Threads that wait for a reply get WorkerDiedError."""
        with self._lock:
            self._is_closed = True
            nursery_process, self._nursery = self._nursery, None
        if nursery_process is not None:
            nursery_process.close()
        while self._idle:
            self._idle.pop().close()
        self._output_limit.tell_omitted()

    def _running_nursery(self) -> "_Nursery":
        if self._is_closed:
            raise WorkerDiedError("was not started, because its pool is closed")
        if self._nursery is not None and not self._nursery.is_alive:
            logger.warning("the supervisor of the %ss was killed; restarting it", self._name)
            self._nursery.close()
            self._nursery = None
            self._count_failure(f"the supervisor of the {self._name}s keeps dying")
        if self._nursery is None:
            isolation = None if self._isolate is None else self._isolate()
            self._nursery = _Nursery(self._program, self._limits, isolation, self._output_limit)
        return self._nursery

    def _count_failure(self, text: str) -> None:
        self._num_failures += 1
        if self._num_failures > _MOST_FAILURES:
            self._num_failures = 0
            raise WorkersFailedError(text)


class _Nursery:
    """A nursery process, as `Worker` uses it. A new worker takes a few milliseconds."""

    def __init__(
        self, program: type[Program], limits: WorkerLimits, isolation: Isolation | None, output_limit: OutputLimit
    ) -> None:
        self._lock = threading.Lock()
        self._mark = f"AGENT_TUNIX_WORKERS={os.getpid()}-{uuid.uuid4().hex}"
        self._is_open = True
        self._isolation = isolation
        self._log = OutputLog("nursery", output_limit)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        environment = (_worker_environment if isolation is None else _isolated_environment)(os.environ)
        boot = BOOT.format(module=program.__module__, name=program.__name__)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", boot, str(theirs.fileno()), _PACKAGE_ROOT],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env=environment | dict([self._mark.split("=")]),
                cwd=None if isolation is None else isolation.scratch,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        path = [entry for entry in sys.path if entry]
        self._ask(nursery.Begin(path if isolation is None else module_directories(path), limits, isolation))

    @property
    def is_alive(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    def spawn(self, number: int, ends: tuple[int, int, int]) -> None:
        """Request a worker; `ends` are the descriptors of its connection, its output and the report of its end."""
        self._ask(nursery.Spawn(number), ends)

    def kill(self, number: int, trace: bool = False) -> None:
        """Request the death of a worker; `trace` requests its traceback."""
        self._ask(nursery.Kill(number, trace))

    def clear(self) -> None:
        """Kill everything that this process left behind when it was killed."""
        with self._lock:
            if self._process.poll() is None:  # its end shows in its connections first
                self._process.kill()
                self._process.wait()
            self._sweep()

    def close(self) -> None:
        """End the process and every worker."""
        with self._lock:
            if not self._is_open:
                return
            self._is_open = False
            self._control.close()
            try:
                is_killed = self._process.wait(_CLOSE_S) != 0
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                is_killed = True
            if is_killed:
                self._sweep()
            with self._output:
                self._output.seek(max(0, self._output.seek(0, os.SEEK_END) - _LOGGED_BYTES))
                self._log.write(self._output.read())
                self._log.close()
        if self._isolation is not None and os.path.isdir(self._isolation.scratch):  # the nursery was killed
            scratch.remove(self._isolation.scratch)

    def _sweep(self) -> None:
        for _ in range(_MOST_SWEEPS):
            left = linux.marked_processes(self._mark)
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _ask(self, request: object, descriptors: Sequence[int] = ()) -> None:
        if self._is_open:
            with contextlib.suppress(OSError):  # the worker's report shows that the nursery has ended
                socket.send_fds(self._control, [pickle.dumps(request)], descriptors)


def _worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a worker: this process's without its devices."""
    kept = {name: value for name, value in environment.items() if not name.startswith(_DEVICES)}
    return {**_ONE_THREAD, **kept, **_NO_DEVICE}


def _isolated_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a worker that runs other people's code, without the trainer's secrets."""
    kept = {name: environment[name] for name in _HARMLESS if name in environment}
    fixed = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    # Fewer arenas of malloc, because each takes address space, which is limited.
    return {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "2", **_ONE_THREAD, **kept, **fixed, **_NO_DEVICE}
