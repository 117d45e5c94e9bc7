"""Classes and functions that benchmax environments import, served by `shims` where benchmax is not installed."""

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

logger = logging.getLogger("agent_tunix.rewards.environment")

ChatMessage = dict[str, Any]
Messages = list[ChatMessage]
Completion = list[dict[str, Any]]
RewardFunction = Callable[..., float]


@dataclass
class ToolDefinition:
    """A tool that an environment offers."""

    name: str
    description: str
    input_schema: dict[str, Any] | None = None  # JSON schema of the arguments; None for a tool without arguments


class StandardizedExample(TypedDict):
    """A preprocessed row, in the older form."""

    prompt: str | list[dict[str, Any]]
    ground_truth: Any
    init_rollout_args: dict[str, Any] | None


class PreprocessedExample(TypedDict, total=False):
    """A preprocessed row."""

    id: str
    prompt_messages: Messages  # the prompt as chat messages
    task: dict[str, Any] | None  # columns for the reward
    init_rollout_args: dict[str, Any] | None  # arguments of `init_rollout`


class BaseEnv:
    """Base class of benchmax environments, older and newer.

    One object serves all rollouts, which it tells apart by `rollout_id`. It scores by `compute_reward`, by a method for
    groups, or by both.
    """

    system_prompt: str = ""  # system message of every prompt; "" for none
    recommended_max_turns: int | None = None  # limit on turns; None for none
    recommended_max_tool_calls: int | None = None
    max_turns: int | None = None  # the same limits in newer environments
    max_tool_calls: int | None = None

    def __init__(self, *, max_turns: int | None = None, max_tool_calls: int | None = None, **kwargs: Any) -> None:
        if max_turns is not None:
            self.max_turns = max_turns
        if max_tool_calls is not None:
            self.max_tool_calls = max_tool_calls

    @classmethod
    def dataset_preprocess(cls, example: Any, **kwargs: Any) -> Any:
        """Return a row as an example: its `prompt_messages`, `messages` or `prompt`, and the row as the task."""
        row = dict(example)
        row_messages = row.get("prompt_messages") or row.get("messages") or row.get("prompt") or []
        messages = [{"role": "user", "content": row_messages}] if isinstance(row_messages, str) else list(row_messages)
        return make_example(messages, row, row.get("init_rollout_args"))

    async def list_tools(self) -> list[Any]:
        """Return the tools, each a `ToolDefinition` or a dict in OpenAI's form."""
        return []

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> Any:
        """Return the result of a tool."""
        raise ValueError(f"there is no tool {tool_name!r}")

    async def compute_reward(self, *args: Any, **kwargs: Any) -> Mapping[str, float] | None:
        """Return the components of the score."""
        return None

    async def init_rollout(self, rollout_id: str, **rollout_args: Any) -> None:
        """Begin a rollout."""

    async def release_rollout(self, rollout_id: str) -> None:
        """End a rollout."""

    async def shutdown(self) -> None:
        """End the environment."""

    async def get_system_prompt(self, add_tool_defs: bool = False) -> str:
        """Return the system prompt, with the declarations of the tools if `add_tool_defs`."""
        if not add_tool_defs:
            return self.system_prompt
        return render_tools_prompt(await self.list_tools(), self.system_prompt)


def make_example(
    prompt_messages: Messages,
    task: dict[str, Any] | None = None,
    init_rollout_args: dict[str, Any] | None = None,
    system_prompt: str | None = None,
) -> PreprocessedExample:
    """Return an example, with the system prompt as its first message."""
    system: Messages = [{"role": "system", "content": system_prompt}] if system_prompt else []
    messages = [*system, *prompt_messages]
    return {
        "id": canonical_example_id(messages, task),
        "prompt_messages": messages,
        "task": task,
        "init_rollout_args": init_rollout_args,
    }


def canonical_example_id(prompt_messages: Any, task: dict[str, Any] | None = None) -> str:
    """Return a digest of a prompt and its task, or of a whole row."""
    text = json.dumps([prompt_messages, task], sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@contextlib.contextmanager
def rollout_context(rollout_id: str) -> Iterator[None]:
    """Do nothing, because a reward's logs are attributed to its completions anyway."""
    yield


@contextlib.contextmanager
def group_context(rollout_ids: Iterable[str]) -> Iterator[None]:
    """Do nothing; see `rollout_context`."""
    yield


def log_env(rollout_id: str, message: str) -> None:
    """Log a message, which is stored with the completion that is being scored."""
    logger.info("%s", message)


def render_tools_prompt(tool_definitions: Sequence[Any], system_message: str = "") -> str:
    """Return a system message that declares tools."""
    if not tool_definitions:
        return system_message
    keys = ("name", "description", "parameters")
    declared = [dict(zip(keys, read_definition(one), strict=True)) for one in tool_definitions]
    lines = [json.dumps(one, ensure_ascii=False, default=str) for one in declared]
    form = '<tool_call>\n{"name": NAME, "arguments": {ARGUMENT: VALUE}}\n</tool_call>'
    block = "\n".join(["You may call these tools:", *lines, "", "To call a tool, write:", form])
    return f"{system_message}\n\n{block}" if system_message else block


def read_definition(definition: Any) -> tuple[str, str, dict[str, Any]]:
    """Return name, description and JSON schema of a tool's definition, an object or a dict."""
    fields = definition if isinstance(definition, Mapping) else vars(definition)
    function = fields.get("function", fields)  # OpenAI's form
    fields = function if isinstance(function, Mapping) else vars(function)
    schema = fields.get("input_schema") or fields.get("parameters") or {"type": "object", "properties": {}}
    return str(fields["name"]), str(fields.get("description") or ""), dict(schema)
