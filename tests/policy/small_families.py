"""A small directory of random weights of every family."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.tensors import list_tensors

_SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
_GEMMA: dict[str, Any] = {"query_pre_attn_scalar": 16, "sliding_window": 8, "hidden_activation": "gelu_pytorch_tanh"}

# model_type → what its config.json adds to the sizes.
FAMILIES: dict[str, dict[str, Any]] = {
    "gemma2": {**_GEMMA, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "gemma3_text": {**_GEMMA, "layer_types": ["sliding_attention", "full_attention"]},
    "llama": {"hidden_act": "silu", "tie_word_embeddings": False, "rope_theta": 500_000.0},
    "qwen2": {"hidden_act": "silu", "rope_theta": 1_000_000.0},
    "qwen3": {"hidden_act": "silu", "rope_theta": 1_000_000.0},
}


def make_family(directory: Path, model_type: str, **settings: Any) -> Path:
    """`config.json` and `model.safetensors`; the same weights for the same sizes."""
    directory.mkdir(parents=True, exist_ok=True)
    config = {"model_type": model_type, **_SIZES, **FAMILIES[model_type], **settings}
    (directory / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(0)
    tensors = {
        f"model.{tensor.name}" if tensor.name != "lm_head.weight" else tensor.name: (
            0.3 * rng.normal(size=tensor.shape)
            if len(tensor.shape) == 1
            else rng.normal(size=tensor.shape) / tensor.shape[-1] ** 0.5
        ).astype(np.float32)
        for tensor in list_tensors(read_architecture(directory))
    }
    save_file(tensors, directory / "model.safetensors")
    return directory
