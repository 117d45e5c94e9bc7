"""Sizes of the models of `conf/model`, to plan a run before anything is downloaded.

The values are those of each model's `config.json`, as published on its page. Entries that planning does not need, such
as those of rotary embeddings, are left out. Loads no JAX.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ModelError
from agent_tunix.policy.architecture import Architecture
from agent_tunix.policy.families import parse_architecture, read_architecture
from agent_tunix.policy.files.config_file import ConfigFile
from agent_tunix.policy.files.directory import find_cached_directory, local_directory
from agent_tunix.policy.files.location import parse_location

_QWEN2 = {"model_type": "qwen2", "vocab_size": 151_936, "rms_norm_eps": 1e-6, "tie_word_embeddings": True}
_QWEN3 = {**_QWEN2, "model_type": "qwen3", "num_key_value_heads": 8, "head_dim": 128}
_QWEN3_MOE = {
    **_QWEN3,
    "model_type": "qwen3_moe",
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
}
# The text model. Heads of linear attention that differ from these are given with the size.
_QWEN3_5 = {**_QWEN2, "model_type": "qwen3_5_text", "vocab_size": 248_320, "linear_num_value_heads": 16}
_LLAMA3 = {
    "model_type": "llama",
    "vocab_size": 128_256,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
_SMOLLM3 = {"model_type": "smollm3", "vocab_size": 128_256, "num_key_value_heads": 4, "rms_norm_eps": 1e-6}
_OLMO3 = {"model_type": "olmo3", "vocab_size": 100_278, "sliding_window": 4096, "rms_norm_eps": 1e-6}
_GEMMA2 = {"model_type": "gemma2", "vocab_size": 256_000}
_GEMMA3 = {"model_type": "gemma3_text", "vocab_size": 262_144, "sliding_window": 512}
# The text model of models that have a vision tower.
_GEMMA3_VISION = {"model_type": "gemma3_text", "vocab_size": 262_208, "sliding_window": 1024}
_GEMMA4 = {"model_type": "gemma4_text", "final_logit_softcapping": 30.0}

_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
_UNTIED = {"tie_word_embeddings": False}


def _sized(common: Mapping[str, Any], *sizes: int, **others: Any) -> dict[str, Any]:
    return {**common, **dict(zip(_SIZES, sizes, strict=True)), **others}


# Name on the hub → values of its config.json.
KNOWN_MODELS: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-0.5B-Instruct": _sized(_QWEN2, 896, 4864, 24, 14, num_key_value_heads=2),
    "Qwen/Qwen2.5-1.5B-Instruct": _sized(_QWEN2, 1536, 8960, 28, 12, num_key_value_heads=2),
    "Qwen/Qwen2.5-3B-Instruct": _sized(_QWEN2, 2048, 11008, 36, 16, num_key_value_heads=2),
    "Qwen/Qwen2.5-7B-Instruct": _sized(
        _QWEN2, 3584, 18944, 28, 28, num_key_value_heads=4, vocab_size=152_064, **_UNTIED
    ),
    "Qwen/Qwen3-0.6B": _sized(_QWEN3, 1024, 3072, 28, 16),
    "Qwen/Qwen3-1.7B": _sized(_QWEN3, 2048, 6144, 28, 16),
    "Qwen/Qwen3-4B": _sized(_QWEN3, 2560, 9728, 36, 32),
    "Qwen/Qwen3-8B": _sized(_QWEN3, 4096, 12288, 36, 32, **_UNTIED),
    "Qwen/Qwen3-14B": _sized(_QWEN3, 5120, 17408, 40, 40, **_UNTIED),
    "Qwen/Qwen3-32B": _sized(_QWEN3, 5120, 25600, 64, 64, **_UNTIED),
    "Qwen/Qwen3-30B-A3B": _sized(_QWEN3_MOE, 2048, 6144, 48, 32, num_key_value_heads=4, **_UNTIED),
    "Qwen/Qwen3.5-0.8B": _sized(_QWEN3_5, 1024, 3584, 24, 8, num_key_value_heads=2),
    "Qwen/Qwen3.5-2B": _sized(_QWEN3_5, 2048, 6144, 24, 8, num_key_value_heads=2),
    "Qwen/Qwen3.5-4B": _sized(_QWEN3_5, 2560, 9216, 32, 16, num_key_value_heads=4, linear_num_value_heads=32),
    "meta-llama/Llama-3.2-1B-Instruct": _sized(_LLAMA3, 2048, 8192, 16, 32, head_dim=64),
    "meta-llama/Llama-3.2-3B-Instruct": _sized(_LLAMA3, 3072, 8192, 28, 24, head_dim=128),
    "meta-llama/Llama-3.1-8B-Instruct": _sized(_LLAMA3, 4096, 14336, 32, 32, **_UNTIED),
    "HuggingFaceTB/SmolLM3-3B": _sized(_SMOLLM3, 2048, 11008, 36, 16),
    "allenai/Olmo-3-7B-Instruct": _sized(_OLMO3, 4096, 11008, 32, 32),
    "google/gemma-2-2b-it": _sized(_GEMMA2, 2304, 9216, 26, 8),
    "google/gemma-2-9b-it": _sized(_GEMMA2, 3584, 14336, 42, 16, num_key_value_heads=8),
    "google/gemma-4-E2B-it": _sized(
        *(_GEMMA4, 1536, 6144, 35, 8),
        num_key_value_heads=1,
        layer_types=[*["sliding_attention"] * 4, "full_attention"] * 7,
        num_kv_shared_layers=20,
        use_double_wide_mlp=True,
    ),
    "google/gemma-4-E4B-it": _sized(_GEMMA4, 2560, 10240, 42, 8, num_key_value_heads=2, num_kv_shared_layers=18),
    "google/gemma-3-270m-it": _sized(_GEMMA3, 640, 2048, 18, 4, num_key_value_heads=1),
    "google/gemma-3-1b-it": _sized(_GEMMA3, 1152, 6912, 26, 4, num_key_value_heads=1),
    "google/gemma-3-4b-it": _sized(_GEMMA3_VISION, 2560, 10240, 34, 8),
    "google/gemma-3-12b-it": _sized(_GEMMA3_VISION, 3840, 15360, 48, 16, num_key_value_heads=8),
    "google/gemma-3-27b-it": _sized(_GEMMA3_VISION, 5376, 21504, 62, 32, num_key_value_heads=16, head_dim=128),
}


def plannable_architecture(config: ModelConfig) -> Architecture:
    """Return the architecture of the model that `model.path` names, from this disk or from the table; asks no hub.

    Raises:
        ModelError: The model is on a hub, but neither on this disk nor in the table; or its `config.json` is damaged.
    """
    location = parse_location(config.path)
    if location is None:
        return read_architecture(local_directory(config.path))
    directory = find_cached_directory(config)
    if directory is not None:
        return read_architecture(directory)
    name = location.name
    if name not in KNOWN_MODELS:
        raise ModelError(
            f"model.path={config.path} requires a known size, but is neither on this disk nor in the table; download "
            "its config.json into a directory and set model.path=DIR, or plan for one of "
            + ", ".join(f"hf://{model}" for model in KNOWN_MODELS),
            code="unknown_model",
        )
    return parse_architecture(ConfigFile(Path(f"{name}/config.json"), KNOWN_MODELS[name]))
