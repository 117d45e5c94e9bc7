"""Agents that call a policy at random: they append, rewrite, summarise, branch, retry and call in parallel."""

import random
from collections.abc import Iterator

from agent_tunix.serving.calls import RecordedCall


class ScriptedPolicy:
    """Policy whose tokens are numbered, so that each is unique: 1000 for the first sampled token, and so on."""

    def __init__(self) -> None:
        self.calls: list[RecordedCall] = []
        self._next = 1000

    def call(self, prompt: tuple[int, ...], num_tokens: int, finish_reason: str = "stop") -> tuple[int, ...]:
        tokens = tuple(range(self._next, self._next + num_tokens))
        self._next += num_tokens
        logps = tuple(-float(token) for token in tokens)
        self.calls.append(RecordedCall(prompt, tokens, logps, 0, finish_reason))
        return tokens


def run_agent(seed: int, num_calls: int) -> ScriptedPolicy:
    """Return the policy after an agent of a seed has called it."""
    draw, policy = random.Random(seed), ScriptedPolicy()
    history = tuple(draw.choices(range(100), k=draw.randint(1, 6)))
    while len(policy.calls) < num_calls:
        reason = draw.choice(["stop", "stop", "stop", "length", "cancelled"])
        tokens = policy.call(history, draw.choice([0, 1, 1, 2, 5]), reason)
        history = draw.choice(list(_next_histories(draw, history, tokens)))
    return policy


def _next_histories(
    draw: random.Random, history: tuple[int, ...], tokens: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    reply = tuple(draw.choices(range(100), k=draw.randint(0, 4)))
    whole = history + tokens + reply
    yield from [whole] * 3  # appends
    yield history  # retries, or calls in parallel
    yield history + reply  # forgets its own turn
    yield whole[: draw.randint(1, len(whole))]  # goes back
    place = draw.randrange(len(whole))
    yield (*whole[:place], 7, *whole[place + 1 :])  # rewrites
    yield (*history[:1], *reply, 7)  # summarises
