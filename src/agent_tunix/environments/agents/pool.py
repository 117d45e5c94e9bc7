"""The host's side of agents: processes that run rollouts, and what became of each.

A worker runs one rollout at a time, or a group of them if the agent is an async function that takes a client. A rollout
that takes too long kills its worker, unless it can be cancelled there.
"""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_tunix.closing import Closing
from agent_tunix.environments.agents.commands import MOST_PRINTED_BYTES
from agent_tunix.environments.agents.program import AgentProgram, FunctionProgram
from agent_tunix.environments.agents.recipe import AgentRecipe, check_agent
from agent_tunix.environments.resolve import sendable
from agent_tunix.errors import InvalidEnvironmentError
from agent_tunix.execution.workers.limits import WorkerLimits
from agent_tunix.execution.workers.pool import WorkerPool
from agent_tunix.execution.workers.worker import Worker, WorkerDiedError
from agent_tunix.rewards.execution.settings import usable_cores
from agent_tunix.rewards.execution.tasks import last_frame
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Outcome, Score
from agent_tunix.rewards.score_data import from_data
from agent_tunix.visible_text import one_line

# Loading an agent may import large packages, in several processes at once.
_BUILD_S = 300.0
# Time that a worker has to cancel a rollout itself.
_GRACE_S = 5.0
_RECYCLE_AFTER = 10_000


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """Limits of the agents of a run.

    Attributes:
        timeout_s: Wall time of one rollout, the time in which its calls wait included.
        memory_mb: Memory of a worker, beyond what it takes to load the agent.
        max_concurrency: Rollouts that run at once.
    """

    timeout_s: float = 600.0
    memory_mb: int = 2048
    max_concurrency: int = 32


@dataclass(frozen=True, slots=True)
class AgentRun:
    """One rollout to run: its row, the server's base URL, the rollout's key, and the seed of `random`."""

    row: Mapping[str, Any]
    base_url: str
    key: str
    seed: int = 0


@dataclass(frozen=True, slots=True)
class AgentOutcome:
    """Outcome of a rollout.

    Attributes:
        kind: `ok`, or the fault: `error` (it raised), `timeout`, `exited` (its process ended), `flooded` (it printed
            too much) or `invalid_result`.
        score: Its score; None if it returned none, or failed.
        message: Description of the fault; "" without one.
        seconds: Wall time.
    """

    kind: str = "ok"
    score: Score | None = None
    message: str = ""
    seconds: float = 0.0


OnEnd = Callable[[int, AgentOutcome], None]


