"""`peft_config`: PEFT's `LoraConfig`, read by its attributes, so that PEFT need not be installed."""

import logging
import re
from collections.abc import Mapping
from typing import Any

from agent_tunix.errors import ConfigError
from agent_tunix.trl.config import refuse

_LOGGER = logging.getLogger("agent_tunix.trl")

# Attributes that name or place the adapter, or say what every adapter here is.
_UNNEEDED = ("task_type", "peft_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision",
             "inference_mode", "megatron_core", "qalora_group_size", "fan_in_fan_out", "runtime_config")  # fmt: skip
_READ = ("r", "lora_alpha", "target_modules", "lora_dropout")
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
            refuse(
                f"peft_config.{name}", value, "changes the adapter", "it is plain LoRA: r, lora_alpha, target_modules"
            )
    if dropout := given.get("lora_dropout"):
        _LOGGER.warning(
            "peft_config.lora_dropout=%s has no effect: adapters train without dropout here. GRPO loses nothing by it:"
            " tokens are sampled without dropout, so the ratios are those of one policy",
            dropout,
        )
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
