"""Processes that run math-verify. The first question starts them, and a time limit kills them.

The processes are workers like those of users' rewards. An expression that takes forever, exhausts the memory or crashes
the interpreter costs only its own verdict. All runners of this process share the workers (`VERIFIERS`). They end when
the last `Runner` is closed, or else with this process. The next question starts them again.
"""

import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING

from agent_tunix.errors import RewardError
from agent_tunix.rewards.answers.thorough import Question, Ruling, Verdict, set_default_runner
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Outcome, Sample, Score

if TYPE_CHECKING:
    from agent_tunix.rewards.execution.local import LocalExecutor

logger = logging.getLogger("agent_tunix.rewards")

TIMEOUT_S = 3.0
MEMORY_MB = 2048
MOST_WORKERS = 2
# After this many timeouts, the remaining questions of a batch are not tried: they are likely hostile.
PATIENCE = 8
_ASKED_AT_ONCE = 16

_RECIPE = RewardRecipe(
    spec="agent_tunix.rewards.answers.verification.verify_reward",
    name="math-verify",
    # In this directory, no module of the user can shadow ours.
    working_directory=Path(__file__).parents[3],
)


class Verifiers:
    """Worker processes that rule on questions. Thread-safe.

    Args:
        timeout_s: Longest wall time of one question; a process that exceeds it is killed.
        memory_mb: Memory that a process may allocate in addition to the needs of math-verify itself.
    """

    def __init__(
        self, timeout_s: float = TIMEOUT_S, memory_mb: int = MEMORY_MB, most_workers: int = MOST_WORKERS
    ) -> None:
        self._timeout_s = timeout_s
        self._memory_mb = memory_mb
        self._most_workers = most_workers
        self._executor: LocalExecutor | None = None
        self._num_holders = 0
        self._lock = threading.Lock()

    def rule(self, questions: Sequence[Question]) -> list[Ruling]:
        """Return a ruling on each question, in order, as a `ThoroughRunner` does."""
        rulings: list[Ruling] = []
        while len(rulings) < len(questions):
            if sum(ruling.timed_out for ruling in rulings) >= PATIENCE:
                rulings += [_OUT_OF_PATIENCE] * (len(questions) - len(rulings))
            else:
                rulings += self._rule_few(questions[len(rulings) : len(rulings) + _ASKED_AT_ONCE])
        return rulings

    def begin(self) -> None:
        """Start a process without waiting for it, so that the first question is answered sooner."""
        from agent_tunix.rewards.execution.calls import Job

        easy = Sample("2*x", columns={"answer": "x*2"})
        with contextlib.suppress(RewardError, OSError):  # the first question will report the error
            self._started().submit(Job(_RECIPE, [easy], [(0,)]))

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
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.close()

    def forget(self) -> None:
        """Reset the state in a fork, which has no thread to serve the processes and does not own them."""
        self._lock = threading.Lock()
        self._executor = None
        self._num_holders = 0

    def _rule_few(self, questions: Sequence[Question]) -> list[Ruling]:
        from agent_tunix.rewards.execution.calls import Job

        samples = [Sample(question.answer, columns={"answer": question.reference}) for question in questions]
        calls = [(place,) for place in range(len(samples))]
        executor = None
        try:
            executor = self._started()
            scores = executor.submit(Job(_RECIPE, samples, calls)).result()
        except (RewardError, OSError, CancelledError) as error:  # no process could start, or all were closed
            self._drop(executor)
            logger.warning("the process for math-verify could not be started: %r", error)
            return [Ruling(Verdict.UNDECIDED, f"the process for math-verify could not be started: {error!r}")] * len(
                samples
            )
        return [self._ruling(score) for score in scores]

    def _started(self) -> "LocalExecutor":
        from agent_tunix.rewards.execution.local import LocalExecutor
        from agent_tunix.rewards.execution.settings import ExecutionSettings

        with self._lock:
            if self._executor is None:
                settings = ExecutionSettings(
                    "process", timeout_s=self._timeout_s, memory_mb=self._memory_mb, num_workers=self._most_workers
                )
                self._executor = LocalExecutor(settings)
            return self._executor

    def _drop(self, failed: "LocalExecutor | None") -> None:
        """Close processes that failed, so that the next question starts new ones."""
        if failed is None:
            return
        with self._lock:
            if self._executor is failed:
                self._executor = None
        failed.close()

    def _ruling(self, score: Score) -> Ruling:
        if score.outcome is Outcome.SCORED:
            return Ruling(Verdict.EQUAL if score.value else Verdict.DIFFERENT)
        if score.outcome is Outcome.TIMEOUT:
            return Ruling(Verdict.UNDECIDED, f"math-verify took longer than {self._timeout_s:g} s", timed_out=True)
        return Ruling(Verdict.UNDECIDED, f"math-verify failed: {score.detail}")


_OUT_OF_PATIENCE = Ruling(
    Verdict.UNDECIDED, f"not tried, because math-verify timed out on {PATIENCE} others of the batch"
)

VERIFIERS = Verifiers()
set_default_runner(VERIFIERS.rule)

atexit.register(VERIFIERS.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=VERIFIERS.forget)