class AgentPool(Closing):
    """Processes that run the agents of a run. Several threads may call `run`.

    Args:
        recipe: The agent, from `sendable`.
        limits: Limits.
        is_shared: True if a worker runs a group of rollouts at once; see `Agent.is_shared`.
        program: Program of the workers of a function, which loads in advance what all of them need.

    Attributes:
        resources: What ends with the agents, after their processes have ended.
    """

    def __init__(
        self,
        recipe: AgentRecipe,
        limits: AgentLimits,
        *,
        is_shared: bool = False,
        program: type[AgentProgram] = FunctionProgram,
    ) -> None:
        self.recipe = recipe
        self.limits = limits
        self.is_shared = is_shared
        self.resources = contextlib.ExitStack()
        self._pool = WorkerPool(
            AgentProgram if recipe.command else program,
            "agent worker",
            WorkerLimits(limits.memory_mb * 2**20, _RECYCLE_AFTER),
            most_printed_bytes=MOST_PRINTED_BYTES,
        )

    @property
    def num_workers(self) -> int:
        """Number of workers that run at once: one for each core, if rollouts share them."""
        most = self.limits.max_concurrency
        return min(usable_cores(), most) if self.is_shared else most

    def group_size(self, num_runs: int) -> int:
        """Return the number of rollouts to give to a worker at once, out of so many."""
        if not self.is_shared:
            return 1
        return max(1, min(-(-num_runs // self.num_workers), self.limits.max_concurrency // self.num_workers))

    def run(self, runs: Sequence[AgentRun], on_end: OnEnd) -> None:
        """Run rollouts in one worker, and call `on_end` with the number of each as soon as it has ended.

        A fault of an agent is an outcome.

        Raises:
            InvalidEnvironmentError: The agent cannot be loaded in a worker.
            WorkersFailedError: No worker could be started for several times.
        """
        started = time.monotonic()
        scratch = [tempfile.mkdtemp(prefix="agent-tunix-agent-") if self.recipe.command else "" for _ in runs]
        waiting = dict.fromkeys(range(len(runs)))

        def end(number: int, outcome: AgentOutcome) -> None:
            del waiting[number]
            on_end(number, outcome)

        requests = [
            (number, dict(run.row), run.base_url, run.key, run.seed, directory)
            for number, (run, directory) in enumerate(zip(runs, scratch, strict=True))
        ]
        try:
            worker = self._worker()
            worker.send(("run", requests, self.limits.timeout_s))
            self._receive(worker, end, len(runs))
        except WorkerDiedError as death:  # nothing of it is left
            outcome = self._of_death(death, time.monotonic() - started)
            for number in list(waiting):
                end(number, outcome)
        finally:
            for directory in filter(None, scratch):
                shutil.rmtree(directory, ignore_errors=True)

    def close(self) -> None:
        """End all workers. Rollouts that run end with the outcome `exited`."""
        self._pool.close()
        self.resources.close()

    def _receive(self, worker: Worker, end: OnEnd, num_runs: int) -> None:
        """Read the replies of a worker until it is done, and keep it for further runs unless it is tired."""
        started = time.monotonic()
        # Only a function that has its worker for itself cannot be ended there.
        grace_s = _GRACE_S if self.is_shared or self.recipe.command else 0.0
        deadline = started + (1 if self.is_shared else num_runs) * (self.limits.timeout_s + grace_s)
        while True:
            match worker.receive(max(deadline - time.monotonic(), 0.001)):
                case ("ended", int(number), "ok", score):
                    outcome = AgentOutcome(score=None if score is None else from_data(score))
                    end(number, _timed(outcome, started))
                case ("ended", int(number), str(kind), str(message)):
                    end(number, _timed(AgentOutcome(kind, None, one_line(message)), started))
                case ("done", str(why_tired)):
                    self._pool.forgive()
                    if why_tired:
                        worker.close()
                    else:
                        self._pool.keep(worker)
                    return
                case reply:
                    raise worker.refuse(reply)

    def _worker(self) -> Worker:
        """Return a worker with the agent: an idle one, or a new one."""
        if (idle := self._pool.idle_worker()) is not None:
            return idle
        worker = self._pool.start()
        try:
            reply = worker.ask(("build", self.recipe), _BUILD_S)
        except WorkerDiedError as death:
            reply = ("fault", f"its process {death.how}")
        if reply[0] != "ok":
            worker.close()
            raise InvalidEnvironmentError(
                f"the agent {self.recipe.text} cannot be loaded in a worker: {reply[1]}", code="agent_failed"
            )
        return worker

    def _of_death(self, death: WorkerDiedError, seconds: float) -> AgentOutcome:
        if death.timed_out:
            where = last_frame(death.trace, RewardRecipe(self.recipe.text, self.recipe.text))
            message = f"the agent took longer than {self.limits.timeout_s:g} s{where}"
            return AgentOutcome("timeout", None, message, seconds)
        kind = "flooded" if "printed more than" in death.how else "exited"
        return AgentOutcome(kind, None, f"the agent's process {death.how}", seconds)


def open_agents(recipe: AgentRecipe, limits: AgentLimits) -> AgentPool:
    """Return the workers of an agent, which is loaded in this process too.

    Raises:
        UnknownEnvironmentError, InvalidEnvironmentError: See `check_agent` and `sendable`.
    """
    agent = check_agent(recipe)
    return AgentPool(sendable(recipe), limits, is_shared=agent is not None and agent.is_shared)


def _timed(outcome: AgentOutcome, started: float) -> AgentOutcome:
    return AgentOutcome(outcome.kind, outcome.score, outcome.message, time.monotonic() - started)


def failed_score(outcome: AgentOutcome) -> Score:
    """Return the score of a rollout that failed, which has no value."""
    return Score.failed(Outcome.TIMEOUT if outcome.kind == "timeout" else Outcome.ERROR, outcome.message)
