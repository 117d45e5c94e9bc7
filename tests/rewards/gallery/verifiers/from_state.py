"""The state holds the whole rollout."""

import verifiers as vf


async def reward(state: vf.State) -> float:
    replies = [message for message in state["completion"] if message["role"] == "assistant"]
    return float(len(replies) == 1 and state["answer"] in replies[0]["content"]) - 0.25 * state.get(
        "is_truncated", False
    )
