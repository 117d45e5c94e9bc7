"""The `config.json` of published models, less most keys that no model is computed by, and their sizes."""

from typing import Any, NamedTuple


class Published(NamedTuple):
    """A model of the Hugging Face hub.

    Attributes:
        config: Of its `config.json`, as it is published.
        parameters: As its page counts them, a tied embedding once, vision included.
        vision_parameters: How many of them are those of a vision tower and what joins it to the text.
    """

    config: dict[str, Any]
    parameters: int
    vision_parameters: int = 0


_SIGLIP = 416_866_032  # SigLIP so400m with patches of 14, for pictures of 896 × 896, without its head.
_SIGLIP_WIDTH = 1152


_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")


def _sized(common: dict[str, Any], parameters: int, *sizes: int, **others: Any) -> Published:
    """A model with sizes in the order of `_SIZES`, and what else its file says."""
    return Published({**common, **dict(zip(_SIZES, sizes, strict=False)), **others}, parameters)


def _with_vision(parameters: int, *sizes: int, **others: Any) -> Published:
    """Gemma 3 with a vision tower; `sizes` are of its text model."""
    text = {
        "model_type": "gemma3_text",
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
        **dict(zip(_SIZES, sizes, strict=False)),
        **others,
    }
    vision = {
        "hidden_size": _SIGLIP_WIDTH,
        "image_size": 896,
        "intermediate_size": 4304,
        "model_type": "siglip_vision_model",
        "num_attention_heads": 16,
        "num_hidden_layers": 27,
        "patch_size": 14,
        "vision_use_head": False,
    }
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "mm_tokens_per_image": 256,
        "model_type": "gemma3",
        "text_config": text,
        "vision_config": vision,
    }
    return Published(config, parameters, _SIGLIP + _SIGLIP_WIDTH * sizes[0] + _SIGLIP_WIDTH)


_QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "max_window_layers": 21,
    "model_type": "qwen2",
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "use_sliding_window": False,
}
_QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "max_position_embeddings": 40960,
    "model_type": "qwen3",
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
_QWEN3_5_TEXT = {
    "attention_bias": False,
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_act": "silu",
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 262144,
    "model_type": "qwen3_5_text",
    "rms_norm_eps": 1e-06,
    "rope_parameters": {
        "mrope_interleaved": True,
        "mrope_section": [11, 11, 10],
        "partial_rotary_factor": 0.25,
        "rope_theta": 10000000,
        "rope_type": "default",
    },
    "tie_word_embeddings": True,
    "vocab_size": 248320,
}
_EXPERTS = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "decoder_sparse_step": 1,
    "max_window_layers": 48,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_experts": 128,
    "num_experts_per_tok": 8,
}
_LLAMA3 = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "vocab_size": 128256,
}
_SMOLLM3 = {
    "architectures": ["SmolLM3ForCausalLM"],
    "attention_bias": False,
    "hidden_act": "silu",
    "layer_types": ["full_attention"] * 36,
    "max_position_embeddings": 65536,
    "mlp_bias": False,
    "model_type": "smollm3",
    "no_rope_layer_interval": 4,
    "no_rope_layers": [1, 1, 1, 0] * 9,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 5000000.0,
    "sliding_window": None,
    "use_sliding_window": False,
    "vocab_size": 128256,
}
_OLMO3 = {
    "architectures": ["Olmo3ForCausalLM"],
    "attention_bias": False,
    "hidden_act": "silu",
    "max_position_embeddings": 65536,
    "model_type": "olmo3",
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "attention_factor": 1.2079441541679836,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 8.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "yarn",
    },
    "rope_theta": 500000,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "vocab_size": 100278,
}


def _stretched(factor: float) -> dict[str, Any]:
    bounds = {"high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192}
    return {"factor": factor, "rope_type": "llama3", **bounds}


_GEMMA2 = {
    "architectures": ["Gemma2ForCausalLM"],
    "attention_bias": False,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 8192,
    "model_type": "gemma2",
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "vocab_size": 256000,
}
_GEMMA3_TEXT = {
    "architectures": ["Gemma3ForCausalLM"],
    "attention_bias": False,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 32768,
    "model_type": "gemma3_text",
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "vocab_size": 262144,
}
_GEMMA4_TEXT = {
    "architectures": ["Gemma4ForCausalLM"],
    "attention_k_eq_v": False,
    "enable_moe_block": False,
    "final_logit_softcapping": 30.0,
    "global_head_dim": 512,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size_per_layer_input": 256,
    "max_position_embeddings": 131072,
    "model_type": "gemma4_text",
    "num_attention_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {
        "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
    },
    "sliding_window": 512,
    "tie_word_embeddings": True,
    "use_bidirectional_attention": None,
    "vocab_size": 262144,
    "vocab_size_per_layer_input": 262144,
}


