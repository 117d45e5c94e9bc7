"""Convention `benchmax`: a `BaseEnv`, one object for all episodes, which tells them apart by `rollout_id`.

| member | use |
| --- | --- |
| `dataset_preprocess(row)` | makes the prompt, the task and the arguments of `init_rollout` |
| `system_prompt` | precedes the prompt, unless the prompt has a system message |
| `recommended_max_turns`, `max_turns` | limit on turns |
| `max_tool_calls` | limit on tool calls; the model is told that there are no more |
| `init_rollout(rollout_id, **init_rollout_args)` | begins an episode |
| `rollout_context(rollout_id, example)` | an async context manager around an episode; the row is `example.payload` |
| `list_tools()` | the tools, each with `name`, `description` and `input_schema`, or in OpenAI's form |
| `run_tool(rollout_id, tool_name, **arguments)` | runs a tool |
| `compute_reward(…)`, `compute_group_reward(…)`, `compute_group_rewards(…)` | the score, as in the reward convention \
  `environment` |
| `release_rollout(rollout_id)` | ends an episode |
| `shutdown()`, `aclose()` | end the environment |

Methods may be async or not, and all are optional. `create_dataset` is not called: the run's rows are the examples.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.environments.conventions.base import (
    EnvironmentAdapter,
    call_method,
    finished,
    make_instance,
    parameters_of,
)
from agent_tunix.environments.environment import EnvironmentTraits, EpisodeEnvironment, faults_of
from agent_tunix.environments.outcomes import Message, to_text
from agent_tunix.environments.randomness import GlobalRandomness
from agent_tunix.environments.tools import SchemaTool, Tool
from agent_tunix.errors import EnvironmentFailedError, InvalidEnvironmentError
from agent_tunix.rewards.conventions import EnvironmentReward, adapt, running
from agent_tunix.rewards.conventions.base_env import BaseEnv, canonical_example_id, read_definition
from agent_tunix.rewards.conventions.environment import GROUPS, own_methods
from agent_tunix.rewards.conventions.rollouts import RolloutExample
from agent_tunix.rewards.conventions.values import own_copy
from agent_tunix.rewards.sample import Sample, Score

_EXAMPLE_KEYS = ("id", "prompt", "prompt_messages", "seed_messages", "task", "example_args", "init_rollout_args")


class BenchmaxAdapter(EnvironmentAdapter):
    """A `BaseEnv` class or object."""

    convention = "benchmax"

    def __init__(self, definition: Any, name: str, args: Mapping[str, Any] | None = None) -> None:
        super().__init__(definition, name, args)
        self._numbers = itertools.count()
        self._shared: Any = None if isinstance(definition, type) else definition

    def describe(self) -> str:
        """Return the class and its source, and that its method for groups gets single rollouts."""
        group = [name for name in own_methods(self.definition) if name in GROUPS]
        return super().describe() + "".join(f" (as reward, its {name} gets one rollout at a time)" for name in group)

    @property
    def traits(self) -> EnvironmentTraits:
        """Traits that hold for every episode."""
        env = self.definition if self._shared is None else self._shared
        for limit in (getattr(env, name, None) for name in ("recommended_max_turns", "max_turns")):
            if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
                return EnvironmentTraits(self.convention, max_turns=limit)
        return EnvironmentTraits(self.convention)

    def open(self) -> EpisodeEnvironment:
        """Return a new episode of the one object, which is made at first use."""
        env, rollout_id = self._object(), f"0_0_{next(self._numbers)}"
        return self.seeded(lambda: BenchmaxEnvironment(env, rollout_id, self.name, self.traits, self.file))

    def check(self) -> None:
        """Raise InvalidEnvironmentError if the class cannot be used, or derives from `BaseEnv` and does not score."""
        super().check()
        kind = self.definition if isinstance(self.definition, type) else type(self.definition)
        if issubclass(kind, BaseEnv) and not own_methods(kind):
            raise InvalidEnvironmentError(
                f"{self.name}: the class {kind.__qualname__} must have compute_reward or compute_group_rewards, but "
                "has neither; write one of them"
            )

    def declare(self) -> Sequence[Tool]:
        """Return the tools that `list_tools` lists without a rollout."""
        return BenchmaxEnvironment(self._object(), "", self.name, self.traits, self.file).list_tools()

    @property
    def system_prompt(self) -> str:
        """The environment's `system_prompt`."""
        return str(getattr(self.definition, "system_prompt", "") or "")

    def _object(self) -> Any:
        if self._shared is None:
            with GlobalRandomness(0).active():  # equal objects in all workers
                self._shared = make_instance(self.definition, self.name, self.args, self.file)
        return self._shared

    def close(self) -> None:
        """Call `shutdown` and `aclose`."""
        instance, self._shared = self._shared, None
        for name in ("shutdown", "aclose"):
            if callable(getattr(instance, name, None)):
                with faults_of(f"{self.name}.{name}", self.file):
                    call_method(instance, name)


