"""A worker's own side: its connection to the trainer, its limits, and the state that every call must find unchanged.

A worker is forked from the nursery and can be killed at any moment. Between calls it restores what a call may have
changed for the next: the working directory, and standard output and error, even if closed or replaced.
"""

import contextlib
import faulthandler
import os
import pickle
import random
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any, NoReturn, Protocol

from agent_tunix.execution.isolation import lock
from agent_tunix.execution.workers import frames, linux
from agent_tunix.execution.workers.limits import MOST_FILES, MOST_THREADS, WorkerLimits, WorkerPlace

TRACE_SIGNAL = signal.SIGUSR2
# Most threads, or child processes, that calls may leave behind before the worker is replaced.
MOST_LEFT_BEHIND = 16
# Share of a worker's memory limit. A worker that grows by more is replaced, so that each call finds memory free.
_GROWTH_SHARE = 0.5
# Far above the low numbers that careless code closes.
_FIRST_DESCRIPTOR = 200


class Program(Protocol):
    """A program that a worker runs. If it has a static method `prepare`, the nursery calls it before any fork."""

    def __init__(self, process: "WorkerProcess") -> None: ...

    def answer(self, request: Any) -> None:
        """Send the replies to a request with `WorkerProcess.send`."""


def serve(
    program: type[Program],
    connection: socket.socket,
    output: int,
    trace: int,
    limits: WorkerLimits,
    place: WorkerPlace | None,
) -> NoReturn:
    """Run a program until the connection to the trainer closes; the arguments are those of `WorkerProcess`."""
    random.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    process = WorkerProcess(connection, output, trace, limits, place)
    running = program(process)
    process.send("started")
    while True:
        running.answer(process.receive())


