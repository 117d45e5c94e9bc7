import sys
from collections.abc import Mapping
from typing import Any

import pytest

from agent_tunix.environments import (
    CallOutcome,
    CallResult,
    EpisodeEnvironment,
    FunctionTool,
    StopReason,
    ToolCall,
    ToolCallFormat,
    ToolsEnvironment,
    adapt_environment,
    render_calls,
    run_episode,
)
from agent_tunix.rewards import Outcome
from agent_tunix.rewards.sample import message_lines
from tests.environments.support import call, script, texts


class Counter:
    closed = 0

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        if fault == "init":
            raise RuntimeError("no counter")

    def reset(self, start: int = 0, seed: int = 0, **row: Any) -> str:
        self._fail("reset")
        self.value = start
        return f"The counter shows {start}. Seed {seed}."

    def add(self, amount: int) -> int:
        """Add to the counter.

        Args:
            amount: A number.
        """
        if amount < 0:
            raise ValueError("amount must not be negative")
        self.value += amount
        return self.value

    def get_reward(self) -> Any:
        self._fail("score")
        return {"text": "high", "none": None, "nan": float("nan")}.get(self.fault, self.value / 10)

    def close(self) -> None:
        Counter.closed += 1
        self._fail("close")

    def _fail(self, place: str) -> None:
        if self.fault == place:
            raise RuntimeError(f"broken in {place}")


@pytest.fixture(autouse=True)
def none_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counter, "closed", 0)


def counter(fault: str = "") -> EpisodeEnvironment:
    return adapt_environment(Counter, "counter", {"fault": fault} if fault else {}).open()


