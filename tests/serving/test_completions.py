"""Completions and forks from the calls of agents."""

import numpy as np
import pytest

from agent_tunix.environments import AgentRecord, EpisodeResult, StopReason
from agent_tunix.environments.agents import AgentOutcome
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.sampling.sampler import Completions, join_completions
from agent_tunix.serving.agent_episodes import make_result
from agent_tunix.serving.calls import RecordedCall
from agent_tunix.serving.completions import completions_of

WIDTH = 40


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(EMBEDDED_MODEL)


def result(outcome: str = "ok", reason: StopReason = StopReason.FINISHED) -> EpisodeResult:
    return EpisodeResult([], reason, None, (), 1, 1, agent=AgentRecord(outcome))


@pytest.fixture(scope="module")
def completions(tokenizer: Tokenizer) -> Completions:
    def call(prompt: str, reply: str, finish_reason: str = "stop") -> RecordedCall:
        tokens = tuple(tokenizer.encode(reply))
        return RecordedCall(
            tuple(tokenizer.encode(prompt)), tokens, (-1.0,) * len(tokens), 0, finish_reason, num_cached=2
        )

    appends = [call("2+3=", "4"), call("2+3=4 no ", "5")]
    rewrites = [call("2+3=", "4"), call("x", "gone", "cancelled"), call("2+3? ", "5"), call("2+3? 5 sure? ", "yes")]
    failed = result("timeout", StopReason.ERROR)
    return completions_of([appends, rewrites, []], [result(), result(), failed], tokenizer, max_row_tokens=WIDTH)


def test_each_rollout_is_its_main_row_and_its_forks(completions: Completions, tokenizer: Tokenizer) -> None:
    assert completions.forks is not None
    assert completions.texts == ["5", "yes", ""]
    assert completions.ended.tolist() == [True, True, False]
    assert completions.forks.owners.tolist() == [1]
    assert completions.prompt_tokens.shape == completions.tokens.shape == (3, WIDTH)
    whole = [
        tokenizer.decode([*prompt[WIDTH - n :], *tokens[:length]])
        for prompt, n, tokens, length in zip(
            completions.prompt_tokens, completions.prompt_lengths, completions.tokens, completions.lengths, strict=True
        )
    ]
    assert whole[:2] == ["2+3=4 no 5", "2+3? 5 sure? yes"]
    assert completions.prompt_lengths[2] == 1
    assert completions.lengths[2] == 0


def test_tokens_of_forks_count(completions: Completions) -> None:
    count = dict(zip(completions.texts, completions.num_sampled, strict=True))
    assert count["5"] == 2
    assert count["yes"] == completions.mask[1].sum() + 1
    assert count[""] == 0
    assert completions.logp_sums.tolist() == [-2.0, -float(count["yes"]), 0.0]


def test_the_calls_of_an_agent_are_described(completions: Completions) -> None:
    assert completions.episodes is not None
    agents = [episode.agent for episode in completions.episodes]
    assert all(agent is not None for agent in agents)
    first, second, third = (agent for agent in agents if agent is not None)
    assert [(call.row, call.cause, call.cached) for call in first.calls] == [(0, "", 2), (0, "", 2)]
    assert [(call.row, call.parent, call.cause) for call in second.calls] == [
        (0, None, ""),
        (None, None, ""),
        (1, 0, "branch"),
        (1, None, ""),
    ]
    assert second.calls[2].first_difference == "after '2+3': '=4' became '? '"
    assert (second.main_row, second.calls[3].reply) == (1, "yes")
    assert (third.outcome, third.calls, third.main_row) == ("timeout", (), None)


def test_the_system_messages_of_a_call_are_its_role(tokenizer: Tokenizer) -> None:
    def call(*messages: tuple[str, str]) -> RecordedCall:
        contents = [{"role": role, "content": content} for role, content in messages]
        return RecordedCall(tuple(tokenizer.encode("2+3=")), (5,), (-1.0,), 0, "stop", messages=contents)

    calls = [
        call(("system", "You solve."), ("user", "2+3")),
        call(("system", "You check."), ("user", "2+3")),
        call(("system", "You solve."), ("user", "4+4")),
        call(("user", "2+3")),
    ]
    completions = completions_of([calls], [result()], tokenizer, max_row_tokens=WIDTH)
    assert completions.episodes is not None
    agent = completions.episodes[0].agent
    assert agent is not None
    solver, critic, again, without = (one.role for one in agent.calls)
    assert solver == again != critic
    assert without == ""


def test_joined_completions_keep_their_forks(completions: Completions) -> None:
    joined = join_completions([completions, completions], [(0, 1), (1, 0), (1, 1)])
    assert joined.forks is not None
    assert joined.forks.owners.tolist() == [0, 2]
    assert joined.num_sampled.tolist() == completions.num_sampled[[1, 0, 1]].tolist()
    without = join_completions([completions], [(0, 0)])
    assert without.forks is not None
    assert len(without.forks.owners) == 0
    assert np.shape(without.forks.tokens) == (0, WIDTH)


def test_the_transcript_is_that_of_the_last_call() -> None:
    ask, reply = {"role": "user", "content": "2 + 3"}, {"role": "assistant", "content": "5"}
    plain = RecordedCall((1,), (10,), (0.0,), 0, "length")
    chat = RecordedCall((2,), (11,), (0.0,), 0, "stop", messages=[ask, ask], reply=reply)

    def transcript(*calls: RecordedCall) -> tuple[list[str], int, StopReason]:
        found = make_result(calls, AgentOutcome(), "", False, [ask], lambda ids: f"text of {ids[0]}")
        return [str(message["content"]) for message in found.messages], found.num_prompt_messages, found.stop_reason

    assert transcript(plain, chat) == (["2 + 3", "2 + 3", "5"], 2, StopReason.FINISHED)
    assert transcript(chat, plain) == (["text of 1", "text of 10"], 1, StopReason.MAX_TURN_TOKENS)
    assert transcript() == (["2 + 3"], 1, StopReason.ERROR)
