"""Errors are caught, as many public files do."""


def reward_func(queries, prompts, labels, **kwargs):
    rewards = []
    for query, label in zip(queries, labels):
        try:
            rewards.append(float(query.split("<answer>")[1].split("</answer>")[0] == label))
        except Exception:
            rewards.append(-1.0)
    return rewards
