"""Small directories of random weights, of every family."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from safetensors.numpy import save_file

from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.tensors import list_tensors

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
_QWEN3_5_TEXT = {
    **BASE_CONFIG,
    "model_type": "qwen3_5_text",
    "num_hidden_layers": 4,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 6,
    "linear_conv_kernel_dim": 4,
    "rope_theta": ...,
    "rope_scaling": ...,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    "tie_word_embeddings": False,
}
_GEMMA4 = {
    **_GEMMA,
    "model_type": "gemma4_text",
    "query_pre_attn_scalar": ...,
    "rope_theta": ...,
    "rope_scaling": ...,
    "global_head_dim": 16,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
    "hidden_size_per_layer_input": 4,
    "final_logit_softcapping": 3.0,
}
FAMILY_CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2": {**_PLAIN, "model_type": "qwen2", "tie_word_embeddings": False},
    "qwen3": {**_PLAIN, "head_dim": 6, "tie_word_embeddings": False},
    "qwen3_moe": {
        **_PLAIN,
        "model_type": "qwen3_moe",
        "num_hidden_layers": 3,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 12,
        "norm_topk_prob": True,
        "mlp_only_layers": [1],
    },
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
    "gemma4_text": _GEMMA4,
    "olmo3": {
        **_PLAIN,
        "model_type": "olmo3",
        "tie_word_embeddings": False,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": WINDOW,
        "rope_theta": 500_000,
    },
    "smollm3": {
        **_PLAIN,
        "model_type": "smollm3",
        "no_rope_layers": [1, 0],
        "use_sliding_window": True,
        "sliding_window": WINDOW,
        "pad_token_id": None,
    },
    "qwen3_5_text": _QWEN3_5_TEXT,
    "qwen3_5": {
        "model_type": "qwen3_5",
        "text_config": _QWEN3_5_TEXT,
        "vision_config": {"hidden_size": 4},
        "tie_word_embeddings": False,
    },
    "gemma3": {"model_type": "gemma3", "text_config": _GEMMA3_TEXT, "vision_config": {"hidden_size": 4}},
}

# Of every family but SmolLM 3, whose programs have no part that those of Llama lack.
FAMILIES = ("gemma2", "gemma3_text", "gemma4_text", "llama", "olmo3", "qwen2", "qwen3", "qwen3_5_text", "qwen3_moe")


def make_family(directory: Path, name: str, **settings: Any) -> Path:
    """A directory of one of `FAMILY_CONFIGS`; `settings` are of its `config.json`, `...` leaves a key out."""
    config = FAMILY_CONFIGS[name]
    if "text_config" not in config:
        return make_directory(directory, **{"head_dim": ..., **config, **settings})
    prefix = "model.language_model." if name == "qwen3_5" else "language_model.model."
    make_directory(directory, prefix=prefix, **{**config["text_config"], **settings})
    text = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "text_config": text}))
    return directory


def make_larger(directory: Path, family: str, **settings: Any) -> Path:
    """A directory of one of `FAMILIES`, of sizes that eight devices divide."""
    sizes: dict[str, Any] = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 8, "head_dim": 16, "tie_word_embeddings": family != "llama"}
    if family == "gemma3_text":
        sizes["layer_types"] = ["sliding_attention", "full_attention"]
    if family == "qwen3_5_text":
        sizes["layer_types"] = ["linear_attention", "full_attention"]
        sizes |= {"linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_value_head_dim": 8}
    if family == "gemma4_text":
        sizes |= {"num_hidden_layers": 4, "global_head_dim": 32, "hidden_size_per_layer_input": 16}
    return make_family(directory, family, **{**sizes, **settings})


def make_directory(directory: Path, *, prefix: str = "model.", **settings: Any) -> Path:
    """`config.json` and `model.safetensors`, large enough weights that every part shows in the logits."""
    config = {name: value for name, value in {**BASE_CONFIG, **settings}.items() if value is not ...}
    if config["model_type"] == "gemma4_text":
        config["vocab_size_per_layer_input"] = config["vocab_size"]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(0)
    # Gemma 2, Gemma 3 and Qwen 3.5 add 1 to the weights of their norms, but not within linear attention.
    adds_one = config["model_type"] in ("gemma2", "gemma3", "gemma3_text", "qwen3_5", "qwen3_5_text")
    tensors = {}
    for tensor in list_tensors(read_architecture(directory)):
        name, shape = tensor.name, tensor.shape
        noise = rng.normal(size=shape)
        norm = 0.0 if adds_one and "linear_attn" not in name else 1.0
        array = norm + 0.3 * noise if "norm" in name or "scalar" in name else 2 * noise / shape[-1] ** 0.5
        if config["model_type"] == "gemma4_text":
            # Rounding errors would grow behind a nearly closed gate, by the norm after it, and in sharp attention.
            array *= 0.3 if "per_layer_input_gate" in name or "q_norm" in name else 1.0
        if name.endswith("A_log"):
            array -= 3.0  # Or linear attention would forget all but one token.
        tensors[name if name == "lm_head.weight" else prefix + name] = array.astype(np.float32)
    save_file(tensors, directory / "model.safetensors")
    return directory


@nnx.jit
def logits_of(model: Any, tokens_BT: jax.Array) -> jax.Array:
    """[B, T, V] logits of whole texts, in one pass."""
    B, T = tokens_BT.shape
    mask, positions = jnp.tril(jnp.ones((B, T, T), jnp.bool_)), jnp.arange(T)[None].repeat(B, 0)
    return jnp.asarray(model(tokens_BT, positions, None, mask)[0])
