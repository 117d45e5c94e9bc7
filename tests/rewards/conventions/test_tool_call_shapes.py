"""Rewards find the tool calls of an episode in the shape of their own library."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from agent_tunix.rewards.conventions import adapt
from agent_tunix.rewards.conventions.libraries.swift import ORM
from agent_tunix.rewards.sample import EpisodeSummary, Sample

ASKED = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"x": 0}}}],
}
CALL = {"id": "call_0", "type": "function", "function": {"name": "add", "arguments": '{"x": 1, "to": "né"}'}}
MESSAGES: tuple[dict[str, Any], ...] = (
    {"role": "user", "content": "q"},
    ASKED,
    {"role": "tool", "name": "add", "content": "0"},
    {"role": "assistant", "content": "I add.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_0", "name": "add", "content": "2"},
    {"role": "assistant", "content": "Two."},
)
SAMPLE = Sample(
    "Two.", "q", MESSAGES, {"answer": "2"}, episode=EpisodeSummary("finished", 2, 3, text="I add.\n2\nTwo.")
)


def trl(prompts: Any, completions: Any, **kwargs: Any) -> list[float]:
    first, *_ = [call["function"]["arguments"] for call in completions[0][0]["tool_calls"]]
    earlier = prompts[0][1]["tool_calls"][0]["function"]["arguments"]
    return [float(first == {"x": 1, "to": "né"} and earlier == {"x": 0})]


def of_openai_dicts(completion: Any, state: Any) -> float:
    found = [call for message in completion if "tool_calls" in message for call in message["tool_calls"]]
    earlier = state["prompt"][1]["tool_calls"][0]["function"]["arguments"]
    written = [json.loads(call.get("function", {}).get("arguments"))["x"] for call in found]
    return float(written == [1] and json.loads(earlier) == {"x": 0})


def of_openai_objects(completion: Any, state: Any) -> float:
    found = [call for message in completion for call in message.get("tool_calls") or []]
    arguments = [json.loads(call.function.arguments)["x"] for call in found if hasattr(call, "function")]
    return float(arguments == [1] and found[0].function.name == "add" and found[0].id == "call_0")


def of_newer_messages(completion: Any, state: Any) -> float:
    turns = [message for message in completion if message.role == "assistant"]
    calls = [call for turn in turns for call in turn.tool_calls or []]
    named = [(call.name, json.loads(call.arguments)["x"], call["name"]) for call in calls]
    steps = [step["completion"][0].tool_calls for step in state["trajectory"]]
    return float(named == [("add", 1, "add")] and completion[-1].content == "Two." and steps[1] is None)


class Written(ORM):
    def __call__(self, completions: list[str], messages: Any = None, **kwargs: Any) -> list[float]:
        turn = messages[0][3]["content"]
        text = turn.removeprefix("I add.\n<tool_call>\n").removesuffix("\n</tool_call>")
        is_right = json.loads(text) == {"name": "add", "arguments": {"x": 1, "to": "né"}}
        return [float(is_right and not any("tool_calls" in message for message in messages[0]))]


def plain(response: str, transcript: Any) -> float:
    return float(transcript[0]["tool_calls"] == [CALL])


@pytest.mark.parametrize("reward", [trl, of_openai_dicts, of_openai_objects, of_newer_messages, Written, plain])
def test_tool_calls_have_the_shape_of_the_library(reward: Callable[..., Any]) -> None:
    (score,) = adapt(reward, reward.__name__).score([SAMPLE])
    assert (score.value, score.detail) == (1.0, "")


def test_arguments_that_are_no_object_stay_text() -> None:
    broken = {**CALL, "function": {"name": "add", "arguments": "[1"}}

    def kept(completions: Any, **kwargs: Any) -> list[float]:
        return [float(completions[0][0]["tool_calls"][0]["function"]["arguments"] == "[1")]

    kept.takes_messages = True  # type: ignore[attr-defined]
    messages = (*MESSAGES[:3], {"role": "assistant", "content": "", "tool_calls": [broken]}, *MESSAGES[4:])
    sample = Sample("Two.", "q", messages, {}, episode=EpisodeSummary("finished", 2, 3))
    assert adapt(kept, "kept").score([sample])[0].value == 1.0
