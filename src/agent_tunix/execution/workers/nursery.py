"""Nursery: a small process that forks workers and waits for their end.

It is a fresh process, not a fork of the trainer, so it holds neither JAX nor a device. It imports what workers need and
then forks a worker in a few milliseconds whenever the trainer asks. As the parent of all workers it alone kills them,
so it never signals a process number that is already reused. As the adopter of their orphans it finds every process that
a worker's code has started, in any session.

It ends with the trainer: when its connection closes, or when its parent changes.
"""

import contextlib
import errno
import os
import pickle
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any, NoReturn

from agent_tunix.execution.isolation import scratch
from agent_tunix.execution.workers import linux
from agent_tunix.execution.workers.limits import MOST_FILES, Isolation, WorkerLimits, WorkerPlace
from agent_tunix.execution.workers.process import TRACE_SIGNAL, Program, serve

# A worker with more processes than this is killed, if the kernel does not refuse them itself.
MOST_PROCESSES = 64
# New threads on the machine that make the nursery count its workers' processes before the next regular count.
_SUSPICIOUS_RISE = 48
_COUNT_EVERY_S = 1.0
_MEASURE_EVERY_S = 0.1
_TICK_S = 0.05
_BURIAL_S = 10.0
_TRACE_S = 0.2
_PAUSE_S = 0.001
_LARGEST_MESSAGE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Begin:
    """First message: module path, limits of workers, and their isolation, if any."""

    sys_path: list[str]
    limits: WorkerLimits
    isolation: Isolation | None = None


