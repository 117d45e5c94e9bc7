"""Metrics of episodes: turns, tool calls, stop reasons, scores of the environment, and calls of agents."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agent_tunix.rewards.sample import Sample
from agent_tunix.rewards.statistics.series import correlations

# Reasons why an episode was cut.
_LIMITS = ("max_turns", "max_turn_tokens", "max_episode_tokens")
_SUCCEEDED = ("ok", "too_long")
# Outcomes of calls that reached their tool.
_MADE = (*_SUCCEEDED, "tool_error")


def episode_metrics(samples: Sequence[Sample], totals: np.ndarray | None = None) -> dict[str, Any]:
    """Return metrics of turns, tool calls and environments; none for completions of one turn.

    Args:
        samples: Samples of a step or an evaluation.
        totals: [N] total of each sample, NaN if it has none, to correlate with the number of tool calls.
    """
    episodes = [sample.episode for sample in samples if sample.episode is not None]
    if not episodes:
        return {}
    count = len(episodes)
    turns = [episode.num_turns for episode in episodes]
    calls = [call for episode in episodes for call in episode.calls]
    knows_results = all(episode.agent is None for episode in episodes)  # an agent calls its tools itself
    row: dict[str, Any] = {
        "turns/mean": sum(turns) / count,
        "turns/max": max(turns),
        "turns/limit_share": sum(episode.stop_reason in _LIMITS for episode in episodes) / count,
        "tools/calls_mean": len(calls) / count,
        "tools/failure_share": _failure_share(calls) if knows_results else None,
        "tools/parse_errors": sum(call["outcome"] == "malformed" for call in calls) if knows_results else None,
        "tools/unread_calls": sum(len(episode.unread_calls) for episode in episodes) if knows_results else None,
        "environment/errors": sum(bool(episode.error) for episode in episodes),
    }
    reasons = Counter(episode.stop_reason for episode in episodes)
    row |= {f"stop_reasons/{reason}": reasons[reason] / count for reason in sorted(reasons)}
    forms = Counter(call["form"] for episode in episodes for call in episode.unread_calls)
    row |= {f"unread_calls/{form}": forms[form] for form in sorted(forms)}
    for name in sorted({call["name"] for call in calls if call["outcome"] in _MADE}):
        calls_made = [call for call in calls if call["name"] == name and call["outcome"] in _MADE]
        row[f"tools/{name}/calls"] = len(calls_made)
        if not knows_results:
            continue
        row[f"tools/{name}/errors"] = sum(call["outcome"] == "tool_error" for call in calls_made)
        row[f"time/tools/{name}_s"] = sum(call["seconds"] for call in calls_made) / len(calls_made)
    row |= agent_metrics([episode.agent for episode in episodes if episode.agent is not None])
    if totals is not None:
        counts = np.array([0 if s.episode is None else len(s.episode.calls) for s in samples], np.float64)
        (row["tools/reward_correlation"],) = correlations(totals[None], counts)
    values = [e.score.value for e in episodes if e.score is not None and e.score.value is not None]
    if values:
        row["environment/mean"] = float(np.mean(values))
        row["environment/std"] = float(np.std(values))
    return row


def _failure_share(calls: Sequence[Mapping[str, Any]]) -> float | None:
    return sum(call["outcome"] not in _SUCCEEDED for call in calls) / len(calls) if calls else None


def agent_metrics(agents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return metrics of the calls of agents, and of the rows of tokens that these make; none without agents.

    Args:
        agents: The agents of `EpisodeSummary`.
    """
    if not agents:
        return {}
    calls = [call for agent in agents for call in agent["calls"]]
    trained = [call for call in calls if call["row"] is not None]
    num_rows = [len({call["row"] for call in agent["calls"]} - {None}) for agent in agents]
    row: dict[str, Any] = {
        "agent/calls_mean": len(calls) / len(agents),
        "agent/calls_untrained": len(calls) - len(trained),
        "agent/rows_mean": sum(num_rows) / len(agents),
        "agent/forks": sum(max(count - 1, 0) for count in num_rows),
        "agent/forked_share": sum(count > 1 for count in num_rows) / len(agents),
        "agent/tokens_needed": sum(call["needed"] for call in trained),
        # What is kept depends on when calls arrive.
        "throughput/agent_tokens_read": sum(call["prompt"] - call["cached"] for call in trained),
    }
    causes = Counter(call["cause"] for call in trained if call["cause"])
    row |= {f"agent/fork_causes/{cause}": causes[cause] for cause in sorted(causes)}
    outcomes = Counter(agent["outcome"] for agent in agents)
    return row | {f"agent/outcomes/{outcome}": outcomes[outcome] for outcome in sorted(outcomes)}
