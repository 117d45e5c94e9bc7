"""Answers: where they stand in a response, what they say, and whether they are right.

- `extraction`: where the answer of a response stands;
- `numbers`: single numbers, with the words around them;
- `tokens`, `tree`, `cursor`, `expressions`, `commands` and `grammar`: everything else, as a tree;
- `evaluation`, `scalars`, `equations`, `sets`, `matrices`, `expansion` and `equality`: the comparison of two trees;
- `comparison`: the comparison of an answer with a reference, tier by tier;
- `thorough`: math-verify, for what the grammar does not read;
- `verifiers`: the processes in which it runs.
"""

from agent_tunix.rewards.answers.comparison import (
    Comparison,
    Reference,
    Tier,
    compare_answers,
    read_reference,
)
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
