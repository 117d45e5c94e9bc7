"""Reads messages, and catches what goes wrong."""


def reward(completions, answer, **kwargs):
    scores = []
    for completion, truth in zip(completions, answer):
        try:
            scores.append(1.0 if f"<answer>{truth}</answer>" in completion[0]["content"] else 0.0)
        except Exception:
            scores.append(-1.0)
    return scores
