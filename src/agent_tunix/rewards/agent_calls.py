"""Description of an agent's calls of the policy, as a tree where its rows of tokens fork."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from agent_tunix.visible_text import one_line

_LONGEST_REPLY = 80
_MOST_LINES = 200
_DEEPEST = 12


def describe_calls(agent: Mapping[str, Any]) -> list[str]:
    """Return one line for each row of tokens and for each call, a fork after the row from which it forked.

    Args:
        agent: An agent of `EpisodeSummary`.
    """
    calls = agent["calls"]
    rows: dict[int, list[tuple[int, Mapping[str, Any]]]] = {}
    for number, call in enumerate(calls, 1):
        if call["row"] is not None:
            rows.setdefault(call["row"], []).append((number, call))
    children: dict[int | None, list[int]] = {}
    for row, own in rows.items():
        children.setdefault(own[0][1]["parent"], []).append(row)

    lines = [f"agent      {agent['outcome']}, {len(calls)} calls of the policy in {len(rows)} rows of tokens"]
    waiting = [(row, 0) for row in reversed(children.get(None, []))]
    while waiting:
        row, depth = waiting.pop()
        indent = "   " * min(depth, _DEEPEST)
        lines.append(f"{indent}{_describe_row(row, rows[row][0][1], agent['main_row'])}")
        lines += [f"{indent}   {_describe_call(number, call)}" for number, call in rows[row]]
        waiting += [(child, depth + 1) for child in reversed(children.get(row, []))]
    lines += [
        f"not trained: {_describe_call(number, call)}, {call['finish_reason']}"
        for number, call in enumerate(calls, 1)
        if call["row"] is None
    ]
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [f"… {len(lines) - _MOST_LINES:,} lines omitted …"]
    return [one_line(line) for line in lines]


def count_forks(agents: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    """Return the number of rows that fork, by cause and first difference, in which `#` stands for any number."""
    return Counter(
        (call["cause"], re.sub(r"\d+", "#", call["first_difference"]))
        for agent in agents
        for call in agent["calls"]
        if call["cause"]
    )


def _describe_row(row: int, first: Mapping[str, Any], main_row: int | None) -> str:
    """Return the line of a row from its first call."""
    text = f"row {row} (transcript)" if row == main_row else f"row {row}"
    if first["cause"]:
        text += f", {first['cause']}"
    return f"{text}, {first['first_difference']}" if first["first_difference"] else text


def _describe_call(number: int, call: Mapping[str, Any]) -> str:
    reply = call["reply"] if len(call["reply"]) <= _LONGEST_REPLY else f"{call['reply'][:_LONGEST_REPLY]}…"
    return (
        f"call {number}: {call['prompt']} tokens, {call['cached']} of them kept, then {call['sampled']} sampled"
        f" in {call['seconds']:.2f} s: {reply!r}"
    )
