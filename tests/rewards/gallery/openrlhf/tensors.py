"""A tensor where torch is installed; an array elsewhere."""

try:
    from torch import tensor
except ImportError:
    from numpy import array as tensor


def reward_func(queries, prompts, labels, **kwargs):
    lengths = [len(query) - len(prompt) for query, prompt in zip(queries, prompts)]
    reward = tensor([1.0 / (1 + length) for length in lengths])
    return {"rewards": reward, "scores": reward, "extra_logs": {"dummy_scores": reward}}
