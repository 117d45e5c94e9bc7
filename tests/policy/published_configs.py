"""What the `config.json` of published models says, less the keys that no model is computed by, and their sizes."""

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


def _with_vision(text: dict[str, Any], parameters: int) -> Published:
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "boi_token_index": 255999,
        "eoi_token_index": 256000,
        "eos_token_id": [1, 106],
        "image_token_index": 262144,
        "initializer_range": 0.02,
        "mm_tokens_per_image": 256,
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
            **text,
        },
        "torch_dtype": "bfloat16",
        "transformers_version": "4.50.0.dev0",
        "vision_config": {
            "hidden_size": _SIGLIP_WIDTH,
            "image_size": 896,
            "intermediate_size": 4304,
            "model_type": "siglip_vision_model",
            "num_attention_heads": 16,
            "num_hidden_layers": 27,
            "patch_size": 14,
            "vision_use_head": False,
        },
    }
    return Published(config, parameters, _SIGLIP + _SIGLIP_WIDTH * text["hidden_size"] + _SIGLIP_WIDTH)


_QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_position_embeddings": 32768,
    "model_type": "qwen2",
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.43.1",
    "use_cache": True,
    "use_sliding_window": False,
}
_QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_position_embeddings": 40960,
    "model_type": "qwen3",
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.51.0",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
_LLAMA3 = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 128256,
}
_LLAMA3_ROPE = {
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
_GEMMA2 = {
    "architectures": ["Gemma2ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_logit_softcapping": 50.0,
    "bos_token_id": 2,
    "cache_implementation": "hybrid",
    "eos_token_id": 1,
    "final_logit_softcapping": 30.0,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "initializer_range": 0.02,
    "max_position_embeddings": 8192,
    "model_type": "gemma2",
    "pad_token_id": 0,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 256000,
}
_GEMMA3_TEXT = {
    "architectures": ["Gemma3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_logit_softcapping": None,
    "bos_token_id": 2,
    "eos_token_id": [1, 106],
    "final_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "initializer_range": 0.02,
    "max_position_embeddings": 32768,
    "model_type": "gemma3_text",
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 262144,
}

PUBLISHED: dict[str, Published] = {
    "Qwen/Qwen2.5-0.5B-Instruct": Published(
        {
            **_QWEN2,
            "hidden_size": 896,
            "intermediate_size": 4864,
            "max_window_layers": 21,
            "num_attention_heads": 14,
            "num_hidden_layers": 24,
            "num_key_value_heads": 2,
            "sliding_window": 32768,
            "tie_word_embeddings": True,
            "vocab_size": 151936,
        },
        494_032_768,
    ),
    "Qwen/Qwen2.5-7B-Instruct": Published(
        {
            **_QWEN2,
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "max_window_layers": 28,
            "num_attention_heads": 28,
            "num_hidden_layers": 28,
            "num_key_value_heads": 4,
            "sliding_window": 131072,
            "tie_word_embeddings": False,
            "vocab_size": 152064,
        },
        7_615_616_512,
    ),
    "Qwen/Qwen3-0.6B": Published(
        {
            **_QWEN3,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "max_window_layers": 28,
            "num_attention_heads": 16,
            "num_hidden_layers": 28,
            "tie_word_embeddings": True,
        },
        596_049_920,
    ),
    "Qwen/Qwen3-4B-Instruct-2507": Published(
        {
            **_QWEN3,
            "hidden_size": 2560,
            "intermediate_size": 9728,
            "max_position_embeddings": 262144,
            "max_window_layers": 36,
            "num_attention_heads": 32,
            "num_hidden_layers": 36,
            "rope_theta": 5000000,
            "tie_word_embeddings": True,
        },
        4_022_468_096,
    ),
    "Qwen/Qwen3-32B": Published(
        {
            **_QWEN3,
            "hidden_size": 5120,
            "intermediate_size": 25600,
            "max_window_layers": 64,
            "num_attention_heads": 64,
            "num_hidden_layers": 64,
            "tie_word_embeddings": False,
        },
        32_762_123_264,
    ),
    "meta-llama/Llama-3.2-1B-Instruct": Published(
        {
            **_LLAMA3,
            "head_dim": 64,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_attention_heads": 32,
            "num_hidden_layers": 16,
            "rope_scaling": {**_LLAMA3_ROPE, "factor": 32.0},
            "tie_word_embeddings": True,
        },
        1_235_814_400,
    ),
    "meta-llama/Llama-3.2-3B-Instruct": Published(
        {
            **_LLAMA3,
            "head_dim": 128,
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "num_attention_heads": 24,
            "num_hidden_layers": 28,
            "rope_scaling": {**_LLAMA3_ROPE, "factor": 32.0},
            "tie_word_embeddings": True,
        },
        3_212_749_824,
    ),
    "meta-llama/Llama-3.1-8B-Instruct": Published(
        {
            **_LLAMA3,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "rope_scaling": {**_LLAMA3_ROPE, "factor": 8.0},
            "tie_word_embeddings": False,
        },
        8_030_261_248,
    ),
    "google/gemma-2-2b-it": Published(
        {
            **_GEMMA2,
            "head_dim": 256,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_attention_heads": 8,
            "num_hidden_layers": 26,
            "num_key_value_heads": 4,
            "query_pre_attn_scalar": 256,
        },
        2_614_341_888,
    ),
    "google/gemma-2-9b-it": Published(
        {
            **_GEMMA2,
            "head_dim": 256,
            "hidden_size": 3584,
            "intermediate_size": 14336,
            "num_attention_heads": 16,
            "num_hidden_layers": 42,
            "num_key_value_heads": 8,
            "query_pre_attn_scalar": 256,
            "sliding_window_size": 4096,
        },
        9_241_705_984,
    ),
    "google/gemma-2-27b-it": Published(
        {
            **_GEMMA2,
            "head_dim": 128,
            "hidden_size": 4608,
            "intermediate_size": 36864,
            "num_attention_heads": 32,
            "num_hidden_layers": 46,
            "num_key_value_heads": 16,
            "query_pre_attn_scalar": 144,
            "sliding_window_size": 4096,
            "use_bidirectional_attention": None,
        },
        27_227_128_320,
    ),
    "google/gemma-3-270m-it": Published(
        {
            **_GEMMA3_TEXT,
            "_sliding_window_pattern": 6,
            "hidden_size": 640,
            "intermediate_size": 2048,
            "layer_types": [*["sliding_attention"] * 5, "full_attention"] * 3,
            "num_hidden_layers": 18,
            "use_bidirectional_attention": False,
        },
        268_098_176,
    ),
    "google/gemma-3-1b-it": Published(
        {
            **_GEMMA3_TEXT,
            "cache_implementation": "hybrid",
            "hidden_size": 1152,
            "intermediate_size": 6912,
            "num_hidden_layers": 26,
            "sliding_window_pattern": 6,
        },
        999_885_952,
    ),
    "google/gemma-3-4b-it": _with_vision(
        {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}, 4_300_079_472
    ),
    "google/gemma-3-12b-it": _with_vision(
        {
            "hidden_size": 3840,
            "intermediate_size": 15360,
            "num_attention_heads": 16,
            "num_hidden_layers": 48,
            "num_key_value_heads": 8,
        },
        12_187_325_040,
    ),
    "google/gemma-3-27b-it": _with_vision(
        {
            "head_dim": 128,
            "hidden_size": 5376,
            "intermediate_size": 21504,
            "num_attention_heads": 32,
            "num_hidden_layers": 62,
            "num_key_value_heads": 16,
            "query_pre_attn_scalar": 168,
        },
        27_432_406_640,
    ),
}
