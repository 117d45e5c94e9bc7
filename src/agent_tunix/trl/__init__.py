"""TRL's names for a run of this package: change `from trl import …` to `from agent_tunix.trl import …`.

    from agent_tunix.trl import GRPOConfig, GRPOTrainer

    trainer = GRPOTrainer(model="Qwen/Qwen3-0.6B", reward_funcs=reward, train_dataset=dataset)
    trainer.train()

`TrlParser`, `ModelConfig` and other helpers of scripts come from TRL itself, if it is installed.
"""

import importlib
from typing import TYPE_CHECKING, Any

from agent_tunix.trl.config import GRPOConfig

if TYPE_CHECKING:
    from agent_tunix.trl.trainer import GRPOTrainer

__all__ = ["GRPOConfig", "GRPOTrainer"]

# Names that read a script's arguments or rows. They are TRL's own, because they have no part in training.
_OF_TRL = (
    *("DatasetMixtureConfig", "ModelConfig", "ScriptArguments", "TrlParser", "get_dataset", "get_peft_config"),
    *("get_quantization_config", "get_kbit_device_map", "is_conversational", "maybe_apply_chat_template"),
    *("LogCompletionsCallback", "RichProgressCallback", "extract_prompt", "apply_chat_template"),
)


def __getattr__(name: str) -> Any:
    if name == "GRPOTrainer":
        return importlib.import_module("agent_tunix.trl.trainer").GRPOTrainer
    if name.startswith("_"):
        raise AttributeError(name)
    if name not in _OF_TRL:
        raise ImportError(
            f"agent_tunix.trl has no {name}: it has {', '.join(__all__)}, and passes on {', '.join(_OF_TRL)} from TRL;"
            f" import {name} from trl, or see docs/from-trl.md for what replaces it"
        )
    try:
        return getattr(importlib.import_module("trl"), name)
    except ImportError as error:
        raise ImportError(f"{name} is TRL's own, and trl is not installed here: pip install trl ({error})") from error
