"""The rewards that come with the package, one family per file.

Importing this package imports no family. `BUILTINS` maps each name to its module, which the registry loads when the
name is first used. The function of the reward `x` is called `x_reward`.
"""

import enum
import math
from dataclasses import dataclass


class Kind(enum.StrEnum):
    """The property that a reward measures. It decides which checks apply to the reward."""

    CORRECTNESS = "correctness"
    """Correctness of the answer: the gold solution earns the most, and form alone does not earn it."""

    FORM = "form"
    """Form of the response, regardless of its answer."""

    LENGTH = "length"
    """Length of the response."""

    QUALITY = "quality"
    """Style of the response."""

    COMPOSITE = "composite"
    """Correctness and something else: a right answer always earns more than a wrong one, regardless of length."""


@dataclass(frozen=True, slots=True)
class Builtin:
    """Facts about a built-in reward with values from `low` to `high`, known without importing it."""

    family: str  # module of this package that holds the reward
    kind: Kind  # the property that it measures
    low: float = 0.0
    high: float = 1.0
    isolated: bool = False  # True if it runs code that a model wrote, in a new process for each call
    # Package that may run text written by a model, for which the reward gets isolated workers; "" if none.
    library: str = ""
    may_hang: bool = False  # True if a call may take forever, so that it runs in a worker, which has a time limit


# Arguments of built-ins that limit time and memory. Only the configuration may set them, not a row of the dataset.
LIMITS = ("timeout_s", "memory_mb")

BUILTINS = {
    "math": Builtin("correctness", Kind.CORRECTNESS),
    "debug": Builtin("correctness", Kind.CORRECTNESS),
    "check_answer": Builtin("correctness", Kind.CORRECTNESS, -1.0, 3.0),
    "check_numbers": Builtin("correctness", Kind.CORRECTNESS, 0.0, 1.5),
    "answer_correctness": Builtin("correctness", Kind.CORRECTNESS),
    "multiple_choice": Builtin("text", Kind.CORRECTNESS),
    "exact_match": Builtin("text", Kind.CORRECTNESS),
    "f1": Builtin("text", Kind.CORRECTNESS),
    "overlap": Builtin("grounding", Kind.QUALITY),
    "citations": Builtin("grounding", Kind.QUALITY),
    "format": Builtin("form", Kind.FORM),
    "format_and_content": Builtin("form", Kind.COMPOSITE),
    "match_format_exactly": Builtin("form", Kind.FORM, 0.0, 3.0),
    "match_format_approximately": Builtin("form", Kind.FORM, -2.0, 2.0),
    "think_format": Builtin("tags", Kind.FORM),
    "tag_count": Builtin("tags", Kind.FORM),
    "reasoning_tags": Builtin("tags", Kind.FORM),
    "step_format": Builtin("structure", Kind.FORM),
    "multi_line": Builtin("structure", Kind.FORM),
    "response_structure": Builtin("structure", Kind.FORM),
    "conciseness": Builtin("length", Kind.COMPOSITE),
    "response_length": Builtin("length", Kind.LENGTH),
    "soft_overlong": Builtin("length", Kind.LENGTH, -1.0, 0.0),
    "cosine_length": Builtin("length", Kind.COMPOSITE, -1.0, 1.0),
    "multi_aspect": Builtin("quality", Kind.COMPOSITE),
    "shaped": Builtin("quality", Kind.COMPOSITE),
    "diverse": Builtin("quality", Kind.COMPOSITE),
    "ngram_repetition": Builtin("quality", Kind.QUALITY, -1.0, 0.0),
    "language_consistency": Builtin("language", Kind.QUALITY),
    "curriculum": Builtin("curriculum", Kind.COMPOSITE),
    "code_format": Builtin("code", Kind.FORM),
    "valid_python": Builtin("code", Kind.FORM),
    "code_tests": Builtin("code_tests", Kind.CORRECTNESS, isolated=True),
    "json_schema": Builtin("schema", Kind.FORM, may_hang=True),
    "reasoning_gym": Builtin("tasks", Kind.CORRECTNESS, library="reasoning_gym"),
    "environment": Builtin("environment", Kind.QUALITY, -math.inf, math.inf),
    "agent": Builtin("environment", Kind.QUALITY, -math.inf, math.inf),
}

FAMILIES = {name: builtin.family for name, builtin in BUILTINS.items()}
