"""Environments of `verifiers.v1`: a taskset whose tasks score the traces of an agent."""

import contextlib
import hashlib
import itertools
import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any

import verifiers.v1
from verifiers.v1.runtimes.subprocess import SubprocessRuntime

from agent_tunix.environments.verifiers import chat
from agent_tunix.environments.verifiers.installed import InstalledEnvironment, Rows
from agent_tunix.errors import EnvironmentFailedError, InvalidEnvironmentError
from agent_tunix.rewards.sample import Score

# Column with the task as verifiers writes it.
TASK_COLUMN = "verifiers_task"
# verifiers finds a harness by the name of a module.
_CHAT = "agent_tunix_chat"


class TasksetEnvironment(InstalledEnvironment):
    """A taskset and the agent that plays it.

    The agent is the taskset's own harness. A taskset without one gets a conversation with the tools of the taskset in
    this process, on this machine.

    Args:
        name: Name of its package.
        args: Its configuration: keys of the environment (`agent`, `timeout`, `id`, …), and those of the taskset.

    Raises:
        InvalidEnvironmentError: Several agents play it with the policy.
    """

    def __init__(self, name: str, args: Mapping[str, Any]) -> None:
        self._name = name
        self._numbers = itertools.count()
        self._shared = contextlib.AsyncExitStack()
        sys.modules[_CHAT] = chat
        if shutil.which("uv") is None:
            SubprocessRuntime.prepare_uv_script = _prepare_script
        self._environment: Any = verifiers.v1.load_environment(_configuration(name, args))
        roles = _roles(self._environment.config)
        playing = [role for role, agent in roles.items() if agent.client is None]
        if len(playing) > 1:
            raise InvalidEnvironmentError(
                f"verifiers:{name} has several agents that would be the policy, each with its own reward, which is not "
                f"supported: {', '.join(playing)}; give all but one an endpoint of their own, such as "
                f"environment.args.{playing[-1]}.client.base_url",
                code="unsupported_library",
            )

    def rows(self, limit: int) -> Rows:
        """Return the tasks, of an endless taskset the first ones."""
        taskset = self._environment.taskset
        tasks = itertools.islice(taskset, limit if taskset.INFINITE else None)
        return [_columns(task) for task in tasks], []

    async def open(self) -> None:
        """Start the servers of tools, and the one that sees the agent's requests. They end with this process."""
        await self._shared.enter_async_context(self._environment.serving())

    async def rollout(self, row: Mapping[str, Any], base_url: str, key: str) -> Score:
        """Run and score one rollout."""
        kind = type(self._environment.taskset).task_type()
        task = kind(kind.data_type().model_validate(row[TASK_COLUMN]), self._environment.config.taskset.task)
        variable = f"AGENT_TUNIX_ROLLOUT_{next(self._numbers)}"  # verifiers takes a key from the environment
        os.environ[variable] = key
        try:
            context = verifiers.v1.ModelContext(
                client=verifiers.v1.EvalClientConfig(base_url=base_url, api_key_var=variable),
                model="policy",
                sampling=verifiers.v1.SamplingConfig(),
            )
            episode = await self._environment.run_episode(task, context)
        finally:
            os.environ.pop(variable, None)
        return self._score(episode)

    def _score(self, episode: Any) -> Score:
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        if not episode.ok:
            text = f"{errors[-1].type}: {errors[-1].message}" if errors else "it did not end"
            raise EnvironmentFailedError(f"verifiers:{self._name}: {text}")
        rewards = {name: reward for trace in episode.traces for name, reward in trace.rewards.items()}
        if missing := [name for name, reward in rewards.items() if reward is None]:
            raise EnvironmentFailedError(
                f"verifiers:{self._name}: {', '.join(missing)} took longer than the timeout of scoring",
                code="environment_timeout",
            )
        metrics = {name: value for trace in episode.traces for name, value in trace.metrics.items()}
        scores = {name: float(value) for name, value in metrics.items() if value is not None}
        scores |= {name: float(reward.score) for name, reward in rewards.items()}
        return Score(float(sum(trace.reward for trace in episode.traces)), scores)


def _configuration(name: str, args: Mapping[str, Any]) -> Any:
    """Return the configuration of an environment of `verifiers.v1`."""
    kind = verifiers.v1.env_config_type(name, str(args.get("id", "")))
    own = {key: value for key, value in args.items() if key in kind.model_fields and key != "taskset"}
    taskset = {key: value for key, value in args.items() if key not in own and key != "taskset"}
    config: dict[str, Any] = {**own, "taskset": {"id": name, **args.get("taskset", {}), **taskset}}
    for role, agent in _roles(kind(taskset={"id": name})).items():
        given = config[role] = dict(config.get(role, {}))
        if "runtime" not in given and "runtime" not in agent.model_fields_set:
            given["runtime"] = {"type": "subprocess"}
        if "harness" not in given and agent.harness is None and verifiers.v1.default_harness_id(name) == "bash":
            given["harness"] = {"id": _CHAT}
    return kind.model_validate(config)


def _roles(config: Any) -> dict[str, Any]:
    """Return the agents of a configuration by name."""
    return {name: value for name, value in config if isinstance(value, verifiers.v1.AgentConfig)}


def _columns(task: Any) -> dict[str, Any]:
    """Return a task as a row: its own fields, its prompt as messages, and the whole as verifiers writes it."""
    data = task.data.model_dump(mode="json")
    own = {key: value for key, value in data.items() if key not in verifiers.v1.TaskData.model_fields}
    # Without a prompt the environment begins the conversation.
    prompt = data["prompt"] or data["description"] or data["name"] or f"task {data['idx']}"
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    if data["system_prompt"]:
        messages.insert(0, {"role": "system", "content": data["system_prompt"]})
    return {**own, "prompt": messages, TASK_COLUMN: data}


async def _prepare_script(
    runtime: Any, script: str | bytes, env: Mapping[str, str] | None = None, *, activate: bool = True
) -> list[str]:
    """Return the command of a script for `uv` without it: this interpreter, which has what verifiers requires."""
    data = script.encode() if isinstance(script, str) else script
    path = f"{runtime.workdir}/{hashlib.sha256(data).hexdigest()}.py"
    await runtime.write(path, data)
    return [sys.executable, path]
