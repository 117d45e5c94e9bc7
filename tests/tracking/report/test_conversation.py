"""Conversations of episodes: calls with what came of them, and messages of any type."""

from typing import Any

import pytest

from agent_tunix.rewards import EpisodeSummary, Sample
from agent_tunix.tracking.report.conversation import ShownCall, ShownTurn, show_conversation
from tests.tracking.report.support import as_episode


def call(id: str, name: str, arguments: Any = "{}") -> dict[str, Any]:
    return {"id": id, "function": {"name": name, "arguments": arguments}}


def test_calls_have_their_arguments_and_outcomes() -> None:
    sample = as_episode(Sample("Done.", prompt="Go.", step=2), "add")
    assert sample.episode is not None
    assert show_conversation(sample.messages, sample.episode.calls, 1, 1000) == [
        ShownTurn(
            "assistant",
            "First.",
            (
                ShownCall("add", '{"expression": "add"}', "the result add", 0.25, "ok"),
                ShownCall("", "", "Error: malformed", None, "malformed"),
            ),
        ),
        ShownTurn("user", "reply add"),
        ShownTurn("assistant", "Done."),
    ]


@pytest.mark.parametrize(
    ("seconds", "time"), [(0.00004, "0.04 ms"), (0.25, "250 ms"), (0.99999, "1000 ms"), (61.26, "61.3 s")]
)
def test_a_time_has_three_figures(seconds: float, time: str) -> None:
    assert ShownCall("add", seconds=seconds).time == time.replace(" ", "\N{NO-BREAK SPACE}")


def test_a_call_that_ended_the_episode_has_no_result() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": "", "tool_calls": [call("a", "add"), call("b", "add", {"x": 1})]},
        {"role": "tool", "tool_call_id": "a", "content": "3"},
    ]
    (turn,) = show_conversation(messages, [{"outcome": "ok", "seconds": 0.5}], 0, 1000)
    assert turn.calls == (ShownCall("add", "{}", "3", 0.5, "ok"), ShownCall("add", '{"x": 1}'))


def test_a_turn_with_a_call_in_another_form_says_so() -> None:
    talk = ["First.", "[add(x=1)]"]
    messages = [{"role": "user", "content": "Go."}, *({"role": "assistant", "content": text} for text in talk)]
    unread = ({"turn": 1, "form": "python"},)
    first, second = show_conversation(messages, (), 1, 1000, unread)
    assert (first.calls, second.calls) == ((), (ShownCall("", outcome="not read, form python"),))
    assert second.calls[0].failed
    episode = EpisodeSummary("finished", 2, 1, unread_calls=unread)
    sample = Sample("[add(x=1)]", messages=tuple(messages), episode=episode)
    assert "unread     looks like a tool call in the form python" in sample.shown.splitlines()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ([{"type": "text", "text": "Look."}, {"type": "image"}], 'Look.\n{"type": "image"}'),
        ({"x": float("nan")}, '{"x": {"$type": "float", "value": "nan"}}'),
    ],
)
def test_content_that_is_no_text_is_shown_as_its_parts_or_json(content: Any, text: str) -> None:
    (turn,) = show_conversation([{"role": "user", "content": content}], (), 0, 1000)
    assert turn.text == text


def test_a_long_conversation_is_cut_and_keeps_its_end() -> None:
    calls = [call(str(number), "add", "x" * 900) for number in range(80)]
    messages = [{"role": "assistant", "content": "y" * 900, "tool_calls": calls}] * 300
    turns = show_conversation([*messages, {"role": "assistant", "content": "The end."}], [], 0, 6000)
    assert turns[-1].text == "The end."
    assert any("201 turns omitted" in turn.text for turn in turns)
    assert "40 calls omitted" in turns[2].text
    assert "characters omitted" in turns[0].calls[0].arguments