@dataclass(frozen=True, slots=True)
class Spawn:
    """Request to fork a worker. Three descriptors come with it: its connection, its output, and a pipe for `Ended`."""

    number: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Request to kill a worker and all its descendants; with `trace`, after reading its traceback."""

    number: int
    trace: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """Report that a worker has ended. `how` is for the user; `trace` is its traceback, if requested."""

    how: str
    trace: str = ""


@dataclass(slots=True)
class _Child:
    number: int
    report: int
    trace_file: int
    directory: str = ""
    trace: str = ""
    why: str = ""


def main(descriptor: int, program: type[Program]) -> NoReturn:
    """Serve the trainer at the other end of a connection until it closes; each fork runs the program."""
    control = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    linux.adopt_orphans()
    getattr(program, "prepare", lambda: None)()
    _Nursery(control, program).serve()
    os._exit(0)


class _Nursery:
    def __init__(self, control: socket.socket, program: type[Program]) -> None:
        self._control = control
        self._program = program
        self._parent = os.getppid()
        self._children: dict[int, _Child] = {}
        self._limits: WorkerLimits
        self._isolation: Isolation | None = None
        self._num_tasks = linux.count_tasks()
        self._next_count = 0.0
        self._next_measurement = 0.0
        self._wakeup, wakeup_write = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(wakeup_write, False)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        watched: list[Any] = [self._control, self._wakeup]
        try:
            while os.getppid() == self._parent:
                ready = select.select(watched, [], [], _TICK_S)[0]
                if self._wakeup in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wakeup, 4096)
                if self._control in ready and not self._obey():
                    break
                self._reap()
                self._look_for_bombs()
                self._look_for_floods()
        finally:
            for pid, child in list(self._children.items()):
                self._bury(pid, child)
            self._kill_orphans()
            if self._isolation is not None:
                scratch.remove(self._isolation.scratch)

    def _obey(self) -> bool:
        """Handle one request of the trainer; return False if the trainer has ended."""
        data, descriptors, _, _ = socket.recv_fds(self._control, _LARGEST_MESSAGE_BYTES, 3)
        if not data:
            return False
        match pickle.loads(data):
            case Begin(sys_path, limits, isolation):
                sys.path[:] = sys_path
                self._limits, self._isolation = limits, isolation
            case Spawn(number):
                self._spawn(number, *descriptors)
            case Kill(number, trace):
                for pid, child in list(self._children.items()):
                    if child.number == number:
                        if trace:
                            child.trace = _trace(pid, child.trace_file)
                        _kill_group(pid)
        return True

    def _spawn(self, number: int, connection: int, output: int, report: int) -> None:
        trace_file = os.memfd_create("trace") if linux.IS_LINUX else os.open(os.devnull, os.O_RDWR)
        parent = os.getpid()
        directory = ""
        try:
            if self._isolation is not None:
                directory = os.path.join(self._isolation.scratch, str(number))
                os.mkdir(directory, 0o700)
            pid = os.fork()
        except OSError as error:
            _tell(report, Ended(f"could not be started: {os.strerror(error.errno or errno.EAGAIN)}"))
            if directory:
                scratch.remove(directory)
            for descriptor in (connection, output, trace_file):
                os.close(descriptor)
            return
        if pid == 0:
            try:
                os.close(report)  # only this process holds it, so the trainer notices if this process is killed
                self._become_worker(parent, connection, output, trace_file, directory)
            finally:
                os._exit(1)
        os.close(connection)
        os.close(output)
        self._children[pid] = _Child(number, report, trace_file, directory)

    def _become_worker(self, parent: int, connection: int, output: int, trace_file: int, directory: str) -> None:
        linux.die_with_parent()
        if os.getppid() != parent:
            return
        os.setsid()
        linux.be_killed_first()
        linux.adopt_orphans()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self._control.close()
        os.close(self._wakeup)
        for child in self._children.values():
            os.close(child.trace_file)
            os.close(child.report)
        place = None if self._isolation is None else WorkerPlace(self._isolation, directory, parent)
        serve(self._program, socket.socket(fileno=connection), output, trace_file, self._limits, place)

    def _reap(self) -> None:
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            child = self._children.get(found.si_pid)
            if child is None:  # an orphan
                os.waitpid(found.si_pid, 0)
            else:
                self._bury(found.si_pid, child)

    def _bury(self, pid: int, child: _Child) -> None:
        """End a worker and everything that it started, and tell the trainer."""
        _kill_group(pid)  # before the wait, so the number is not reused yet
        _, status = os.waitpid(pid, 0)
        del self._children[pid]
        os.close(child.trace_file)
        self._kill_orphans()
        if child.directory:
            scratch.remove(child.directory)
        _tell(child.report, Ended(child.why or _describe_status(status), child.trace))

    def _kill_orphans(self) -> None:
        """Kill processes left behind by dead workers: children of this process that are not workers."""
        deadline = time.monotonic() + _BURIAL_S
        while time.monotonic() < deadline:
            if not linux.has_children():
                return
            orphans = [pid for pid in linux.children_of(os.getpid()) if pid not in self._children]
            if not orphans:
                return
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(_PAUSE_S)

    def _look_for_bombs(self) -> None:
        """Kill a worker whose code starts too many processes."""
        now = time.monotonic()
        num_tasks = linux.count_tasks()
        if not self._children or (num_tasks - self._num_tasks < _SUSPICIOUS_RISE and now < self._next_count):
            self._num_tasks = min(self._num_tasks, num_tasks)
            return
        self._num_tasks, self._next_count = num_tasks, now + _COUNT_EVERY_S
        sessions = [session for _, _, session in linux.processes()]
        for pid, child in self._children.items():
            if sessions.count(pid) > MOST_PROCESSES:
                child.why = f"started more than {MOST_PROCESSES} processes"
                _kill_group(pid)

    def _look_for_floods(self) -> None:
        """Kill an isolated worker that fills the disk. A worker with its own root is stopped by the system first."""
        now = time.monotonic()
        if self._isolation is None or now < self._next_measurement:
            return
        self._next_measurement = now + _MEASURE_EVERY_S
        size_bytes = self._isolation.disk_bytes
        for pid, child in self._children.items():
            if not child.why and scratch.holds_more(child.directory, size_bytes, MOST_FILES):
                child.why = f"wrote more than {size_bytes // 2**20} MB or {MOST_FILES} files, or hid some"
                _kill_group(pid)


def _tell(report: int, end: Ended) -> None:
    """Tell the trainer of a worker's end; a pipe holds the whole message."""
    with contextlib.suppress(OSError):
        os.write(report, pickle.dumps(end))
    os.close(report)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # the worker may not have its own group yet
        os.kill(pid, signal.SIGKILL)


def _trace(pid: int, trace_file: int) -> str:
    """Return the traceback of a worker's code; "" if there is none in time."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, TRACE_SIGNAL)
    deadline = time.monotonic() + _TRACE_S
    text = ""
    while time.monotonic() < deadline:
        size = os.fstat(trace_file).st_size
        text = os.pread(trace_file, 16_000, 0).decode("utf-8", "replace")
        if size and len(text) == size and text.endswith("\n"):
            break
        time.sleep(_PAUSE_S)
    return text


def _describe_status(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(ValueError):
            return f"died of {signal.Signals(number).name}"
        return f"died of signal {number}"
    return f"exited with status {os.waitstatus_to_exitcode(status)}"
