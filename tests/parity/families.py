"""What is compared with transformers: small sizes of every family. Loads no torch."""

from typing import Any

WINDOW = 5
# That of the embedded model's tokenizer, with which the sampler decodes.
VOCAB_SIZE = 1024
_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN_ROPE = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64}
_MOE = {
    **_SIZES,
    "head_dim": 16,
    "rope_theta": 1e6,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
}
_GEMMA3_TEXT: dict[str, Any] = {
    **_SIZES,
    "num_hidden_layers": 3,
    "sliding_window_pattern": 2,
    "head_dim": 16,
    "sliding_window": WINDOW,
    "query_pre_attn_scalar": 24,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}
_GEMMA4_TEXT: dict[str, Any] = {
    **_SIZES,
    "vocab_size_per_layer_input": VOCAB_SIZE,
    "num_hidden_layers": 6,
    "head_dim": 8,
    "global_head_dim": 16,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 3,
    "hidden_size_per_layer_input": 8,
    "final_logit_softcapping": 100.0,  # lower, logits of random weights are equal in float32
}
_VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
_QWEN3_5_TEXT: dict[str, Any] = {
    **_SIZES,
    "num_hidden_layers": 4,
    "head_dim": 16,
    # The first token of a text reads a state that holds nothing else. If its q·k is nearly 0, a norm with a small
    # epsilon amplifies the rounding, in transformers as here: one such logit was 3e-4 from float64 in both.
    "rms_norm_eps": 1e-3,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.5},
}
_QWEN3_5_VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "depth": 1,
    "num_heads": 2,
    "out_hidden_size": 32,
    "patch_size": 4,
    "num_position_embeddings": 16,
}
# What is compared → class, configuration class and values.
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Qwen 2.5": ("Qwen2ForCausalLM", "Qwen2Config", {**_SIZES, "rope_theta": 1e6}),
    "Qwen 2.5, tied": ("Qwen2ForCausalLM", "Qwen2Config", {**_SIZES, "rope_theta": 1e6, "tie_word_embeddings": True}),
    "Qwen 3": ("Qwen3ForCausalLM", "Qwen3Config", {**_SIZES, "head_dim": 16, "rope_theta": 5e6}),
    "Qwen 3, tied": (
        "Qwen3ForCausalLM",
        "Qwen3Config",
        {**_SIZES, "head_dim": 16, "rope_theta": 1e6, "tie_word_embeddings": True},
    ),
    "Qwen 3, experts": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {**_MOE, "norm_topk_prob": True}),
    # Layers of both kinds, and weights of experts that do not sum to 1.
    "Qwen 3, experts, mixed": (
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        {**_MOE, "num_hidden_layers": 4, "decoder_sparse_step": 2, "mlp_only_layers": [3], "norm_topk_prob": False},
    ),
    "Qwen 3.5, text": ("Qwen3_5ForCausalLM", "Qwen3_5TextConfig", _QWEN3_5_TEXT),
    "Qwen 3.5, with vision, tied": (
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5Config",
        {
            "text_config": {**_QWEN3_5_TEXT, "tie_word_embeddings": True},
            "vision_config": _QWEN3_5_VISION,
            "tie_word_embeddings": True,
        },
    ),
    "Llama 3": ("LlamaForCausalLM", "LlamaConfig", {**_SIZES, "rope_theta": 5e5}),
    "Llama 3.2, tied, stretched": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {**_SIZES, "rope_theta": 5e5, "tie_word_embeddings": True, "rope_scaling": _LLAMA3_ROPE},
    ),
    "SmolLM 3": ("SmolLM3ForCausalLM", "SmolLM3Config", {**_SIZES, "rope_theta": 5e6, "no_rope_layer_interval": 2}),
    "OLMo 3": (
        "Olmo3ForCausalLM",
        "Olmo3Config",
        {**_SIZES, "num_hidden_layers": 4, "rope_theta": 5e5, "sliding_window": WINDOW},
    ),
    # Without layers that slide, because only some versions of transformers leave those unstretched.
    "OLMo 3, stretched": (
        "Olmo3ForCausalLM",
        "Olmo3Config",
        {**_SIZES, "layer_types": ["full_attention"] * 2, "rope_theta": 5e5, "rope_scaling": _YARN_ROPE},
    ),
    "Gemma 2": (
        "Gemma2ForCausalLM",
        "Gemma2Config",
        {
            **_SIZES,
            "head_dim": 16,
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 24,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 8.0,
        },
    ),
    "Gemma 3, text": ("Gemma3ForCausalLM", "Gemma3TextConfig", _GEMMA3_TEXT),
    "Gemma 4, text": ("Gemma4ForCausalLM", "Gemma4TextConfig", _GEMMA4_TEXT),
    "Gemma 4, text, wide MLPs": (
        "Gemma4ForCausalLM",
        "Gemma4TextConfig",
        {**_GEMMA4_TEXT, "use_double_wide_mlp": True},
    ),
    "Gemma 4, with vision": (
        "Gemma4ForConditionalGeneration",
        "Gemma4Config",
        {
            "text_config": {**_GEMMA4_TEXT, "pad_token_id": 0},
            "vision_config": {**_VISION, "num_key_value_heads": 2, "head_dim": 8},
            # Pictures and sounds have ids outside the vocabulary.
            **{f"{kind}_token_id": VOCAB_SIZE + n for n, kind in enumerate(("image", "audio", "video"))},
        },
    ),
    "Gemma 3, with vision": (
        "Gemma3ForConditionalGeneration",
        "Gemma3Config",
        {"text_config": _GEMMA3_TEXT, "vision_config": _VISION, "mm_tokens_per_image": 4},
    ),
}
