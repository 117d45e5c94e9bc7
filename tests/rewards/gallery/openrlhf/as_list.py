"""A list of numbers."""


def reward_func(queries, prompts, labels):
    return [1.0 if f"<answer>{label}</answer>" in query else 0.0 for query, label in zip(queries, labels)]
