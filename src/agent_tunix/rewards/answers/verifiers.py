"""Processes that run math-verify. The first question starts them, and a time limit kills them.

An expression that takes forever, exhausts the memory or crashes the interpreter costs only its own verdict. All runners
of this process share the workers (`VERIFIERS`). They end when the last `Runner` is closed, or else with this process.
The next question starts them again.
"""

import atexit
import logging
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agent_tunix.execution.workers.limits import WorkerLimits
from agent_tunix.execution.workers.pool import WorkerPool, WorkersFailedError
from agent_tunix.execution.workers.process import WorkerProcess
from agent_tunix.execution.workers.worker import WorkerDiedError
from agent_tunix.rewards.answers.thorough import Question, Ruling, Verdict, set_default_runner, verify_here

logger = logging.getLogger("agent_tunix.rewards")

TIMEOUT_S = 3.0
MEMORY_MB = 2048
MOST_WORKERS = 2
# After this many timeouts, the remaining questions of a batch are not tried: they are likely hostile.
PATIENCE = 8
_ASKED_AT_ONCE = 16
_RECYCLE_AFTER = 10_000
_EASY = Question("x + \\frac{1}{2}", "\\frac{1}{2} + x")


class VerifierProgram:
    """Program of a worker that rules on questions."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._num_rulings = 0
        with process.loading():
            verify_here([_EASY])  # the first comparison imports math-verify and builds its grammar, which takes time

    def answer(self, request: Any) -> None:
        """Send the ruling on a question; end this process if it has grown too much."""
        (ruling,) = verify_here([Question(*request)])
        self._process.restore()
        self._process.send(ruling.verdict.value, ruling.reason)
        self._num_rulings += 1
        if self._process.why_tired(self._num_rulings):
            os._exit(0)


class Verifiers:
    """Worker processes that rule on questions. Thread-safe.

    Args:
        timeout_s: Longest wall time of one question; a process that exceeds it is killed.
        memory_mb: Memory that a process may allocate in addition to the needs of math-verify itself.
    """

    _lock: threading.Lock
    _pool: WorkerPool | None
    _threads: ThreadPoolExecutor | None

    def __init__(
        self, timeout_s: float = TIMEOUT_S, memory_mb: int = MEMORY_MB, most_workers: int = MOST_WORKERS
    ) -> None:
        self._timeout_s = timeout_s
        self._memory_mb = memory_mb
        self._most_workers = most_workers
        self.forget()

    def rule(self, questions: Sequence[Question]) -> list[Ruling]:
        """Return a ruling on each question, in order, as a `ThoroughRunner` does."""
        rulings: list[Ruling] = []
        while len(rulings) < len(questions):
            if sum(ruling.timed_out for ruling in rulings) >= PATIENCE:
                rulings += [_OUT_OF_PATIENCE] * (len(questions) - len(rulings))
            else:
                asked = questions[len(rulings) : len(rulings) + _ASKED_AT_ONCE]
                threads = self._started()
                futures = [threads.submit(self._rule_one, one) for one in asked]
                try:
                    rulings += [future.result() for future in futures]
                except KeyboardInterrupt:  # the interpreter would not end before the last question is answered
                    for future in futures:
                        future.cancel()
                    self.close()
                    raise
        return rulings

    def begin(self) -> None:
        """Start a process without waiting for it, so that the first question is answered sooner."""
        self._started().submit(self._rule_one, _EASY)

    def hold(self) -> None:
        """Keep the processes running until each holder has called `release`."""
        with self._lock:
            self._num_holders += 1

    def release(self) -> None:
        """End the processes, unless others hold them."""
        with self._lock:
            self._num_holders -= 1
            is_last = self._num_holders <= 0
        if is_last:
            self.close()

    def close(self) -> None:
        """End the processes; the next question starts new ones."""
        with self._lock:
            pool, self._pool, threads, self._threads = self._pool, None, self._threads, None
        if pool is not None and threads is not None:
            pool.close()
            threads.shutdown()
            pool.close()  # a worker may have become idle meanwhile

    def forget(self) -> None:
        """Set the initial state, also in a fork, which does not own the processes and has no thread to ask them."""
        self._lock = threading.Lock()
        self._pool = self._threads = None
        self._num_holders = 0

    def _started(self) -> ThreadPoolExecutor:
        """Return the threads that ask the processes."""
        with self._lock:
            if self._pool is None or self._threads is None:
                limits = WorkerLimits(self._memory_mb * 2**20, _RECYCLE_AFTER)
                self._pool = WorkerPool(VerifierProgram, "math-verify worker", limits)
                self._threads = ThreadPoolExecutor(self._most_workers, "math-verify")
            return self._threads

    def _rule_one(self, question: Question) -> Ruling:
        with self._lock:
            pool = self._pool
        try:
            if pool is None:
                raise WorkersFailedError("the processes are closed")
            verdict, reason = pool.ask(tuple(question), self._timeout_s)
            return Ruling(Verdict(verdict), str(reason))
        except WorkerDiedError as death:
            if death.timed_out:
                text = f"math-verify took longer than {self._timeout_s:g} s"
                return Ruling(Verdict.UNDECIDED, text, timed_out=True)
            return Ruling(Verdict.UNDECIDED, f"math-verify failed: {death}")
        except (WorkersFailedError, OSError) as error:
            logger.warning("the process for math-verify could not be started: %r", error)
            return Ruling(Verdict.UNDECIDED, f"the process for math-verify could not be started: {error!r}")


_OUT_OF_PATIENCE = Ruling(
    Verdict.UNDECIDED, f"not tried, because math-verify timed out on {PATIENCE} others of the batch"
)

VERIFIERS = Verifiers()
set_default_runner(VERIFIERS.rule)

atexit.register(VERIFIERS.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=VERIFIERS.forget)
