"""Worker: a process that loads rewards and makes the calls it is sent, one chunk after the other.

It is forked from the nursery, talks to the trainer over its own connection, and can be killed at any moment. The scores
of each call are sent as soon as the call ends, so that the trainer knows which call runs and for how long.

Between calls the worker restores what a call may have changed for the next: the working directory, and standard output
and error, even if closed or replaced.
"""

import asyncio
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
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from agent_tunix.execution.isolation import lock
from agent_tunix.rewards.answers.thorough import set_thorough_runner, verify_here
from agent_tunix.rewards.calling import Reward
from agent_tunix.rewards.execution import plain_wire, wire
from agent_tunix.rewards.execution.building import build_reward
from agent_tunix.rewards.execution.calls import Call
from agent_tunix.rewards.execution.concurrent import check_length, failed_scores, run_calls
from agent_tunix.rewards.execution.processes import linux
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Outcome, Sample, Score

# Far above the low numbers that careless code closes.
_FIRST_DESCRIPTOR = 200
# Threads, or child processes, left behind by calls beyond which the worker is replaced.
MOST_LEFT_BEHIND = 16
# Share of a worker's memory limit. A worker that grows by more is replaced, so that each call finds memory free.
_GROWTH_SHARE = 0.5
_BEATS_A_LIMIT = 4
TRACE_SIGNAL = signal.SIGUSR2
# Limits of an isolated worker.
MOST_FILES = 1024
_MOST_THREADS = 64
# Address space beyond memory: stacks of threads and the allocator's reserve.
_ADDRESSES_BYTES = 2**29


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Limits of a worker.

    Attributes:
        memory_bytes: Memory beyond what it holds after loading its rewards.
        recycle_after: Number of calls.
        most_processes: Processes of the user; None if the kernel does not count them (root).
    """

    memory_bytes: int
    recycle_after: int
    most_processes: int | None


@dataclass(frozen=True, slots=True)
class Isolation:
    """Rights of isolated workers.

    Attributes:
        scratch: Directory of the nursery, in which each worker gets one.
        readable: Absolute paths that can be read.
        memory_bytes: Memory beyond what a worker holds before its reward is loaded.
        disk_bytes: Total size of a worker's files, and size of the largest file.
        cpu_s: Processor time of a worker, from its first to its last call.
        most_tasks: Processes and threads of the user, if workers have no user of their own; None: unknown.
    """

    scratch: str
    readable: tuple[str, ...]
    memory_bytes: int
    disk_bytes: int
    cpu_s: int
    most_tasks: int | None

    def limits(self) -> dict[int, int]:
        """Return the resource limits of a process that holds no more than this one does now."""
        return {
            resource.RLIMIT_CPU: self.cpu_s,
            resource.RLIMIT_FSIZE: self.disk_bytes,
            resource.RLIMIT_DATA: linux.data_bytes() + self.memory_bytes,
            resource.RLIMIT_AS: linux.address_bytes() + self.memory_bytes + _ADDRESSES_BYTES,
        }


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """Place of an isolated worker: its rights, its own directory and the nursery's process id."""

    isolation: Isolation
    directory: str
    parent: int


@dataclass(frozen=True, slots=True)
class Build:
    """Request to load a reward."""

    key: int
    recipe: RewardRecipe


@dataclass(frozen=True, slots=True)
class Chunk:
    """Request to make calls of a reward over pickled samples; `share` of them concurrently if the reward is async."""

    key: int
    samples: bytes
    calls: Sequence[Call]
    timeout_s: float
    share: int | None


