"""Gemma: 2, 3 and 4."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.errors import ModelError
from agent_tunix.policy.architecture import Architecture, LayerKind, Rope
from agent_tunix.policy.families.common import read_common, read_text_of, read_window
from agent_tunix.policy.files.config_file import ConfigFile


def _read_gemma(config: ConfigFile, rope: Mapping[LayerKind, Rope], pattern: int, **features: Any) -> Architecture:
    config.allow("hidden_activation", "gelu_pytorch_tanh")
    config.allow("tie_word_embeddings", True)
    common = read_common(config)
    kinds = config.layer_kinds(lambda layer: (layer + 1) % pattern != 0)
    return Architecture(
        **{**common, "query_scale": config.number("query_pre_attn_scalar") ** -0.5},
        tied_embeddings=True,
        activation="gelu_tanh",
        layer_kinds=kinds,
        rope=rope,
        window=read_window(config, kinds),
        output_norms=True,
        norm_offset=1.0,
        embedding_scale=common["hidden_size"] ** 0.5,
        attention_softcap=config.cap("attn_logit_softcapping"),
        final_softcap=config.cap("final_logit_softcapping"),
        **features,
    )


_GEMMA_DEFAULTS = {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}


_GEMMA2_DEFAULTS = {
    **_GEMMA_DEFAULTS,
    "vocab_size": 256_000,
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
}


_GEMMA3_DEFAULTS = {**_GEMMA_DEFAULTS, "vocab_size": 262_208}


def read_gemma2(config: ConfigFile) -> Architecture:
    """Read Gemma 2 (https://arxiv.org/abs/2408.00118)."""
    config = config.with_defaults(_GEMMA2_DEFAULTS)
    rope = config.rope(10_000.0)
    return _read_gemma(config, {"full_attention": rope, "sliding_attention": rope}, pattern=2)


def read_gemma3_text(config: ConfigFile) -> Architecture:
    """Read Gemma 3, text only (https://arxiv.org/abs/2503.19786)."""
    config = config.with_defaults(_GEMMA3_DEFAULTS)
    rope: dict[LayerKind, Rope] = {
        "full_attention": config.rope_of("full_attention", "rope_theta", 1_000_000.0),
        "sliding_attention": config.rope_of("sliding_attention", "rope_local_base_freq", 10_000.0),
    }
    return _read_gemma(config, rope, pattern=config.whole("sliding_window_pattern", 6), qk_norm=True)


def read_gemma3(config: ConfigFile) -> Architecture:
    """Read the text model of a Gemma 3 with a vision tower."""
    config.allow("tie_word_embeddings", True)
    return read_text_of(config, read_gemma3_text)


_GEMMA4_DEFAULTS = {
    **_GEMMA_DEFAULTS,
    "vocab_size": 262_144,
    "vocab_size_per_layer_input": 262_144,
    "num_hidden_layers": 30,
    "global_head_dim": 512,
    "hidden_size_per_layer_input": 256,
    "sliding_window": 512,
}


_GEMMA4_ROPE: dict[LayerKind, dict[str, Any]] = {
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
    "sliding_attention": {"rope_theta": 10_000.0},
}


def read_gemma4_text(config: ConfigFile) -> Architecture:
    """Read Gemma 4, text only, without experts (https://huggingface.co/docs/transformers/model_doc/gemma4)."""
    config = config.with_defaults({**_GEMMA4_DEFAULTS, "rope_parameters": _GEMMA4_ROPE})
    for name, neutral in (("enable_moe_block", False), ("attention_k_eq_v", False), ("tie_word_embeddings", True)):
        config.allow(name, neutral)
    config.allow("hidden_activation", "gelu_pytorch_tanh")
    config.allow("vocab_size_per_layer_input", config.whole("vocab_size"))
    common = read_common(config, own_keys=("use_bidirectional_attention",))
    config.allow("use_bidirectional_attention", "vision")  # "vision" does not affect text
    kinds = config.layer_kinds(lambda layer: (layer + 1) % 6 != 0)
    kinds = (*kinds[:-1], "full_attention")
    num_borrowing = config.get("num_kv_shared_layers", 0) and config.whole("num_kv_shared_layers")
    own = set(kinds[: len(kinds) - num_borrowing])
    if own != set(kinds):
        raise ModelError(
            f"{config.path}: num_kv_shared_layers must leave layers of each kind with keys and values of their own,"
            f" but {num_borrowing} of {len(kinds)} layers use those of others",
            code="invalid_model_config",
        )
    return Architecture(
        **{**common, "query_scale": 1.0},
        tied_embeddings=True,
        activation="gelu_tanh",
        layer_kinds=kinds,
        rope={kind: config.rope_of(kind, "rope_theta", 10_000.0) for kind in sorted(set(kinds))},
        window=read_window(config, kinds),
        qk_norm=True,
        output_norms=True,
        embedding_scale=common["hidden_size"] ** 0.5,
        final_softcap=config.cap("final_logit_softcapping"),
        global_head_dim=_global_head_dim(config, kinds),
        value_norm=True,
        num_borrowing_layers=num_borrowing,
        wide_borrowing_mlps=config.flag("use_double_wide_mlp", False),
        layer_embedding_size=config.get("hidden_size_per_layer_input") and config.whole("hidden_size_per_layer_input"),
        layer_scalars=True,
    )


def _global_head_dim(config: ConfigFile, kinds: Sequence[LayerKind]) -> int:
    """Return the width of a head in layers that see all positions, from `global_head_dim` or `per_layer_config`."""
    by_layer = config.section("per_layer_config")
    if not by_layer:
        return config.whole("global_head_dim")
    expected = {str(layer) for layer, kind in enumerate(kinds) if kind == "full_attention"}
    values = [ConfigFile(config.path, value) for value in by_layer.values() if isinstance(value, dict)]
    found = {json.dumps(value.values, sort_keys=True) for value in values}
    if set(by_layer) != expected or len(found) != 1 or set(values[0].values) != {"head_dim"}:
        raise ModelError(
            f"{config.path}: per_layer_config must give head_dim, the same, to each layer of full_attention and nothing"
            f" else, not {by_layer!r:.200}",
            code="unsupported_model",
        )
    return values[0].whole("head_dim")


def read_gemma4(config: ConfigFile) -> Architecture:
    """Read the text model of a Gemma 4 with towers for images and sounds."""
    config.allow("tie_word_embeddings", True)
    return read_text_of(config, read_gemma4_text)