class WorkerProcess:
    """This process as a worker. It enters its isolation at once; if that fails, it says so and exits.

    Args:
        connection: Connection to the trainer.
        output: Descriptor for output of users' code.
        trace: Descriptor for the traceback of a late call.
        limits: Limits of the worker.
        place: Isolation to enter; None for a worker that is not isolated.
    """

    def __init__(
        self, connection: socket.socket, output: int, trace: int, limits: WorkerLimits, place: WorkerPlace | None
    ) -> None:
        self._connection = socket.socket(fileno=_raise_descriptor(connection.detach()))
        output = _raise_descriptor(output)
        trace = _raise_descriptor(trace)
        faulthandler.register(TRACE_SIGNAL, file=trace, all_threads=False)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self._process = os.getpid()
        self._limits = limits
        self._cpu_s = None if place is None else place.isolation.cpu_s
        self._surroundings = _Surroundings(output)
        self._resident = linux.resident_bytes()
        self._peak = _peak_kib()
        if place is not None:
            self._isolate(place, [self._connection.fileno(), output, trace])

    @property
    def is_isolated(self) -> bool:
        """True if this worker runs other people's code."""
        return self._cpu_s is not None

    def receive(self) -> object:
        """Return the next message; exit if the trainer has closed the connection."""
        header = self._receive_exactly(frames.HEADER_BYTES)
        return pickle.loads(self._receive_exactly(frames.read_header(header)))

    def send(self, *reply: object) -> None:
        """Send a reply; exit if nobody reads it."""
        if os.getpid() != self._process:  # a child that a call has forked
            os._exit(0)
        try:
            self._connection.sendall(self.pack(reply))
        except OSError:  # the trainer is gone, or users' code closed the connection
            os._exit(1)

    def pack(self, reply: object) -> bytes:
        """Return the frame of a reply: JSON from an isolated worker, else a pickle."""
        return frames.pack_json(reply) if self.is_isolated else frames.pack(reply)

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Load users' code: memory that it takes does not count as a call's, except in an isolated worker."""
        if not self.is_isolated:
            _lift_limit(resource.RLIMIT_DATA)
        yield
        self._surroundings.keep()
        if linux.IS_LINUX and not self.is_isolated:
            _lower_limit(resource.RLIMIT_DATA, linux.data_bytes() + self._limits.memory_bytes)
        self._resident = linux.resident_bytes()

    def repair(self) -> None:
        """Restore what can be restored while other calls run."""
        self._surroundings.repair()

    def restore(self) -> None:
        """Restore everything between calls."""
        self._surroundings.restore()

    def has_grown(self) -> bool:
        """Return True if calls have left much memory behind. The cheap check of the peak comes first."""
        peak = _peak_kib()
        if peak == self._peak:
            return False
        self._peak = peak
        return self._grew()

    def why_tired(self, num_calls: int) -> str:
        """Return why this worker should be replaced after so many calls; "" if it should not."""
        if num_calls >= self._limits.recycle_after:
            return f"made {num_calls} calls"
        if self._cpu_s is not None and time.process_time() > self._cpu_s / 2:
            return "used half of its processor time"
        if self._grew():
            return "grew"
        if threading.active_count() > MOST_LEFT_BEHIND:
            return "threads kept running"
        if linux.has_children() and len(linux.children_of(os.getpid())) > MOST_LEFT_BEHIND:
            return "child processes kept running"
        return ""

    def _grew(self) -> bool:
        return linux.resident_bytes() - self._resident > self._limits.memory_bytes * _GROWTH_SHARE

    def _isolate(self, place: WorkerPlace, keep: list[int]) -> None:
        """Drop all rights that other people's code must not have; if that fails, report it and exit."""
        isolation = place.isolation
        limits = isolation.limits()
        memory_file = linux.hold_memory_file(_FIRST_DESCRIPTOR)
        if memory_file is not None:
            keep.append(memory_file)
        try:
            lock(
                isolation.readable,
                place.directory,
                parent=place.parent,
                keep=tuple(keep),
                limits=limits,
                most_threads=MOST_THREADS,
                most_tasks=isolation.most_tasks,
                disk_bytes=isolation.disk_bytes,
                most_files=MOST_FILES,
            )
        except (OSError, ValueError) as error:
            self.send("refused", str(error))
            os._exit(0)
        tempfile.tempdir = None
        self._surroundings.keep()

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self._connection.recv(min(size - len(data), 2**20))
            except OSError:
                piece = b""
            if not piece:
                os._exit(0)
            data += piece
        return bytes(data)


class _Surroundings:
    """Process state that every call must find unchanged."""

    def __init__(self, output: int) -> None:
        self._output = output
        self._directory = os.getcwd()
        self._streams: list[Any] = []
        self.restore()

    def keep(self) -> None:
        """Keep the present working directory, because loading a file may have changed it."""
        with contextlib.suppress(OSError):
            self._directory = os.getcwd()

    def repair(self) -> None:
        """Restore what can be restored while other calls run."""
        for descriptor in (1, 2):
            os.dup2(self._output, descriptor)
        if any(stream.closed for stream in self._streams):
            self._open()

    def restore(self) -> None:
        """Restore everything between calls."""
        for descriptor in (1, 2):
            os.dup2(self._output, descriptor)
        if not self._streams or sys.stdout is not self._streams[0] or sys.stderr is not self._streams[1]:
            self._open()
        for stream in self._streams:
            try:
                stream.flush()
            except (OSError, ValueError):
                self._open()
                break
        with contextlib.suppress(OSError):
            os.chdir(self._directory)

    def _open(self) -> None:
        self._streams = [
            open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
            for number in (1, 2)
        ]
        sys.stdout, sys.stderr = self._streams


def _raise_descriptor(descriptor: int) -> int:
    """Return a descriptor of the same file with a high number."""
    import fcntl

    try:
        raised = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
    except OSError:  # the number exceeds the limit on descriptors
        return descriptor
    os.close(descriptor)
    return raised


def _lower_limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _lift_limit(kind: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (hard, hard))


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
