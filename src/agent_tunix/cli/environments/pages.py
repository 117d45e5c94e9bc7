"""Output of `agent-tunix environments show` and `try`."""

import inspect
import json
import textwrap
from collections.abc import Iterator
from typing import Any

from agent_tunix.environments import EnvironmentAdapter, EpisodeResult, Tool
from agent_tunix.rewards import Score
from agent_tunix.rewards.sample import message_lines
from agent_tunix.rewards.score_data import show_fields
from agent_tunix.visible_text import one_line

_FORMS = {
    "class": "a class whose public methods are tools",
    "benchmax": "a benchmax BaseEnv",
    "text": "a text environment, which replies to each turn",
    "tools": "a function, a tool without state",
    "mcp": "an MCP server",
}


def describe_environment(name: str, adapter: EnvironmentAdapter) -> dict[str, Any]:
    """Return a description of an environment for JSON."""
    return {
        "name": name,
        "convention": adapter.convention,
        "source": adapter.describe(),
        # `inspect.getdoc` would show the docstring of a base class.
        "documentation": "" if adapter.convention == "mcp" else inspect.cleandoc(adapter.definition.__doc__ or ""),
        "system_prompt": adapter.system_prompt,
        "max_turns": adapter.traits.max_turns,
        "columns": adapter.reset_parameters,
        "tools": [tool.declaration()["function"] for tool in adapter.declare()],
    }


def environment_page(name: str, adapter: EnvironmentAdapter) -> str:
    """Return a description of an environment as text."""
    description = describe_environment(name, adapter)
    lines = [name, f"  form         {_FORMS[adapter.convention]}", f"  source       {description['source']}"]
    if adapter.traits.max_turns:
        lines.append(f"  max turns    {adapter.traits.max_turns}")
    if description["columns"]:
        columns = [
            f"{column}{' (required)' if required else ''}" for column, required in description["columns"].items()
        ]
        lines.append(f"  columns      {', '.join(columns)}")
    for text in (description["documentation"], description["system_prompt"]):
        if text and adapter.convention != "tools":
            lines += ["", *textwrap.indent(text, "  ").splitlines()]
    for tool in adapter.declare():
        lines += ["", *_tool_lines(tool)]
    return "\n".join(lines)


def episode_data(result: EpisodeResult) -> dict[str, Any]:
    """Return an episode for JSON."""
    return {
        "messages": result.messages,
        "stop_reason": result.stop_reason.value,
        "score": result.score and show_fields(result.score, "value", "components", "outcome", "detail"),
        "calls": [
            {
                "turn": call.turn,
                "name": call.name,
                "arguments": call.arguments,
                "outcome": call.result.outcome.value,
                "seconds": call.result.seconds,
                "detail": call.result.detail,
            }
            for call in result.calls
        ],
        "error": result.error,
    }


def episode_page(result: EpisodeResult) -> str:
    """Return an episode as text: the conversation, then the score."""
    calls = iter(result.calls)
    lines: list[str] = []
    for message in result.messages:
        lines += message_lines(message)
        if message["role"] == "tool" and (call := next(calls)).result.detail:
            lines.append(f"           {one_line(call.result.detail)}")
    if result.error:
        lines.append(one_line(f"error      {result.error}"))
    elif result.score is None:
        lines.append("score      none: the environment does not score")
    else:
        lines.append(f"score      {_score_text(result.score)}")
    return "\n".join(lines)


def _tool_lines(tool: Tool) -> Iterator[str]:
    yield f"tool {tool.name}"
    yield from textwrap.indent(tool.description, "  ").splitlines()
    schema = json.dumps(tool.parameters, indent=2, ensure_ascii=False)
    yield from textwrap.indent(schema, "  ").splitlines()


def _score_text(score: Score) -> str:
    if score.value is None:
        return f"{score.outcome.value}: {score.detail}"
    parts = ", ".join(f"{name} {value:g}" for name, value in score.components.items() if value is not None)
    return f"{score.value:g}{f' ({parts})' if parts else ''}"
