"""An environment with a tool of its own."""

import verifiers as vf
from datasets import Dataset


def calculator(expression: str) -> str:
    """Calculate an arithmetic expression.

    Args:
        expression: The expression, such as `3 * 4`.
    """
    a, sign, b = expression.split()
    return str({"+": int(a) + int(b), "*": int(a) * int(b)}[sign])


def correct(completion, answer):
    """Score 1 if the last message has the answer."""
    return 1.0 if answer in str(completion[-1].content) else 0.0


def load_environment(num_train: int = 32) -> vf.Environment:
    """Return products of two-digit numbers."""
    pairs = [(11 + number, 89 - number) for number in range(num_train)]
    rows = [{"question": f"What is {a} * {b}?", "answer": str(a * b)} for a, b in pairs]
    return vf.ToolEnv(
        dataset=Dataset.from_list(rows), tools=[calculator], rubric=vf.Rubric(funcs=[correct]), max_turns=3
    )
