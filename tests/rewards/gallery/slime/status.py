"""Cut completions earn less; the tool calls of a rollout are counted where there are any."""

from slime.utils.types import Sample


async def reward_func(args, sample, **kwargs):
    score = 1.0 if f"<answer>{sample.label}</answer>" in sample.response else -1.0
    if sample.status == Sample.Status.TRUNCATED:
        score -= 0.5
    return score + 0.1 * getattr(sample, "tool_call_count", 0)
