"""Judges: rewards given by a language model at an OpenAI-compatible endpoint.

Importing this package imports neither judges nor an HTTP client. `JUDGES` maps names to classes, which `load_judge`
imports on demand.
"""

import importlib
from typing import Any

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"

JUDGES = {
    "judge": "grading:RubricJudge",
    "pairwise_judge": "pairwise:PairwiseJudge",
    "geval_judge": "geval:GEvalJudge",
}


def load_judge(name: str) -> Any:
    """Return a judge by name, without arguments: `load_judge("judge").bind("tone", {"model": …, "rubric": …})`."""
    module, _, kind = JUDGES[name].partition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), kind)(name)
