"""Rewards, scores for filtering, and logs; arrays in place of tensors."""

import numpy as np


def reward_func(queries, prompts, labels, **kwargs):
    responses = [query[len(prompt) :] for query, prompt in zip(queries, prompts)]
    right = np.array([float(str(label) in response) for response, label in zip(responses, labels)])
    return {
        "rewards": 2 * right - 1,
        "scores": right,
        "extra_logs": {"mean_length": np.mean([len(r) for r in responses])},
    }