def main(
    connection: socket.socket, output: int, trace: int, limits: WorkerLimits, place: WorkerPlace | None = None
) -> NoReturn:
    """Work until the connection to the trainer closes.

    Args:
        connection: Connection to the trainer.
        output: Descriptor for output of users' code.
        trace: Descriptor for the traceback of a late call.
        limits: Limits of the worker.
        place: Isolation to enter first; None for a worker that is not isolated.
    """
    connection = _raise(connection)
    output = _raise_descriptor(output)
    trace = _raise_descriptor(trace)
    faulthandler.register(TRACE_SIGNAL, file=trace, all_threads=False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if place is None and limits.most_processes is not None and linux.IS_LINUX:
        _lower_limit(resource.RLIMIT_NPROC, limits.most_processes)
    random.seed()
    np.random.seed()
    set_thorough_runner(verify_here)  # needs no further process, because this one has limits
    worker = _Worker(connection, output, limits, place)
    if place is not None:
        worker.isolate(place, [connection.fileno(), output, trace])
    while True:
        worker.answer(_receive(connection))


class _Worker:
    def __init__(self, connection: socket.socket, output: int, limits: WorkerLimits, place: WorkerPlace | None) -> None:
        self._connection = connection
        self._process = os.getpid()
        self._limits = limits
        self._cpu_s = None if place is None else place.isolation.cpu_s
        self._pack = wire.pack if place is None else plain_wire.pack
        self._surroundings = _Surroundings(output)
        self._rewards: dict[int, Reward] = {}
        self._num_calls = 0
        self._resident = linux.resident_bytes()
        self._peak = _peak_kib()
        self._strays: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def answer(self, message: object) -> None:
        match message:
            case Build():
                self._build(message)
            case Chunk(share=None):
                self._work(message)
            case Chunk(share=int(share)):
                self._work_concurrently(message, share)

    def isolate(self, place: WorkerPlace, keep: list[int]) -> None:
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
                most_threads=_MOST_THREADS,
                most_tasks=isolation.most_tasks,
                disk_bytes=isolation.disk_bytes,
                most_files=MOST_FILES,
            )
        except (OSError, ValueError) as error:
            self.send("refused", str(error))
            os._exit(0)
        tempfile.tempdir = None
        self._surroundings.keep()

    def send(self, *reply: object) -> None:
        if os.getpid() != self._process:  # a child that a call has forked
            os._exit(0)
        try:
            self._connection.sendall(self._pack(reply))
        except OSError:  # the trainer is gone, or users' code closed the connection
            os._exit(1)

    def _build(self, message: Build) -> None:
        self.send("building", message.key)
        try:
            if self._cpu_s is None:
                _lift_limit(resource.RLIMIT_DATA)
            self._rewards[message.key] = build_reward(message.recipe)
        except BaseException as error:
            self.send("unbuilt", message.key, describe_fault(error))
            return
        self._surroundings.keep()
        if linux.IS_LINUX and self._cpu_s is None:
            _lower_limit(resource.RLIMIT_DATA, linux.data_bytes() + self._limits.memory_bytes)
        self._resident = linux.resident_bytes()
        self.send("built", message.key)

    def _work(self, chunk: Chunk) -> None:
        reward, samples = self._begin(chunk)
        for number, call in enumerate(chunk.calls):
            chosen = [samples[position] for position in call]
            try:
                scores = check_length(reward.score(chosen), chosen)
            except BaseException as error:
                scores = failed_scores(error, chosen)
            self._surroundings.restore()
            self.ended(number, scores)
            if self._has_grown() and number + 1 < len(chunk.calls):
                break
        self._end()

    def _work_concurrently(self, chunk: Chunk, share: int) -> None:
        reward, samples = self._begin(chunk)

        async def work() -> None:
            beat = asyncio.ensure_future(self._beat(chunk.timeout_s / _BEATS_A_LIMIT))
            self._strays |= await run_calls(reward, samples, chunk.calls, share, chunk.timeout_s, self)
            beat.cancel()
            await asyncio.wait({beat})

        # One loop for all chunks, because objects kept by a reward's module, such as semaphores, belong to their loop.
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.set_task_factory(self._make_task)  # type: ignore[arg-type]  # its protocol is stricter
        loop = self._loop
        try:
            loop.run_until_complete(work())
        except BaseException as error:  # KeyboardInterrupt, for instance, passes through tasks and breaks the loop
            self.send("broke", describe_fault(error))
            os._exit(1)
        self._surroundings.restore()
        # Tasks that cannot be cancelled would run on in the next chunk, so their loop is not used again.
        if self._strays:
            self._loop = None
        self._end()

    def began(self, number: int) -> None:
        self.send("began", number)

    def ended(self, number: int, scores: list[Score]) -> None:
        self._num_calls += 1
        plain = [_to_plain(score) for score in scores]
        if self._cpu_s is not None and (
            plain_wire.has_too_many_items(plain) or len(self._pack(plain)) > plain_wire.LARGEST_REPLY_BYTES // 2
        ):
            detail = (
                f"the scores and what was logged with them take more than {plain_wire.LARGEST_REPLY_BYTES >> 21} MB"
                " or are too many"
            )
            plain = [wire.to_plain(Score.failed(Outcome.ERROR, detail)) for _ in scores]
        self.send("ended", number, plain)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> "asyncio.Task[Any]":
        """Return a task that sends a beat when it starts, so the trainer sees the progress of calls that never wait."""

        async def heard() -> Any:
            self._surroundings.repair()
            self.send("beat")
            return await coroutine

        return asyncio.Task(heard(), loop=loop, **options)

    async def _beat(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            self.send("beat")

    def _begin(self, chunk: Chunk) -> tuple[Any, list[Sample]]:
        samples = pickle.loads(chunk.samples)
        self.send("ready")
        return self._rewards[chunk.key], samples

    def _end(self) -> None:
        self.send("done", self._why_tired())

    def _has_grown(self) -> bool:
        """Return True if calls have left much memory behind. The cheap check of the peak comes first."""
        peak = _peak_kib()
        if peak == self._peak:
            return False
        self._peak = peak
        return linux.resident_bytes() - self._resident > self._limits.memory_bytes * _GROWTH_SHARE

    def _why_tired(self) -> str:
        """Return why this worker should be replaced; "" if it should not."""
        if self._num_calls >= self._limits.recycle_after:
            return f"made {self._num_calls} calls"
        if self._cpu_s is not None and time.process_time() > self._cpu_s / 2:
            return "used half of its processor time"
        if linux.resident_bytes() - self._resident > self._limits.memory_bytes * _GROWTH_SHARE:
            return "grew"
        if self._strays:
            return "tasks that cannot be cancelled were left behind"
        if threading.active_count() > MOST_LEFT_BEHIND:
            return "threads were left behind"
        if linux.has_children() and len(linux.children_of(os.getpid())) > MOST_LEFT_BEHIND:
            return "child processes were left behind"
        return ""


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


def _to_plain(score: Score) -> wire.PlainScore:
    try:
        if score.detail.startswith("MemoryError"):
            score = Score.failed(score.outcome, f"{score.detail}; rewards.memory_mb bounds it", score.seconds)
        return wire.to_plain(score)
    except BaseException as error:  # a user's object may raise anything when it is read
        return wire.to_plain(Score.failed(Outcome.ERROR, f"the score cannot be read: {describe_fault(error)}"))


def _receive(connection: socket.socket) -> object:
    header = _receive_exactly(connection, wire.HEADER_BYTES)
    return pickle.loads(_receive_exactly(connection, wire.read_header(header)))


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        try:
            piece = connection.recv(min(size - len(data), 2**20))
        except OSError:
            piece = b""
        if not piece:
            os._exit(0)
        data += piece
    return bytes(data)


def _raise(connection: socket.socket) -> socket.socket:
    return socket.socket(fileno=_raise_descriptor(connection.detach()))


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


def wait_a_moment() -> None:
    """Sleep for a millisecond."""
    time.sleep(0.001)