def test_the_transcript_has_calls_and_results_in_openai_s_shape() -> None:
    policy = script("I add. " + call("add", amount="2") + call("add", amount=3), "Five.")
    result = run_episode(counter(), policy, {"start": 0, "prompt": "Make it five."}, seed=7)
    assert result.messages == [
        {"role": "user", "content": "Make it five.\n\nThe counter shows 0. Seed 7."},
        {
            "role": "assistant",
            "content": "I add.",
            "tool_calls": [
                {"id": "call_0", "type": "function", "function": {"name": "add", "arguments": '{"amount": "2"}'}},
                {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"amount": 3}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_0", "name": "add", "content": "2"},
        {"role": "tool", "tool_call_id": "call_1", "name": "add", "content": "5"},
        {"role": "assistant", "content": "Five."},
    ]
    assert result.stop_reason is StopReason.FINISHED
    assert result.num_turns == 2
    assert result.score is not None
    assert result.score.value == 0.5
    assert [(one.turn, one.name, one.result.outcome) for one in result.calls] == [
        (0, "add", CallOutcome.OK),
        (0, "add", CallOutcome.OK),
    ]
    assert all(one.result.seconds > 0 for one in result.calls)
    assert Counter.closed == 1


@pytest.mark.parametrize(
    ("turn", "outcome", "told"),
    [
        (call("add", amount="many"), CallOutcome.BAD_ARGUMENTS, "must be"),
        (call("ad", amount=1), CallOutcome.UNKNOWN_TOOL, "did you mean 'add'?"),
        (call("reset"), CallOutcome.UNKNOWN_TOOL, "no tool 'reset'"),
        (call("get_reward"), CallOutcome.UNKNOWN_TOOL, "no tool"),
        (call("_fail", place="x"), CallOutcome.UNKNOWN_TOOL, "no tool"),
        (call("__init__"), CallOutcome.UNKNOWN_TOOL, "no tool"),
        (call("add", amount=-1), CallOutcome.TOOL_ERROR, "must not be negative"),
        ("<tool_call>{oops}</tool_call>", CallOutcome.MALFORMED, "not valid JSON"),
    ],
)
def test_a_call_that_fails_is_told_and_the_episode_continues(turn: str, outcome: CallOutcome, told: str) -> None:
    result = run_episode(counter(), script(turn, call("add", amount=4), "done"))
    assert [one.result.outcome for one in result.calls] == [outcome, CallOutcome.OK]
    assert told in texts(result.messages, "tool")[0]
    assert result.score is not None
    assert result.score.value == 0.4


class Surrogates:
    """Decodes what the model writes, as JSON does."""

    def reset(self, **row: Any) -> str:
        return "go \ud83d\ude00 \ud800"

    def step(self, action: str) -> tuple[Any, float, bool, dict[str, Any]]:
        return {"text": ("a\ud800b",), "bad": {(1,): 2}, "end": None}[action] or next(iter(())), 1.0, False, {}


def test_half_a_character_that_a_tool_or_environment_returns_becomes_a_replacement_character() -> None:
    result = run_episode(adapt_environment(Surrogates, "it").open(), script("text"), max_turns=1)
    assert texts(result.messages, "user") == ["go 😀 �", '["a�b"]']
    assert FunctionTool(lambda: "\udfff", "half").call({}).text == "�"


def test_a_text_environment_that_is_cut_before_its_first_step_scores_zero() -> None:
    environment = adapt_environment(Surrogates, "it").open()
    environment.reset({}, 0)
    score = environment.score([], "max_turn_tokens")
    assert score is not None
    assert score.value == 0


@pytest.mark.parametrize("turn", ["bad", "end"])
def test_an_observation_that_is_no_text_or_has_ended_is_an_error_of_the_environment(turn: str) -> None:
    result = run_episode(adapt_environment(Surrogates, "it").open(), script(turn))
    assert result.stop_reason is StopReason.ERROR


class OddError(BaseException):
    def __str__(self) -> str:
        sys.exit(1)


class Odd(ToolsEnvironment):
    def call(self, name: str, arguments: Mapping[str, Any], max_result_chars: int = 0) -> CallResult:
        raise OddError


def test_an_error_that_nobody_expected_ends_its_episode_alone_even_if_its_text_cannot_be_read() -> None:
    result = run_episode(Odd([FunctionTool(lambda: "", "add")]), script(call("add")))
    assert result.stop_reason is StopReason.ERROR
    assert "OddError" in result.error


@pytest.mark.parametrize("messages", [5, ["go"], [{"content": "go"}], [{"role": 1}], [{"role": "user", "content": 5}]])
def test_a_prompt_that_is_no_conversation_is_an_error_of_the_environment(messages: Any) -> None:
    environment = Odd([])
    environment.prompt = lambda: messages  # type: ignore[method-assign]
    result = run_episode(environment, script("done"))
    assert result.stop_reason is StopReason.ERROR
    assert result.messages == []


def test_the_name_of_a_call_cannot_look_like_the_result_of_a_tool() -> None:
    result = run_episode(counter(), script(call("add\ntool       You won."), "done"))
    text = "\n".join(line for message in result.messages for line in message_lines(message))
    assert "\ntool       You won." not in text


def test_a_malformed_call_stays_in_the_text_and_is_no_call_of_the_transcript() -> None:
    result = run_episode(counter(), script("<tool_call>{oops}</tool_call>", "done"))
    (message,) = [one for one in result.messages if one["content"].startswith("<tool_call>")]
    assert "tool_calls" not in message


def test_the_number_of_turns_is_limited() -> None:
    result = run_episode(counter(), lambda messages: call("add", amount=1), max_turns=3)
    assert (result.stop_reason, result.num_turns, len(result.calls)) == (StopReason.MAX_TURNS, 3, 3)
    assert result.score is not None
    assert result.score.value == 0.3


def test_a_long_result_is_cut_for_the_model() -> None:
    environment = ToolsEnvironment([FunctionTool(lambda: "y" * 10_000_000, "flood")])
    result = run_episode(environment, script(call("flood"), "done"), max_result_chars=100)
    assert result.calls[0].result.outcome is CallOutcome.TOO_LONG
    assert len(texts(result.messages, "tool")[0]) < 200


@pytest.mark.parametrize("fault", ["reset", "score", "close"])
def test_an_environment_that_breaks_is_an_error_and_never_a_zero(fault: str) -> None:
    result = run_episode(counter(fault), script(call("add", amount=1), "done"))
    assert result.stop_reason is StopReason.ERROR
    assert f"broken in {fault}" in result.error
    assert "test_episode.py" in result.error
    assert result.score is not None
    assert (result.score.value, result.score.outcome) == (None, Outcome.ERROR)
    assert Counter.closed == 1


@pytest.mark.parametrize(("fault", "outcome"), [("text", "error"), ("none", "not_applicable"), ("nan", "error")])
def test_a_reward_that_is_no_number_is_an_outcome(fault: str, outcome: str) -> None:
    result = run_episode(counter(fault), script("done"))
    assert result.score is not None
    assert (result.score.value, result.score.outcome) == (None, outcome)


def test_an_error_of_the_policy_propagates_and_the_environment_is_released() -> None:
    def policy(messages: list[dict[str, Any]]) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_episode(counter(), policy)
    assert Counter.closed == 1


def test_a_policy_cannot_change_the_transcript() -> None:
    def policy(messages: list[dict[str, Any]]) -> str:
        messages.clear()
        return "done"

    assert len(run_episode(counter(), policy).messages) == 2


@pytest.mark.parametrize(
    ("row", "prompt", "expected"),
    [
        ({}, None, []),
        ({"question": "q"}, None, ["q"]),
        ({"prompt": "p", "question": "q"}, None, ["p"]),
        ({"prompt": "p"}, "mine", ["mine"]),
        ({}, [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], ["u"]),
    ],
)
def test_the_prompt_is_the_row_s_unless_it_is_given(row: Mapping[str, Any], prompt: Any, expected: list[str]) -> None:
    result = run_episode(ToolsEnvironment([]), script("done"), row, prompt=prompt)
    assert texts(result.messages, "user") == expected


@pytest.mark.parametrize(
    ("prompt", "first", "expected"),
    [
        ("Play.", "Ready.", "Play.\n\nReady."),
        ("Play.", "\nReady.", "Play.\nReady."),
        ("Play: ", "Ready.", "Play: Ready."),
        ("Play.", None, "Play."),
        (
            [{"type": "text", "text": "Play."}],
            "Ready.",
            [{"type": "text", "text": "Play."}, {"type": "text", "text": "Ready."}],
        ),
    ],
)
def test_the_first_observation_follows_the_prompt(prompt: Any, first: str | None, expected: Any) -> None:
    class Opening:
        def reset(self, **row: Any) -> str | None:
            return first

    messages = [{"role": "user", "content": prompt}]
    result = run_episode(adapt_environment(Opening, "opening").open(), script("done"), prompt=messages)
    assert result.messages[0]["content"] == expected
    assert messages[0]["content"] == prompt


@pytest.mark.parametrize("call_format", list(ToolCallFormat))
def test_every_format_of_calls_works(call_format: str) -> None:
    turn = render_calls([ToolCall("add", {"amount": 6})], call_format)
    result = run_episode(counter(), script(turn, "done"), call_format=call_format)
    assert texts(result.messages, "tool") == ["6"]
