"""A Hugging Face sequence-classification checkpoint as a reward.

torch and transformers run in one separate process (`program`), which keeps the model for the whole run. The trainer
never imports them. `reward` is the reward, `settings` its arguments, and `process` the trainer's side of that process.
"""

import importlib
from typing import Any

REWARD_MODELS = {"reward_model": "reward:RewardModel"}


def load_reward_model(name: str) -> Any:
    """Return a reward by name, without arguments: `load_reward_model("reward_model").bind("rm", {"path": …})`."""
    module, _, kind = REWARD_MODELS[name].partition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), kind)(name)
