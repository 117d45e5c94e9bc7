"""Answers: finding them in a response, reading them, and comparing them with a reference.

- `extraction` finds the answer of a response.
- `numbers` reads single numbers with the words around them, and `units` the units among these words.
- `tokens`, `tree`, `expressions`, `commands` and `grammar` read everything else as a tree.
- `evaluation`, `scalars`, `equations`, `sets`, `matrices` and `equality` compare two trees.
- `comparison` compares an answer with a reference, tier by tier.
- `thorough` asks math-verify about answers that the grammar cannot read. `verifiers` runs it in other processes.
"""

from agent_tunix.rewards.answers.comparison import Comparison, Reference, Tier, compare_answers, read_reference
from agent_tunix.rewards.answers.extraction import (
    Extraction,
    Source,
    boxed_answer,
    extract_answer,
    extract_choice,
    find_answer,
    tagged_answer,
)
from agent_tunix.rewards.answers.numbers import Number, parse_number, read_number
from agent_tunix.rewards.answers.thorough import Question, Ruling, Verdict, set_thorough_runner, verify_thoroughly

__all__ = [
    "Comparison",
    "Extraction",
    "Number",
    "Question",
    "Reference",
    "Ruling",
    "Source",
    "Tier",
    "Verdict",
    "boxed_answer",
    "compare_answers",
    "extract_answer",
    "extract_choice",
    "find_answer",
    "parse_number",
    "read_number",
    "read_reference",
    "set_thorough_runner",
    "tagged_answer",
    "verify_thoroughly",
]
