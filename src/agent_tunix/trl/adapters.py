"""`peft_config`: PEFT's `LoraConfig`, read by its attributes, so that PEFT need not be installed."""

import re
from collections.abc import Mapping
from typing import Any

from agent_tunix.errors import ConfigError
from agent_tunix.trl.config import refuse

# Attributes that name or place the adapter, or say what every adapter here is.
_UNNEEDED = ("task_type", "peft_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision",
             "inference_mode", "megatron_core", "qalora_group_size", "fan_in_fan_out", "runtime_config")  # fmt: skip
_READ = ("r", "lora_alpha", "target_modules")
# Values of the other attributes that change nothing.
_NEUTRAL: tuple[Any, ...] = (None, False, 0, 0.0, "none", (), [], {}, set())
# The modules that PEFT adapts in these architectures if `target_modules` is None.
_DEFAULT_MODULES = ("q_proj", "v_proj")


def adapter_values(peft: Any) -> Mapping[str, Any]:
    """Return the keys of an adapter.

    Args:
        peft: A `LoraConfig` of PEFT, a mapping of its attributes, or None to train all weights.

    Raises:
        ConfigError: It is no LoRA, or has a part that adapters here do not have.
    """
    if peft is None:
        return {"model.lora_rank": 0}
    given = dict(peft) if isinstance(peft, Mapping) else dict(vars(peft))
    if "r" not in given:
        raise ConfigError(
            f"peft_config must be a LoraConfig, not {type(peft).__name__}; adapters here are LoRA",
            code="unsupported_argument",
        )
    for name, value in given.items():
        is_default = name == "init_lora_weights" and value is True
        if name not in (*_READ, *_UNNEEDED) and not name.startswith("_") and not is_default and value not in _NEUTRAL:
            plain_lora = "adapters are plain LoRA without dropout (--lora_dropout 0): r, lora_alpha, target_modules"
            refuse(f"peft_config.{name}", value, "changes the adapter", plain_lora)
    return {
        "model.lora_rank": given["r"],
        "model.lora_alpha": given.get("lora_alpha", 8),
        "model.lora_init": "peft",
        "model.lora_module_path": _module_path(given.get("target_modules")),
    }


def _module_path(modules: Any) -> str | None:
    """Return the pattern of the names of modules that get an adapter; None for all projections."""
    if modules == "all-linear":
        return None
    if isinstance(modules, str):
        return modules
    names = "|".join(re.escape(name) for name in sorted(modules or _DEFAULT_MODULES))
    return rf"(.*\.)?({names})"