def _qwen3_5(parameters: int, *sizes: int, **others: Any) -> Published:
    """A model of Qwen 3.5, of which the text model alone is counted, as transformers counts it."""
    layer_types = [*["linear_attention"] * 3, "full_attention"] * (sizes[2] // 4)
    text = _sized(_QWEN3_5_TEXT, 0, *sizes, layer_types=layer_types, **others).config
    config = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": text}
    return Published({**config, "tie_word_embeddings": True}, parameters)


PUBLISHED: dict[str, Published] = {
    "Qwen/Qwen2.5-0.5B-Instruct": _sized(
        {**_QWEN2, "tie_word_embeddings": True, "vocab_size": 151936}, 494_032_768, 896, 4864, 24, 14, 2
    ),
    "Qwen/Qwen2.5-7B-Instruct": _sized(
        {**_QWEN2, "tie_word_embeddings": False, "vocab_size": 152064}, 7_615_616_512, 3584, 18944, 28, 28, 4
    ),
    "Qwen/Qwen3-0.6B": _sized(_QWEN3, 596_049_920, 1024, 3072, 28, 16, tie_word_embeddings=True),
    "Qwen/Qwen3.5-0.8B": _qwen3_5(752_393_024, 1024, 3584, 24, 8, 2),
    "Qwen/Qwen3.5-2B": _qwen3_5(1_881_825_088, 2048, 6144, 24, 8, 2),
    "Qwen/Qwen3.5-4B": _qwen3_5(4_205_751_296, 2560, 9216, 32, 16, 4, linear_num_value_heads=32),
    "Qwen/Qwen3-4B-Instruct-2507": _sized(
        {**_QWEN3, "rope_theta": 5000000, "tie_word_embeddings": True}, 4_022_468_096, 2560, 9728, 36, 32
    ),
    "Qwen/Qwen3-32B": _sized(_QWEN3, 32_762_123_264, 5120, 25600, 64, 64, tie_word_embeddings=False),
    "Qwen/Qwen3-30B-A3B": _sized(
        {**_QWEN3, **_EXPERTS}, 30_532_122_624, 2048, 6144, 48, 32, 4, tie_word_embeddings=False
    ),
    "meta-llama/Llama-3.2-1B-Instruct": _sized(
        {**_LLAMA3, "head_dim": 64, "rope_scaling": _stretched(32.0), "tie_word_embeddings": True},
        *(1_235_814_400, 2048, 8192, 16, 32),
    ),
    "meta-llama/Llama-3.1-8B-Instruct": _sized(
        {**_LLAMA3, "rope_scaling": _stretched(8.0), "tie_word_embeddings": False}, 8_030_261_248, 4096, 14336, 32, 32
    ),
    "HuggingFaceTB/SmolLM3-3B": _sized(_SMOLLM3, 3_075_098_624, 2048, 11008, 36, 16, 4),
    "allenai/Olmo-3-7B-Instruct": _sized(_OLMO3, 7_298_011_136, 4096, 11008, 32, 32, 32),
    "allenai/Olmo-3.1-32B-Instruct": _sized(_OLMO3, 32_233_522_176, 5120, 27648, 64, 40, 8),
    "google/gemma-2-2b-it": _sized(_GEMMA2, 2_614_341_888, 2304, 9216, 26, 8, 4),
    "google/gemma-2-27b-it": _sized(
        *(_GEMMA2, 27_227_128_320, 4608, 36864, 46, 32, 16),
        head_dim=128,
        query_pre_attn_scalar=144,
        sliding_window_size=4096,
        use_bidirectional_attention=None,
    ),
    # The text models, each layer's scalar counted.
    "google/gemma-4-E2B-it": _sized(
        *(_GEMMA4_TEXT, 4_628_569_379, 1536, 6144, 35, 8, 1),
        layer_types=[*["sliding_attention"] * 4, "full_attention"] * 7,
        num_kv_shared_layers=20,
        use_double_wide_mlp=True,
    ),
    "google/gemma-4-E4B-it": _sized(
        *(_GEMMA4_TEXT, 7_463_013_418, 2560, 10240, 42, 8, 2),
        num_kv_shared_layers=18,
        use_double_wide_mlp=False,
    ),
    "google/gemma-3-270m-it": _sized(
        *(_GEMMA3_TEXT, 268_098_176, 640, 2048, 18),
        layer_types=[*["sliding_attention"] * 5, "full_attention"] * 3,
        use_bidirectional_attention=False,
    ),
    "google/gemma-3-1b-it": _sized(_GEMMA3_TEXT, 999_885_952, 1152, 6912, 26, sliding_window_pattern=6),
    "google/gemma-3-4b-it": _with_vision(4_300_079_472, 2560, 10240, 34),
    "google/gemma-3-27b-it": _with_vision(
        27_432_406_640, 5376, 21504, 62, 32, 16, head_dim=128, query_pre_attn_scalar=168
    ),
}
