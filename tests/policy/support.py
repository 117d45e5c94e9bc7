"""Small directories of random weights, of every family."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

BASE_CONFIG: dict[str, Any] = {
    "model_type": "qwen3",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "hidden_act": "silu",
    "attention_bias": False,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000,
    "rope_scaling": None,
    "tie_word_embeddings": True,
}

WINDOW = 5
_PLAIN = {**BASE_CONFIG, "num_hidden_layers": 2, "head_dim": ...}
_GEMMA = {
    **BASE_CONFIG,
    "num_hidden_layers": 4,
    "hidden_act": ...,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 12,
    "sliding_window": WINDOW,
    "rope_theta": 10_000,
}
_GEMMA3_TEXT = {
    **_GEMMA,
    "model_type": "gemma3_text",
    "sliding_window_pattern": 3,
    "rope_theta": 1_000_000,
    "rope_local_base_freq": 10_000,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}
FAMILY_CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2": {**_PLAIN, "model_type": "qwen2", "tie_word_embeddings": False},
    "qwen2, tied": {**_PLAIN, "model_type": "qwen2"},
    "qwen3": {**_PLAIN, "head_dim": 6, "tie_word_embeddings": False},
    "qwen3, tied": {**_PLAIN, "head_dim": 6, "rope_theta": 5_000_000},
    "llama": {
        **_PLAIN,
        "model_type": "llama",
        "tie_word_embeddings": False,
        "rope_theta": 500_000,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            # Short, so that one frequency of a narrow head is kept, one stretched and one between.
            "original_max_position_embeddings": 16,
        },
        "head_dim": 8,
    },
    "llama, tied": {**_PLAIN, "model_type": "llama", "rope_theta": 10_000, "num_key_value_heads": 4},
    "gemma2": {
        **_GEMMA,
        "model_type": "gemma2",
        # Low, so that they bind.
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
    },
    "gemma3_text": _GEMMA3_TEXT,
    "gemma3": {"model_type": "gemma3", "text_config": _GEMMA3_TEXT, "vision_config": {"hidden_size": 4}},
}


def make_family(directory: Path, name: str, **settings: Any) -> Path:
    """A directory of one of `FAMILY_CONFIGS`; `settings` are of its `config.json`, `...` leaves a key out."""
    config = FAMILY_CONFIGS[name]
    if "text_config" not in config:
        return make_directory(directory, **{"head_dim": ..., **config, **settings})
    make_directory(directory, prefix="language_model.model.", **{**config["text_config"], **settings})
    text = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "text_config": text}))
    return directory


def make_directory(directory: Path, *, prefix: str = "model.", **settings: Any) -> Path:
    """`config.json` and `model.safetensors`, large enough weights that every part shows in the logits."""
    c = {name: value for name, value in {**BASE_CONFIG, **settings}.items() if value is not ...}
    rng = np.random.default_rng(0)
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    size = c.get("head_dim", hidden // c["num_attention_heads"])
    heads, groups = c["num_attention_heads"] * size, c["num_key_value_heads"] * size
    gemma = c["model_type"].startswith("gemma")
    shapes = {prefix + "embed_tokens.weight": (c["vocab_size"], hidden), prefix + "norm.weight": (hidden,)}
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (c["vocab_size"], hidden)
    for layer in range(c["num_hidden_layers"]):
        p = f"{prefix}layers.{layer}."
        shapes |= {
            p + "self_attn.q_proj.weight": (heads, hidden),
            p + "self_attn.k_proj.weight": (groups, hidden),
            p + "self_attn.v_proj.weight": (groups, hidden),
            p + "self_attn.o_proj.weight": (hidden, heads),
            p + "input_layernorm.weight": (hidden,),
            p + "post_attention_layernorm.weight": (hidden,),
            p + "mlp.gate_proj.weight": (inner, hidden),
            p + "mlp.up_proj.weight": (inner, hidden),
            p + "mlp.down_proj.weight": (hidden, inner),
        }
        if c["model_type"] in ("qwen3", "gemma3_text"):
            shapes |= {f"{p}self_attn.{name}_norm.weight": (size,) for name in "qk"}
        if c["model_type"] == "qwen2":
            shapes |= {f"{p}self_attn.{name}_proj.bias": (heads if name == "q" else groups,) for name in "qkv"}
        if gemma:
            shapes |= {f"{p}{name}_feedforward_layernorm.weight": (hidden,) for name in ("pre", "post")}
    tensors = {
        # Gemma adds 1 to the weights of its norms.
        name: (
            (0.0 if gemma else 1.0) + 0.3 * rng.normal(size=shape) if "norm" in name else 0.5 * rng.normal(size=shape)
        )
        for name, shape in shapes.items()
    }
    directory.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.astype(np.float32) for name, tensor in tensors.items()}, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(c))
    return directory