class BenchmaxEnvironment(EpisodeEnvironment):
    """One rollout of a `BaseEnv`."""

    def __init__(self, env: Any, rollout_id: str, name: str, traits: EnvironmentTraits, file: str | None) -> None:
        self.traits = traits
        self._env = env
        self._rollout_id = rollout_id
        self._name = name
        self._file = file
        self._tools: list[Tool] = []
        self._prompt: list[Message] = []
        self._columns: dict[str, Any] = {}
        self._context: Any = None
        self._num_calls = 0
        self._is_begun = False

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools that `list_tools` returned."""
        return self._tools

    def reset(self, row: Mapping[str, Any], seed: int) -> str | None:
        """Preprocess the row, begin the rollout and list its tools."""
        example = self._preprocess(row)
        self._prompt = self._make_prompt(example)
        task = example.get("task", example.get("example_args"))
        rest = {name: value for name, value in example.items() if name not in _EXAMPLE_KEYS}
        self._columns = {**dict(row), **rest, **(task if isinstance(task, Mapping) else {})}
        if "ground_truth" in self._columns:
            self._columns.setdefault("answer", self._columns["ground_truth"])
        self._is_begun = True
        if hasattr(self._env, "init_rollout"):
            with faults_of(f"{self._name}.init_rollout", self._file):
                arguments = own_copy(dict(example.get("init_rollout_args") or {}))
                finished(self._env.init_rollout(self._rollout_id, **arguments))
        if hasattr(self._env, "rollout_context"):
            with faults_of(f"{self._name}.rollout_context", self._file):
                self._context = running.run(self._enter_context())
        self._tools = self.list_tools()
        return None

    async def _enter_context(self) -> Any:
        payload = own_copy({**self._columns, "prompt_messages": self._prompt})
        example = RolloutExample(canonical_example_id(payload), payload)
        context = self._env.rollout_context(self._rollout_id, example)
        await context.__aenter__()
        return context

    def list_tools(self) -> list[Tool]:
        """Return the tools that the environment lists."""
        with faults_of(f"{self._name}.list_tools", self._file):
            tools = call_method(self._env, "list_tools") if hasattr(self._env, "list_tools") else ()
            return [self._tool_of(one) for one in tools or ()]

    def prompt(self) -> list[Message] | None:
        """Return the messages that `dataset_preprocess` made, the system prompt first."""
        return own_copy(self._prompt) or None

    def score(self, messages: Sequence[Message], stop_reason: str) -> Score | None:
        """Return the sum of the components that the environment computes; None if it computes none."""
        if not own_methods(self._env):
            return None
        reward = adapt(self._env, self._name)
        columns = dict(self._columns)
        if isinstance(reward, EnvironmentReward) and reward.takes_termination_reason:
            columns["termination_reason"] = stop_reason
        texts = {role: _last_text(messages, role) for role in ("user", "assistant")}
        sample = Sample(
            texts["assistant"], texts["user"], tuple(messages), columns, rollout_id=self._rollout_id, step=0
        )
        return reward.score([sample])[0]

    def close(self) -> None:
        """Release the rollout."""
        try:
            if self._context is not None:
                with faults_of(f"{self._name}.rollout_context", self._file):
                    finished(self._context.__aexit__(None, None, None))
        finally:
            if self._is_begun and hasattr(self._env, "release_rollout"):
                with faults_of(f"{self._name}.release_rollout", self._file):
                    finished(self._env.release_rollout(self._rollout_id))

    def _preprocess(self, row: Mapping[str, Any]) -> dict[str, Any]:
        preprocess = getattr(self._env, "dataset_preprocess", None)
        if preprocess is None:
            return dict(row)
        with faults_of(f"{self._name}.dataset_preprocess", self._file):
            example = finished(preprocess(own_copy(dict(row))))
        if not isinstance(example, Mapping):
            raise EnvironmentFailedError(
                f"{self._name}.dataset_preprocess returned {type(example).__name__}; expected a dict with `prompt` or "
                "`prompt_messages`"
            )
        return dict(example)

    def _make_prompt(self, example: Mapping[str, Any]) -> list[Message]:
        prompt_messages = example.get("prompt_messages") or example.get("seed_messages") or example.get("prompt") or []
        messages = (
            [{"role": "user", "content": prompt_messages}]
            if isinstance(prompt_messages, str)
            else [dict(one) for one in prompt_messages]
        )
        system = getattr(self._env, "system_prompt", "") or ""
        if system and not any(message.get("role") == "system" for message in messages):
            messages.insert(0, {"role": "system", "content": str(system)})
        return messages

    def _tool_of(self, definition: Any) -> Tool:
        name, description, schema = read_definition(definition)
        return SchemaTool(name, description, schema, self._runner(name))

    def _runner(self, tool: str) -> Any:
        def run(arguments: dict[str, Any]) -> Any:
            most = getattr(self._env, "max_tool_calls", None)
            self._num_calls += 1
            if isinstance(most, int) and self._num_calls > most:
                return f"the limit of {most} tool calls is reached; answer without a call"
            parameters, takes_any = parameters_of(self._env.run_tool)
            own_arguments = (
                arguments if takes_any else {name: value for name, value in arguments.items() if name in parameters}
            )
            return self._env.run_tool(self._rollout_id, tool, **own_arguments)

        return run


def _last_text(messages: Sequence[Message], role: str) -> str:
    return next((to_text(one.get("content")) for one in reversed(messages) if one.get("role") == role), "")
