"""Columns of the row, by name and by keyword."""


def reward(prompts, completions, answer, solution=None, **kwargs):
    texts = [completion if isinstance(completion, str) else completion[-1]["content"] for completion in completions]
    wanted = solution or answer
    bonus = [0.5 if ability == "math" else 0.0 for ability in kwargs.get("ability", [None] * len(texts))]
    return [bonus[i] + float(wanted[i] in text) for i, text in enumerate(texts)]
