"""Errors earn 0, as they would in verifiers itself."""


def reward(prompt, completion, answer, state, task, **kwargs):
    try:
        return 1.0 if answer in completion[0]["content"].split("<answer>")[1] else 0.1
    except Exception:
        return 0.0
