"""Judges: rewards given by a language model, at an OpenAI-compatible endpoint or on the devices of this machine.

Importing this package imports neither judges nor an HTTP client. `JUDGES` maps names to classes, which `load_judge`
imports on demand.
"""

import importlib
import re
from pathlib import Path
from typing import Any

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"
MAX_CONCURRENCY = 16  # if no judge sets it

JUDGES = {
    "judge": "grading:RubricJudge",
    "pairwise_judge": "pairwise:PairwiseJudge",
    "geval_judge": "geval:GEvalJudge",
}


_PACKAGE = Path(__file__).resolve().parents[2]
# Directories of the files of `conf/model`: that of the working directory, of the package and of a checkout.
_CONF_DIRECTORIES = (Path("conf"), _PACKAGE / "conf", _PACKAGE.parents[1] / "conf")


def is_local_model(model: str, base_url: str | None = None) -> bool:
    """Return True if a judge's model is sampled on the devices of this machine, and not asked at an endpoint.

    Such a model has no `base_url`, and is a path, an address on a hub, or the name of a file of `conf/model`.
    """
    return not base_url and ("/" in model or model.startswith("embedded:") or find_model_file(model) is not None)


def find_model_file(name: str) -> Path | None:
    """Return the file of `conf/model` with a name; None if there is none."""
    if not re.fullmatch(r"\w+", name):
        return None
    files = (directory / "model" / f"{name}.yaml" for directory in _CONF_DIRECTORIES)
    return next((file for file in files if file.is_file()), None)


def load_judge(name: str) -> Any:
    """Return a judge by name, without arguments: `load_judge("judge").bind("tone", {"model": …, "rubric": …})`."""
    module, _, kind = JUDGES[name].partition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), kind)(name)
