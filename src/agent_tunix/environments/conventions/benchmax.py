"""Convention `benchmax`: a `BaseEnv`, one object for all episodes, which tells them apart by `rollout_id`.

| member | use |
| --- | --- |
| `dataset_preprocess(row)` | makes the prompt, the task and the arguments of `init_rollout` |
| `system_prompt` | precedes the prompt, unless the prompt has a system message |
| `recommended_max_turns` | limit on turns |
| `init_rollout(rollout_id, **init_rollout_args)` | begins an episode |
| `list_tools()` | the tools, each with `name`, `description` and `input_schema` |
| `run_tool(rollout_id, tool_name, **arguments)` | runs a tool |
| `compute_reward(…)`, `compute_group_reward(…)` | the score, as in the reward convention `environment` |
| `release_rollout(rollout_id)`, `shutdown()` | end an episode, and the environment |

Methods may be async or not, and every member but `list_tools` and `run_tool` is optional.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.environments.conventions.base import EnvironmentAdapter, finished, make_instance, parameters_of
from agent_tunix.environments.environment import EnvironmentTraits, EpisodeEnvironment, faults_of
from agent_tunix.environments.outcomes import Message, to_text
from agent_tunix.environments.tools import SchemaTool, Tool
from agent_tunix.errors import EnvironmentFailedError
from agent_tunix.rewards.conventions import EnvironmentReward, adapt
from agent_tunix.rewards.conventions.base_env import read_definition
from agent_tunix.rewards.conventions.values import own_copy
from agent_tunix.rewards.sample import Sample, Score

_EXAMPLE_KEYS = ("id", "prompt", "prompt_messages", "seed_messages", "task", "example_args", "init_rollout_args")


class BenchmaxAdapter(EnvironmentAdapter):
    """A `BaseEnv` class or object."""

    convention = "benchmax"

    def __init__(self, given: Any, name: str, args: Mapping[str, Any] | None = None) -> None:
        super().__init__(given, name, args)
        self._numbers = itertools.count()
        self._shared: Any = None if isinstance(given, type) else given

    @property
    def traits(self) -> EnvironmentTraits:
        """Traits that hold for every episode."""
        recommended = getattr(self.given, "recommended_max_turns", None)
        is_number = isinstance(recommended, int) and not isinstance(recommended, bool) and recommended > 0
        return EnvironmentTraits(self.convention, max_turns=recommended if is_number else None)

    def open(self) -> EpisodeEnvironment:
        """Return a new episode of the one object, which is made at first use."""
        return BenchmaxEnvironment(self._object(), f"0_0_{next(self._numbers)}", self.name, self.traits, self.file)

    def declare(self) -> Sequence[Tool]:
        """Return the tools that `list_tools` lists without a rollout."""
        return BenchmaxEnvironment(self._object(), "", self.name, self.traits, self.file).list_tools()

    @property
    def system_prompt(self) -> str:
        """The environment's `system_prompt`."""
        return str(getattr(self.given, "system_prompt", "") or "")

    def _object(self) -> Any:
        if self._shared is None:
            self._shared = make_instance(self.given, self.name, self.args, self.file)
        return self._shared

    def close(self) -> None:
        """Call `shutdown`."""
        shared, self._shared = self._shared, None
        if callable(shutdown := getattr(shared, "shutdown", None)):
            with faults_of(f"{self.name}.shutdown", self.file):
                finished(shutdown())


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
        self._tools = self.list_tools()
        return None

    def list_tools(self) -> list[Tool]:
        """Return the tools that the environment lists."""
        with faults_of(f"{self._name}.list_tools", self._file):
            return [self._tool_of(one) for one in finished(self._env.list_tools()) or ()]

    def prompt(self) -> list[Message] | None:
        """Return the messages that `dataset_preprocess` made, the system prompt first."""
        return own_copy(self._prompt) or None

    def score(self, messages: Sequence[Message], stop_reason: str) -> Score | None:
        """Return the sum of the components that the environment computes; None if it computes none."""
        if not any(callable(getattr(self._env, method, None)) for method in ("compute_reward", "compute_group_reward")):
            return None
        reward = adapt(self._env, self._name)
        columns = dict(self._columns)
        if isinstance(reward, EnvironmentReward) and any("termination_reason" in call.names for call in reward.calls):
            columns["termination_reason"] = stop_reason
        texts = {role: _last_text(messages, role) for role in ("user", "assistant")}
        sample = Sample(
            texts["assistant"], texts["user"], tuple(messages), columns, rollout_id=self._rollout_id, step=0
        )
        return reward.score([sample])[0]

    def close(self) -> None:
        """Release the rollout."""
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
                "`prompt_messages`",
                code="invalid_example",
            )
        return dict(example)

    def _make_prompt(self, example: Mapping[str, Any]) -> list[Message]:
        given = example.get("prompt_messages") or example.get("seed_messages") or example.get("prompt") or []
        messages = [{"role": "user", "content": given}] if isinstance(given, str) else [dict(one) for one in given]
        system = getattr(self._env, "system_prompt", "") or ""
        if system and not any(message.get("role") == "system" for message in messages):
            messages.insert(0, {"role": "system", "content": str(system)})
        return messages

    def _tool_of(self, definition: Any) -> Tool:
        name, description, schema = read_definition(definition)
        return SchemaTool(name, description, schema, self._runner(name))

    def _runner(self, tool: str) -> Any:
        def run(arguments: dict[str, Any]) -> Any:
            named, takes_any = parameters_of(self._env.run_tool)
            taken = arguments if takes_any else {name: value for name, value in arguments.items() if name in named}
            return self._env.run_tool(self._rollout_id, tool, **taken)

        return run


def _last_text(messages: Sequence[Message], role: str) -> str:
    return next((to_text(one.get("content")) for one in reversed(messages) if one.get("role") == role), "")
