"""A Hugging Face sequence-classification checkpoint as a reward.

torch and transformers run in one process beside the trainer's (`program`), which holds the model once for the whole
run; here are the reward (`reward`), its arguments (`settings`) and the trainer's end of that process (`process`).
Importing this package loads none of them.
"""

import importlib
from typing import Any

REWARD_MODELS = {"reward_model": "reward:RewardModel"}


def load_reward_model(name: str) -> Any:
    """The reward of a name, yet without its arguments: `load_reward_model("reward_model").bind("rm", {"path": …})`."""
    module, _, kind = REWARD_MODELS[name].partition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), kind)(name)
