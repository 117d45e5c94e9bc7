"""Numbers to find, for the environment `guess_number`, made from a seed alone.

There are only ten numbers, so both splits have all of them. The words of the question are in one split only.
"""

import random
from typing import Any, Literal

Split = Literal["train", "test"]

LOW, HIGH = 1, 10
MOST_ROWS = 1_000_000

_QUESTIONS = {
    "train": ("Find my number.", "Guess the number.", "What is my number?", "Find the number I have in mind."),
    "test": ("Guess my number.", "Find the number.", "What is the number I have in mind?"),
}


def make_numbers(split: Split, count: int, seed: int) -> list[dict[str, Any]]:
    """Return rows for `guess_number`; each ten rows have every number once, in a random order.

    The same arguments give the same rows on every machine, and fewer rows are a prefix of more.

    Args:
        split: Split to draw from; the two share no question.
        count: Number of rows, 0 to `MOST_ROWS`.
        seed: Any integer; decides the questions and the order of the numbers.

    Returns:
        `count` rows ``{"question": "Find my number.", "target": 7}``.

    Raises:
        ValueError: The split is unknown, or the count is out of range.
    """
    if split not in _QUESTIONS:
        raise ValueError(f'split must be "train" or "test"; got {split!r}')
    if not 0 <= count <= MOST_ROWS:
        raise ValueError(f"count must be between 0 and {MOST_ROWS}; got {count}")
    # Python guarantees only random() to give the same sequence in every version, so all choices are built on it.
    uniform = random.Random(seed).random
    questions = _QUESTIONS[split]
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        for target in sorted(range(LOW, HIGH + 1), key=lambda _: uniform()):
            rows.append({"question": questions[int(uniform() * len(questions))], "target": target})
    return rows[:count]
