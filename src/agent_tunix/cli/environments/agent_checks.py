"""Checks of an agent with a scripted policy: what it calls, whether its calls continue one another, what it returns.

| check | passes if |
| --- | --- |
| `signature` | the function can be called as an agent, or the command can be read |
| `calls` | it calls the policy |
| `history` | each call continues an earlier one; a fork is a note, with the first text that differs |
| `deterministic` | a second rollout calls the policy with the same prompts; otherwise it is a note |
| `result` | it returns a score, or None, which is a note |
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_tunix.config.schema import ModelConfig, PromptConfig
from agent_tunix.data.episode_prompts import EpisodeEncoder
from agent_tunix.environments.agents import (
    AgentLimits,
    AgentOutcome,
    AgentPool,
    AgentRecipe,
    AgentRun,
    check_agent,
    open_agents,
)
from agent_tunix.environments.checks import CheckStatus, EnvironmentFinding, EnvironmentReport
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.directory import find_model_directory
from agent_tunix.serving.app import create_app
from agent_tunix.serving.calls import RecordedCall
from agent_tunix.serving.chat import ChatEncoder
from agent_tunix.serving.policy_service import PolicyService
from agent_tunix.serving.recorder import RolloutRecorder
from agent_tunix.serving.rows import make_rows
from agent_tunix.serving.running import serving
from agent_tunix.serving.scripted import ScriptedSource
from agent_tunix.serving.settings import PolicySettings

_MOST_CALLS = 100
_MOST_TOKENS = 1_000_000


def check_with_script(
    recipe: AgentRecipe, row: Mapping[str, Any], replies: Sequence[str], timeout_s: float
) -> EnvironmentReport:
    """Run an agent twice against a policy that says the same replies, and report what it did.

    Args:
        recipe: The agent.
        row: Row of the dataset.
        replies: Text of each reply; the last one is repeated.
        timeout_s: Wall time of a rollout.

    Raises:
        UnknownEnvironmentError, InvalidEnvironmentError: The agent cannot be found or loaded.
    """
    agent = check_agent(recipe)
    report = EnvironmentReport()
    form = "a command" if agent is None else f"{recipe.spec}{inspect.signature(agent.function)}"
    shared = "; the rollouts of a group share a process" if agent is not None and agent.is_shared else ""
    report.findings.append(EnvironmentFinding("signature", "passed", f"{form}{shared}"))
    tokenizer = Tokenizer(find_model_directory(ModelConfig(path="embedded:tiny_tools")), PromptConfig())
    with open_agents(recipe, AgentLimits(timeout_s)) as pool:
        calls, outcome, refused = _run(pool, tokenizer, row, replies)
        again = _run(pool, tokenizer, row, replies)[0]
    report.findings += _describe(calls, again, outcome, refused, tokenizer)
    return report


def _run(
    pool: AgentPool, tokenizer: Tokenizer, row: Mapping[str, Any], replies: Sequence[str]
) -> tuple[Sequence[RecordedCall], AgentOutcome, str]:
    """Return the calls of one rollout, what became of it, and why a call was refused."""
    script = iter(replies)
    source = ScriptedSource(tokenizer, lambda _: next(script, replies[-1]))
    recorder = RolloutRecorder(max_calls=_MOST_CALLS)
    # The policy that will train has another tokenizer and context.
    settings = PolicySettings(port=0, accepts_any_model=True, max_context=_MOST_TOKENS)
    service = PolicyService(
        source, tokenizer, settings, ChatEncoder(EpisodeEncoder(tokenizer, PromptConfig())), recorder
    )
    rollout = recorder.open("0")
    outcomes: list[AgentOutcome] = []
    with serving(create_app(service), settings) as url:
        pool.run([AgentRun(row, url, rollout.key)], lambda _, outcome: outcomes.append(outcome))
    return recorder.close(rollout.key), outcomes[0], rollout.refused


def _describe(
    calls: Sequence[RecordedCall],
    again: Sequence[RecordedCall],
    outcome: AgentOutcome,
    refused: str,
    tokenizer: Tokenizer,
) -> Iterator[EnvironmentFinding]:
    if not calls:
        text = f"no call reached the policy{f'; one was refused: {refused}' if refused else ''}"
        yield EnvironmentFinding("calls", "failed", text)
    else:
        sampled = sum(len(call.tokens) for call in calls)
        status: CheckStatus = "note" if refused else "passed"
        text = f"{len(calls)} calls, {sampled} tokens{f'; then one was refused: {refused}' if refused else ''}"
        yield EnvironmentFinding("calls", status, text)
        rows = make_rows(calls, lambda ids: "".join(tokenizer.pieces(ids)))
        forks = [f"call {one.calls[0] + 1} forks ({one.cause}): {one.first_difference}" for one in rows[1:]]
        yield EnvironmentFinding("history", "note" if forks else "passed", "; ".join(forks) or "one row of tokens")
        is_equal = [call.prompt for call in calls] == [call.prompt for call in again]
        text = "" if is_equal else "a second rollout had other prompts, so equal seeds do not give equal tokens"
        yield EnvironmentFinding("deterministic", "passed" if is_equal else "note", text)
    if outcome.kind != "ok":
        yield EnvironmentFinding("result", "failed", f"{outcome.kind}: {outcome.message}")
    elif outcome.score is None:
        yield EnvironmentFinding("result", "note", "it returned None; a reward function has to score the transcript")
    else:
        parts = ", ".join(f"{name} {value:g}" for name, value in outcome.score.components.items() if value is not None)
        value = "not applicable" if outcome.score.value is None else f"{outcome.score.value:g}"
        yield EnvironmentFinding("result", "passed", f"{value}{f' ({parts})' if parts else ''}")
