"""The trainer's side of the nursery: start, requests, reports and clean-up."""

import contextlib
import os
import pickle
import selectors
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from agent_tunix.execution.isolation import module_directories, scratch
from agent_tunix.execution.workers import linux, nursery
from agent_tunix.execution.workers.limits import Isolation, WorkerLimits
from agent_tunix.execution.workers.output import OutputLimit, OutputLog, OutputPipe
from agent_tunix.execution.workers.variables import isolated_environment, worker_environment

BOOT = (
    "import sys; sys.path.insert(0, sys.argv[2]); from agent_tunix.execution.workers import nursery;"
    " from {program} import main; nursery.main(int(sys.argv[1]), main)"
)
_PACKAGE_ROOT = str(Path(__file__).parents[3])
_CLOSE_S = 15.0
_MOST_SWEEPS = 100


class NurseryClient:
    """Client of one nursery process.

    Its owner waits on `selector` and calls the data of its entries with the events.

    Args:
        program: Module of the workers; its `main` is a `WorkerMain`.
        limits: Limits of each worker.
        isolation: Rights of each worker; None for workers with the rights of this process.
        selector: Selector of the owner.
        listen: Called when there may be something to `hear`.
        output_limit: Limit on the logged output of the nursery and its workers.
    """

    def __init__(
        self,
        program: str,
        limits: WorkerLimits,
        isolation: Isolation | None,
        selector: selectors.BaseSelector,
        listen: Callable[[], None],
        output_limit: OutputLimit,
    ) -> None:
        self._selector = selector
        self._mark = f"AGENT_TUNIX_WORKERS={os.getpid()}-{uuid.uuid4().hex}"
        self._is_open = True
        self._isolation = isolation
        environment = (worker_environment if self._isolation is None else isolated_environment)(os.environ)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._output = OutputPipe(OutputLog("nursery", output_limit), selector)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT.format(program=program), str(theirs.fileno()), _PACKAGE_ROOT],
                stdin=subprocess.DEVNULL,
                stdout=self._output.remote_end,
                stderr=self._output.remote_end,
                env=environment | dict([self._mark.split("=")]),
                cwd=None if self._isolation is None else self._isolation.scratch,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        os.close(self._output.remote_end)
        selector.register(self._control, selectors.EVENT_READ, lambda _: listen())
        path = [entry for entry in sys.path if entry]
        if self._isolation is not None:
            path = module_directories(path)
        self._ask(nursery.Begin(path, limits, self._isolation))

    def spawn(self, number: int, ends: Sequence[int]) -> None:
        """Request a worker with a number; `ends` are the descriptors of its connection and its output."""
        self._ask(nursery.Spawn(number), ends)

    def kill(self, number: int, trace: bool = False) -> None:
        """Request the death of a worker; `trace` requests its traceback."""
        self._ask(nursery.Kill(number, trace))

    def hear(self) -> nursery.Ended | None:
        """Return the report of a worker's end; None if the nursery itself has ended."""
        try:
            data = self._control.recv(nursery.LARGEST_MESSAGE_BYTES)
        except ConnectionResetError:
            data = b""
        return nursery.unpack(data) if data else None

    def close(self) -> None:
        """End the nursery and every worker."""
        if not self._is_open:
            return
        self._is_open = False
        self._selector.unregister(self._control)
        self._control.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self.sweep()
        self._output.close()
        if self._isolation is not None and os.path.isdir(self._isolation.scratch):  # the nursery was killed
            scratch.remove(self._isolation.scratch)

    def sweep(self) -> None:
        """Kill workers and descendants of a nursery that was killed."""
        for _ in range(_MOST_SWEEPS):
            left = linux.marked_processes(self._mark)
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _ask(self, request: object, descriptors: Sequence[int] = ()) -> None:
        if self._is_open:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # `hear` reports its end
                socket.send_fds(self._control, [pickle.dumps(request)], descriptors)
