"""One worker as its owner sees it: requests, replies within a time limit, and the end.

Threads that `ask` a worker take turns; `send` and `receive` are for a worker that only one thread uses. Nothing here
blocks without a limit, whatever code in the worker does.
"""

import collections
import contextlib
import math
import os
import pickle
import select
import socket
import threading
import time
from typing import Any, Protocol

from agent_tunix.errors import AgentTunixError
from agent_tunix.execution.workers.frames import FrameReader, pack
from agent_tunix.execution.workers.nursery import Ended
from agent_tunix.execution.workers.output import OutputLog

_READ_BYTES = 2**18
_WRITE_BYTES = 2**20
# Time for a worker without a connection to end by itself. Its exit status is the best hint at the cause.
_FAREWELL_S = 2.0
# Time for the nursery to end a worker and everything that it started.
_BURIAL_S = 15.0
_NURSERY_DIED = "was killed with the supervisor of the workers"


class WorkerDiedError(AgentTunixError):
    """A worker has ended by itself or was killed. Nothing of it is left.

    Attributes:
        how: Description for a person: `exited with status 7`.
        timed_out: True if it was killed for its silence.
        trace: Traceback of its code, if it was killed for its silence.
        all_died: True if all other workers of the pool died too.
        earlier: True if it had ended before it was sent this request.
    """

    code = "worker_died"

    def __init__(
        self, how: str, *, timed_out: bool = False, trace: str = "", all_died: bool = False, earlier: bool = False
    ) -> None:
        super().__init__(f"the worker process {how}")
        self.how = how
        self.timed_out = timed_out
        self.trace = trace
        self.all_died = all_died
        self.earlier = earlier


class Nursery(Protocol):
    """Interface of the process that forks workers, as its workers' owners use it."""

    def spawn(self, number: int, ends: tuple[int, int, int]) -> None:
        """Request a worker; `ends` are the descriptors of its connection, its output and the report of its end."""

    def kill(self, number: int, trace: bool = False) -> None:
        """Request the death of a worker; `trace` requests its traceback."""

    def clear(self) -> None:
        """Kill everything that this process left behind when it was killed."""


