r"""The last `\boxed{…}` or the last word is the answer."""

import re


def reward_func(queries, prompts, labels, **kwargs):
    rewards = []
    for query, prompt, label in zip(queries, prompts, labels):
        response = query[len(prompt) :] if prompt in query else query
        boxes = re.findall(r"\\boxed\{([^}]*)\}", response)
        words = re.findall(r"\w+", response)
        given = boxes[-1] if boxes else (words[-1] if words else "")
        rewards.append(1.0 if given == label else 0.0)
    return {"rewards": rewards}
