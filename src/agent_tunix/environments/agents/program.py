"""Worker for agents: a process that builds one agent and runs rollouts of it.

Requests are `("build", recipe)` and `("run", runs, timeout_s)`. The reply to the first is `("ok", is_shared)`. Each run
gets a reply of its own as soon as it ends: `("ended", number, "ok", score)` or `("ended", number, outcome, message)`.
The last reply is `("done", why_tired)`.

A run of a function that makes its own client has the process, and its variables `OPENAI_BASE_URL` and `OPENAI_API_KEY`,
for itself. Runs of an async function that takes a client share an event loop.
"""

import asyncio
import contextlib
import copy
import os
import random
from collections.abc import Coroutine, Sequence
from typing import Any

from agent_tunix.environments.agents.commands import AgentFault, end_children, run_command, variables
from agent_tunix.environments.agents.recipe import Agent, AgentRecipe, load_agent
from agent_tunix.environments.agents.results import read_result
from agent_tunix.errors import AgentTunixError
from agent_tunix.execution.workers import linux
from agent_tunix.execution.workers.process import WorkerProcess
from agent_tunix.rewards import sources
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.sample import Outcome, Score
from agent_tunix.rewards.score_data import pack
from agent_tunix.rewards.shims import served_imports

# Open files and connections that runs may leave behind before the worker is replaced.
_MOST_DESCRIPTORS = 64

# (number, row, base URL, key, seed, scratch directory)
Run = tuple[int, dict[str, Any], str, str, int, str]


class AgentProgram:
    """Program of a worker with one agent."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._recipe = AgentRecipe()
        self._agent: Agent | None = None
        self._clients = _Clients()
        self._loop: asyncio.Runner | None = None
        self._spared: list[int] = []  # processes that loading has started, such as a server of tools
        self._num_runs = 0
        self._num_descriptors = 0

    def answer(self, request: Any) -> None:
        """Carry out one request and reply."""
        method, *arguments = request
        if method == "run":
            self._run(*arguments)
            return
        try:
            with self._process.loading():
                self._build(*arguments)
        except AgentTunixError as error:
            self._process.send("fault", str(error))
        except BaseException as error:  # a user's code may raise anything
            self._process.send("fault", describe_fault(error))
        else:
            self._process.send("ok", self._agent is not None and self._agent.is_shared)
        self._process.restore()

    def _build(self, recipe: AgentRecipe) -> None:
        sources.use(recipe.sources)
        self._recipe = recipe
        self._agent = None if recipe.command else load_agent(recipe)
        self._spared = linux.children_of(os.getpid()) if linux.has_children() else []
        self._num_descriptors = _num_descriptors()

    def _run(self, runs: Sequence[Run], timeout_s: float) -> None:
        if self._agent is not None and self._agent.is_shared:
            self._await(self._all(self._agent, runs, timeout_s))
        else:
            for run in runs:
                try:
                    ending = _result(self._alone(run, timeout_s))
                except BaseException as error:  # a user's code may raise anything
                    ending = self._fault(error)
                end_children(self._spared)
                self._process.repair()
                self._process.send("ended", run[0], *ending)
        self._num_runs += len(runs)
        end_children(self._spared)
        self._process.restore()
        is_leaking = _num_descriptors() - self._num_descriptors > _MOST_DESCRIPTORS
        why_tired = "connections or files stayed open" if is_leaking else self._process.why_tired(self._num_runs)
        self._process.send("done", why_tired)

    def _alone(self, run: Run, timeout_s: float) -> Score | None:
        """Make one run, which has this process for itself."""
        _, row, base_url, key, seed, scratch = run
        if self._agent is None:
            return run_command(
                self._recipe.command, row, variables(base_url, key), scratch=scratch, timeout_s=timeout_s
            )
        agent, before = self._agent, dict(os.environ)
        random.seed(seed)
        try:
            if not agent.takes_client:  # its own clients find the policy; those of others, such as judges, do not
                os.environ.update(variables(base_url, key))
            arguments = (row, self._clients.sync(base_url, key)) if agent.takes_client else (row,)
            with served_imports():
                returned = agent.function(*arguments)
                return read_result(self._await(returned) if agent.is_async else returned)
        finally:
            os.environ.clear()
            os.environ.update(before)

    async def _all(self, agent: Agent, runs: Sequence[Run], timeout_s: float) -> None:
        """Make several runs at once."""

        async def one(run: Run) -> None:
            number, row, base_url, key, _, _ = run
            try:
                async with asyncio.timeout(timeout_s) as limit:
                    own_row = copy.deepcopy(row)  # the rollouts of a row arrive with the same lists and dicts
                    returned = await agent.function(own_row, self._clients.for_loop(base_url, key))
                    ending = _result(read_result(returned))
            except BaseException as error:
                late = limit.expired() and isinstance(error, TimeoutError)
                fault = AgentFault("timeout", f"the agent took longer than {timeout_s:g} s") if late else error
                ending = self._fault(fault)
            self._process.send("ended", number, *ending)

        with served_imports():
            await asyncio.gather(*map(one, runs))

    def _fault(self, error: BaseException) -> tuple[str, Any]:
        """Return the kind of a fault and its message."""
        if isinstance(error, AgentFault):
            return error.outcome, str(error)
        return "error", f"the agent failed: {describe_fault(error, None if self._agent is None else self._agent.file)}"

    def _await(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of a coroutine, and cancel what it left behind. The loop stays, and so do its connections.

        Raises:
            BaseException: Whatever the coroutine raised.
        """
        if self._loop is None:
            self._loop = asyncio.Runner()
        try:
            return self._loop.run(coroutine)
        finally:
            self._loop.run(_cancel_others())


class FunctionProgram(AgentProgram):
    """Program of a worker with an agent that is a function."""

    @staticmethod
    def prepare() -> None:
        """Load what most agents use in the process from which all workers are forked, by a call that fails at once."""
        with contextlib.suppress(ImportError):
            import openai

            with contextlib.suppress(openai.APIConnectionError):
                client = _Clients().sync("http://127.0.0.1:1", "none").with_options(max_retries=0)
                client.chat.completions.create(model="policy", messages=[])


class _Clients:
    """Clients of OpenAI's API, whose connections serve one run after another. The server is near: no proxy, no TLS."""

    def __init__(self) -> None:
        self._sync: Any = None
        self._async: Any = None

    def sync(self, base_url: str, key: str) -> Any:
        """Return an `openai.OpenAI`."""
        import openai

        self._sync = self._sync or openai.DefaultHttpxClient(trust_env=False, verify=False)
        return openai.OpenAI(base_url=base_url, api_key=key, http_client=self._sync)

    def for_loop(self, base_url: str, key: str) -> Any:
        """Return an `openai.AsyncOpenAI` for the loop of this process."""
        import openai

        self._async = self._async or openai.DefaultAsyncHttpxClient(trust_env=False, verify=False)
        return openai.AsyncOpenAI(base_url=base_url, api_key=key, http_client=self._async)


def _result(score: Score | None) -> tuple[str, Any]:
    """Return `ok` and a packed score, or the fault of what an agent returned."""
    if score is not None and score.outcome is Outcome.ERROR:
        return "invalid_result", f"the agent {score.detail}"
    return "ok", None if score is None else pack(score)


def _num_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
