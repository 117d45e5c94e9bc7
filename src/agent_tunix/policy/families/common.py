"""Fields, defaults and refusals that families share."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from agent_tunix.errors import ModelError
from agent_tunix.policy.architecture import Architecture, LayerKind, Rope
from agent_tunix.policy.files.config_file import ConfigFile

# Keys of variants and of other architectures, with the values (besides null) that change nothing. A variant often keeps
# the name of its family, so the key is the only sign of it.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    # Positions that a token sees.
    "attention_chunk_size": (),
    "is_causal": (True,),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "use_bidirectional_attention": (False,),
    "use_sliding_window": (False,),
    # Position embeddings.
    "no_rope_layers": ([],),
    "no_rope_layer_interval": (0,),
    "partial_rotary_factor": (1.0,),
    "rope_interleaved": (False,),
    "rotary_pct": (1.0,),
    # Multipliers: Granite, MiniCPM, Cohere, Falcon-H1.
    "attention_multiplier": (),
    "attn_temperature_tuning": (False,),
    "clip_qkv": (),
    "dim_model_base": (),
    "embedding_multiplier": (1.0,),
    "lm_head_multiplier": (1.0,),
    "logit_scale": (1.0,),
    "logits_scaling": (1.0,),
    "residual_multiplier": (1.0,),
    "scale_depth": (),
    "scale_emb": (1.0,),
    "scale_embedding": (False,),
    "scale_embeddings": (False,),
    # Parts of a layer.
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "moe_intermediate_size": (0,),
    "n_routed_experts": (0,),
    "num_experts": (0,),
    "num_local_experts": (0,),
    "parallel_attn": (False,),
    "use_parallel_residual": (False,),
}


# Keys of bitsandbytes, GPTQ, AWQ and FP8; of compressed-tensors; of MLX.
_QUANTISED = ("quantization_config", "compression_config", "quantization")


# Features that only Gemma has.
_NEUTRAL_OUTSIDE_GEMMA: dict[str, tuple[Any, ...]] = {
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "query_pre_attn_scalar": (),
    "use_qk_norm": (False,),
}


def read_common(
    config: ConfigFile,
    default_kv_heads: int | None = None,
    default_head_dim: int | None = None,
    own_keys: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the fields that all families read from the same keys.

    Args:
        config: The file.
        default_kv_heads: Key and value heads if the file does not say.
        default_head_dim: Width of a head if the file does not say; None for an equal share of the hidden size.
        own_keys: Keys of variants that the family reads itself.
    """
    _refuse_variants(config, {key: values for key, values in _NEUTRAL.items() if key not in own_keys})
    hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    kv_heads = config.whole("num_key_value_heads", default_kv_heads)
    head_dim = config.whole("head_dim", default_head_dim or max(hidden // heads, 1))
    if heads % kv_heads:
        raise ModelError(
            f"{config.path}: num_attention_heads must be divisible by num_key_value_heads, but {heads} is not "
            f"divisible by {kv_heads}",
            code="invalid_model_config",
        )
    if head_dim % 2:
        raise ModelError(
            f"{config.path}: head_dim must be even, because rotary embeddings rotate pairs, not {head_dim}",
            code="invalid_model_config",
        )
    return {
        "model_type": config.get("model_type"),
        "vocab_size": config.whole("vocab_size"),
        "hidden_size": hidden,
        "intermediate_size": config.whole("intermediate_size"),
        "num_layers": config.whole("num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": head_dim,
        "norm_eps": config.number("rms_norm_eps"),
        "query_scale": head_dim**-0.5,
    }


def _refuse_variants(config: ConfigFile, neutral: Mapping[str, tuple[Any, ...]]) -> None:
    for name in _QUANTISED:
        if (value := config.get(name)) is not None:
            raise ModelError(
                f"{config.path}: the weights are quantised ({name} = {value!r:.100}), which is not supported; use "
                "the model before quantisation",
                code="unsupported_model",
            )
    for name, values in neutral.items():
        config.allow(name, *values)
    if own := [name for name in config.section("auto_map") if name.startswith("AutoModel")]:
        raise ModelError(
            f"{config.path}: auto_map names custom code of the model for {', '.join(own)}, which is never run; if "
            "the model does not need it, remove the key",
            code="unsupported_model",
        )


def read_plain(
    config: ConfigFile,
    common: dict[str, Any],
    kinds: tuple[LayerKind, ...] | None = None,
    rope: Mapping[LayerKind, Rope] | None = None,
    **features: Any,
) -> Architecture:
    """Return an architecture of Llama's kind with the features that a family adds."""
    _refuse_variants(config, _NEUTRAL_OUTSIDE_GEMMA)
    config.allow("hidden_act", "silu")
    kinds = kinds or config.layer_kinds(slides=None)
    return Architecture(
        **common,
        tied_embeddings=config.flag("tie_word_embeddings", False),
        activation="silu",
        layer_kinds=kinds,
        rope=rope or {"full_attention": config.rope(10_000.0)},
        window=read_window(config, kinds),
        **features,
    )


def read_window(config: ConfigFile, kinds: tuple[LayerKind, ...]) -> int | None:
    """Return the number of positions that sliding attention sees; None if no layer slides."""
    return config.whole("sliding_window") if "sliding_attention" in kinds else None


def read_text_of(config: ConfigFile, read: Callable[[ConfigFile], Architecture]) -> Architecture:
    """Read the text model of a model that has further parts, such as a vision tower."""
    _refuse_variants(config, _NEUTRAL)
    text = config.section("text_config")
    if not text:
        raise ModelError(
            f"{config.path} lacks 'text_config'; check that it was saved with the weights", code="invalid_model_config"
        )
    return replace(read(ConfigFile(config.path, text)), model_type=config.get("model_type"))