class Worker:
    """A worker of a pool.

    Args:
        number: Number by which the nursery knows it.
        log: Log of its output.
        reader: Converts the worker's bytes to replies.
        most_printed_bytes: Output between two replies beyond which the worker is killed; None for no limit.
    """

    def __init__(
        self, number: int, nursery: Nursery, log: OutputLog, reader: FrameReader, most_printed_bytes: int | None
    ) -> None:
        self.number = number
        self._nursery = nursery
        self._log = log
        self._reader = reader
        self._most_printed_bytes = most_printed_bytes
        self._unsent = bytearray()
        self._replies: collections.deque[Any] = collections.deque()
        self._broken = ""  # description of foreign data after the replies
        self._farewell = math.inf  # time until which a worker that closed its connection may end by itself
        self._death: WorkerDiedError | None = None
        self._turn = threading.RLock()
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        self._output, output = os.pipe()
        self._report, report = os.pipe()
        for descriptor in (self._output, self._report):
            os.set_blocking(descriptor, False)
        self._poll = select.poll()
        for descriptor in (self._socket.fileno(), self._output, self._report):
            self._poll.register(descriptor, select.POLLIN)
        nursery.spawn(number, (theirs.fileno(), output, report))
        theirs.close()
        os.close(output)
        os.close(report)

    @property
    def is_alive(self) -> bool:
        """True if it has not ended, even if nobody waited for that."""
        if self._death is not None:
            return False
        poll = select.poll()
        poll.register(self._report, select.POLLIN)
        return not poll.poll(0)

    def ask(self, request: object, limit_s: float) -> Any:
        """Return the one reply to a request. The time of other requests to the worker does not count.

        Raises:
            WorkerDiedError: As `send` and `receive`.
        """
        with self._turn:
            self.send(request)
            return self.receive(limit_s)

    def send(self, request: object) -> None:
        """Send a request. What the worker does not accept at once is sent while `receive` waits.

        Raises:
            WorkerDiedError: The worker has ended before, or sent something that nobody asked for and was killed.
        """
        if self._death is not None:
            raise WorkerDiedError(f"had ended before: it {self._death.how}", earlier=True)
        if self._replies:
            raise self.refuse(self._replies[0])
        self._unsent += pack(request)
        self._flush()

    def receive(self, limit_s: float) -> Any:
        """Return the next reply.

        Raises:
            WorkerDiedError: The worker ended, sent foreign data, printed too much or was silent for `limit_s` seconds,
                and was killed.
        """
        deadline = time.monotonic() + limit_s
        if limit_s <= 0 and not self._replies:
            raise self._end(timed_out=True)
        while not self._replies:
            if self._broken:
                raise self._end(f"wrote to the connection with the trainer ({self._broken})")
            self._wait(deadline)
        self._log.num_bytes = 0
        return self._replies.popleft()

    def refuse(self, reply: object) -> WorkerDiedError:
        """Kill the worker, which sent an unexpected reply, and return the error."""
        return self._end(f"wrote to the connection with the trainer (an unexpected reply: {str(reply)[:100]})")

    def kill(self, how: str) -> WorkerDiedError:
        """Kill the worker for a reason, and return the error."""
        return self._end(how)

    def close(self) -> None:
        """Kill the worker and everything that it started, unless it has ended."""
        self._end("was closed")

    def _wait(self, deadline: float) -> None:
        """Wait for an event and read what has arrived."""
        deadline = min(deadline, self._farewell)
        ready = self._ready(deadline)
        if self._output in ready:
            self._read_output()
            if self._most_printed_bytes is not None and self._log.num_bytes > self._most_printed_bytes:
                raise self._end(f"printed more than {self._most_printed_bytes:,} bytes")
        events = ready.get(self._socket.fileno(), 0)
        if events & select.POLLOUT:
            self._flush()
        if events & ~select.POLLOUT:
            self._read()
        elif self._report in ready:  # it has ended, and all that it sent is read
            raise self._end()
        if not self._replies and not self._broken and time.monotonic() >= deadline:
            has_left = self._farewell < math.inf
            raise self._end("closed its connection with the trainer" if has_left else "", timed_out=not has_left)

    def _ready(self, deadline: float) -> dict[int, int]:
        return dict(self._poll.poll(max(0, math.ceil(1000 * (deadline - time.monotonic())))))

    def _read(self) -> None:
        """Read what has arrived, at most `_READ_BYTES`, so that an endless worker cannot outlast the deadline."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # the worker has died, or its code closed the connection
            self._poll.unregister(self._socket)
            self._farewell = time.monotonic() + _FAREWELL_S
            return
        try:
            self._replies.extend(self._reader.feed(data))
        except Exception as error:  # code of others may write anything
            self._broken = str(error) or type(error).__name__

    def _flush(self) -> None:
        try:
            while self._unsent:
                with memoryview(self._unsent) as view:
                    sent = self._socket.send(view[:_WRITE_BYTES])
                del self._unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:  # the worker has died, as the next read shows
            self._unsent.clear()
        self._poll.modify(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))

    def _read_output(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if data := os.read(self._output, _READ_BYTES):
                self._log.write(data)
            else:
                self._poll.unregister(self._output)

    def _end(self, how: str = "", *, timed_out: bool = False) -> WorkerDiedError:
        """Kill the worker, and return the error. `how` is the reason; "" if the end has another one."""
        with self._turn:
            if self._death is None:
                self._death = self._bury(how, timed_out)
            return self._death

    def _bury(self, how: str, timed_out: bool) -> WorkerDiedError:
        """Have the nursery end the worker and all that it started, unless it has ended, and release everything."""
        self._nursery.kill(self.number, timed_out)
        deadline = time.monotonic() + _BURIAL_S
        if self._farewell == math.inf:
            self._poll.unregister(self._socket)
        end: Ended | None = None
        while end is None and time.monotonic() < deadline and (ready := self._ready(deadline)):
            if self._output in ready:
                self._read_output()
            if self._report in ready:
                report = os.read(self._report, _READ_BYTES)
                end = pickle.loads(report) if report else Ended("")  # empty if the nursery was killed
        self._socket.close()
        with contextlib.suppress(BlockingIOError):
            self._log.write(os.read(self._output, _READ_BYTES))
        self._log.close()
        os.close(self._output)
        os.close(self._report)
        if end is None or not end.how:
            self._nursery.clear()
            return WorkerDiedError(how or _NURSERY_DIED, all_died=True)
        if timed_out:
            how = "was silent for too long and was killed"
        return WorkerDiedError(how or end.how, timed_out=timed_out, trace=end.trace)
