"""A process for each tracker whose client would otherwise work in that of the run.

The clients of trackers replace output streams, signal handlers and functions of other libraries, log the code of the
program that imports them, and may wait for their service for ever, also in hooks at its exit. In a process of its own,
a client can do nothing of this to the run, which ends the process when its time is over.
"""

import contextlib
import importlib.metadata
import os
import pickle
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from agent_tunix.errors import ConfigError
from agent_tunix.tracking.metrics_file import to_plain
from agent_tunix.tracking.samples import ShownSample
from agent_tunix.tracking.trackers.protocol import TrackedRun, Tracker

OPEN_TIMEOUT_S, SEND_TIMEOUT_S, CLOSE_TIMEOUT_S = 120.0, 10.0, 60.0


class TrackerProcess:
    """A tracker in a process of its own, which takes calls without making the run wait.

    Args:
        point: Names the tracker.
        run: The run, given to the tracker.

    Attributes:
        id: The `Tracker.id` of the tracker.
        url: The `Tracker.url` of the tracker.

    Raises:
        ConfigError: The tracker cannot be opened.
    """

    def __init__(self, point: importlib.metadata.EntryPoint, run: TrackedRun) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs, (run.directory / f"{point.name}_tracker.log").open("ab") as log:
            # Its own session: Ctrl-C must reach only the run, which records its last steps before it ends.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from {__name__} import serve; serve({theirs.fileno()})"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._replies: BinaryIO = self._socket.makefile("rb")
        try:
            self._send((point, run, sys.argv))
            self.id, self.url = self._receive(OPEN_TIMEOUT_S)
        except OSError as error:
            raise ConfigError(f"{error}; its output is in {log.name}", code="tracker_failed") from error
        except BaseException:  # Ctrl-C while a service does not answer
            self._kill()
            raise

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Send the metrics of a step to the process."""
        self._send(("log", step, to_plain(metrics)))

    def log_samples(self, step: int, samples: Sequence[ShownSample]) -> None:
        """Send some completions of a step to the process."""
        self._send(("log_samples", step, samples))

    def flush(self) -> None:
        """Send what was logged to the process, which outlives this one until it has closed the tracker."""
        self._send(("flush",))

    def close(self, failed: bool = False) -> None:
        """Close the tracker and end its process, after at most a minute."""
        self._send(("close", failed))
        self._receive(CLOSE_TIMEOUT_S)
        with contextlib.suppress(subprocess.TimeoutExpired):  # everything is sent; hooks at the exit may hang
            self._process.wait(SEND_TIMEOUT_S)
        self._kill()

    def _send(self, message: object) -> None:
        """Send a message, unless the tracker has failed."""
        if select.select([self._socket], [], [], 0)[0]:
            self._receive(SEND_TIMEOUT_S)
        self._socket.settimeout(SEND_TIMEOUT_S)
        try:
            self._socket.sendall(pickle.dumps(message))
        except OSError:
            self._kill()
            raise

    def _receive(self, timeout_s: float) -> Any:
        """Return the next reply.

        Raises:
            OSError: The tracker has failed, or did not answer in time.
        """
        self._socket.settimeout(timeout_s)
        try:
            fault, reply = pickle.load(self._replies)
        except TimeoutError:
            fault = f"no answer within {timeout_s:g} s"
        except (EOFError, OSError):
            fault = "its process has ended"
        if fault is not None:
            self._kill()
            raise ConnectionError(fault)
        return reply

    def _kill(self) -> None:
        self._replies.close()
        self._socket.close()
        self._process.kill()
        self._process.wait()


def serve(descriptor: int) -> None:
    """Open the tracker that the run names, and pass on the run's calls until it closes the tracker, or dies."""
    for number in (signal.SIGINT, signal.SIGTERM):  # as the end of the run is the run's matter
        signal.signal(number, lambda *_: None)
    stream = socket.socket(fileno=descriptor).makefile("rwb")

    def reply(fault: BaseException | None, value: object = None) -> None:
        reason = None if fault is None else f"{type(fault).__name__}: {str(fault).strip()[:500]}"
        stream.write(pickle.dumps((reason, value)))
        stream.flush()

    try:
        point, run, sys.argv = pickle.load(stream)
        calls: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        threading.Thread(target=_read, args=(stream, calls), daemon=True).start()
        tracker: Tracker = point.load()(run)  # may wait for its service; the thread ends the process without the run
        reply(None, (tracker.id, tracker.url))
        name = ""
        while name != "close":
            name, *arguments = calls.get()
            getattr(tracker, name)(*arguments)
        reply(None)
    except BaseException as error:  # a client may raise anything
        reply(error)
        raise


def _read(stream: BinaryIO, calls: "queue.SimpleQueue[tuple[Any, ...]]") -> None:
    """Take the run's calls from the socket at once, so that the run never waits for a slow service."""
    try:
        while True:
            calls.put(call := pickle.load(stream))
            if call[0] == "close":
                return
    except (EOFError, OSError):  # the run was killed
        calls.put(("close", True))
        threading.Timer(CLOSE_TIMEOUT_S, os._exit, [1]).start()
