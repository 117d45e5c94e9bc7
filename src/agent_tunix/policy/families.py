"""Functions that read an `Architecture` from a `config.json`, one for each family; loads no JAX.

A missing key has the default of the family's configuration class in transformers, if files of the family rely on it:
Gemma 3's files leave out most keys, while Llama's and Qwen's contain every size. A feature that the decoder does not
have is refused under its name in the file; it is never ignored.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_tunix.errors import ModelError
from agent_tunix.policy.architecture import Architecture, DeltaNetSizes, LayerKind, Rope
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


def read_architecture(directory: Path) -> Architecture:
    """Return the architecture that the `config.json` of a directory describes.

    Raises:
        ModelError: The file is not JSON, a required key is missing or invalid, or the family or a feature is not
            supported.
    """
    return parse_architecture(ConfigFile.read(directory / "config.json"))


def parse_architecture(config: ConfigFile) -> Architecture:
    """Return the architecture that the values of a `config.json` describe.

    Raises:
        ModelError: See `read_architecture`.
    """
    model_type = config.get("model_type")
    family = FAMILIES.get(str(model_type))
    if family is None:
        raise ModelError(
            f"{config.path}: model_type must be one of {', '.join(FAMILIES)}, not {model_type!r}",
            code="unsupported_model_type",
        )
    return family(config)


def family_of(name: str) -> str:
    """Return the family of a name from a user or a `config.json`: `qwen2` for `Qwen2.5`, `gemma3` for `gemma3_text`."""
    plain = re.sub(r"[-_. ]", "", name.lower())
    return _OTHER_NAMES.get(plain, plain)


_OTHER_NAMES = {
    "gemma3text": "gemma3",
    "gemma4text": "gemma4",
    **dict.fromkeys(("llama3", "llama31", "llama32", "llama33"), "llama"),
    "olmo31": "olmo3",
    "qwen25": "qwen2",
    **dict.fromkeys(("qwen35", "qwen35text"), "qwen3_5"),
    "qwen3moe": "qwen3_moe",
}


def _common(
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
            code="invalid_value",
        )
    if head_dim % 2:
        raise ModelError(
            f"{config.path}: head_dim must be even, because rotary embeddings rotate pairs, not {head_dim}",
            code="invalid_value",
        )
    return {
        "model_type": config.get("model_type"),
        "vocab_size": config.whole("vocab_size"),
        "hidden_size": hidden,
        "intermediate_size": config.whole("intermediate_size"),
        "num_layers": config.num_layers(),
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
                code="quantised_weights",
            )
    for name, values in neutral.items():
        config.allow(name, *values)
    if own := [name for name in config.section("auto_map") if name.startswith("AutoModel")]:
        raise ModelError(
            f"{config.path}: auto_map names custom code of the model for {', '.join(own)}, which is never run; if "
            "the model does not need it, remove the key",
            code="custom_model_code",
        )


def _read_plain(
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
        window=_window(config, kinds),
        **features,
    )


def _window(config: ConfigFile, kinds: tuple[LayerKind, ...]) -> int | None:
    return config.whole("sliding_window") if "sliding_attention" in kinds else None


def _read_llama(config: ConfigFile) -> Architecture:
    """Read Llama 3, 3.1 and 3.2 (https://arxiv.org/abs/2407.21783), and 1 and 2, which are the same."""
    config.allow("sliding_window")
    return _read_plain(config, _common(config, default_kv_heads=config.whole("num_attention_heads")))


def _read_qwen2(config: ConfigFile) -> Architecture:
    """Read Qwen 2 and 2.5 (https://arxiv.org/abs/2412.15115)."""
    return _read_plain(config, _common(config), qkv_bias=True)


def _read_qwen3(config: ConfigFile) -> Architecture:
    """Read Qwen 3, dense (https://arxiv.org/abs/2505.09388)."""
    return _read_plain(config, _common(config, default_head_dim=128), qk_norm=True)


_MOE_KEYS = ("moe_intermediate_size", "num_experts", "num_local_experts")


def _read_qwen3_moe(config: ConfigFile) -> Architecture:
    """Read Qwen 3 with mixtures of experts (https://arxiv.org/abs/2505.09388)."""
    # The second name is that of transformers 5.
    config = config.with_defaults({"num_experts": config.get("num_local_experts")})
    common = _common(config, own_keys=_MOE_KEYS)
    count, step, dense = common["num_layers"], config.whole("decoder_sparse_step", 1), config.get("mlp_only_layers", [])
    if not isinstance(dense, list):
        raise ModelError(
            f"{config.path}: mlp_only_layers must be a list of layers, not {dense!r:.100}", code="invalid_value"
        )
    num_experts, of_token = config.whole("num_experts"), config.whole("num_experts_per_tok")
    if of_token > num_experts:
        raise ModelError(
            f"{config.path}: num_experts_per_tok must be at most num_experts {num_experts}, not {of_token}",
            code="invalid_value",
        )
    return _read_plain(
        config,
        common,
        qk_norm=True,
        num_experts=num_experts,
        num_experts_per_token=of_token,
        moe_intermediate_size=config.whole("moe_intermediate_size"),
        norm_topk_prob=config.flag("norm_topk_prob", False),
        dense_layers=tuple(layer for layer in range(count) if layer in dense or (layer + 1) % step),
    )


_SMOLLM3_KEYS = ("no_rope_layers", "no_rope_layer_interval", "use_sliding_window")


def _read_smollm3(config: ConfigFile) -> Architecture:
    """Read SmolLM 3 (https://huggingface.co/blog/smollm3). Layers without rotary embedding may have a window."""
    config = config.with_defaults({"tie_word_embeddings": True})
    common = _common(config, own_keys=_SMOLLM3_KEYS)
    count = common["num_layers"]
    rotated = config.get("no_rope_layers")
    if rotated is None:
        interval = config.whole("no_rope_layer_interval", 4)
        rotated = [(layer + 1) % interval != 0 for layer in range(count)]
    # The key's name says the opposite: 1 is a layer with rotary embedding.
    if not isinstance(rotated, list) or len(rotated) < count or not all(each in (0, 1) for each in rotated):
        raise ModelError(
            f"{config.path}: no_rope_layers must have 1 or 0 for each of {count} layers, not {rotated!r:.100}",
            code="invalid_value",
        )
    unrotated = tuple(layer for layer in range(count) if not rotated[layer])
    has_window = config.flag("use_sliding_window", False) and config.get("sliding_window") is not None
    kinds = config.layer_kinds(slides=unrotated.__contains__ if has_window else None)
    rope = dict.fromkeys(kinds, config.rope(2_000_000.0))
    return _read_plain(config, common, kinds, rope, unrotated_layers=unrotated)


def _read_olmo3(config: ConfigFile) -> Architecture:
    """Read OLMo 3 (https://arxiv.org/abs/2512.13961).

    Only layers that see all positions have their rotary embedding scaled. Some versions of transformers 5 scale it in
    all layers and store one `rope_parameters` for all. Such a file is refused, because it does not say how the model
    was trained.
    """
    common = _common(config, default_kv_heads=config.whole("num_attention_heads"))
    kinds = config.layer_kinds(lambda layer: (layer + 1) % 4 != 0)
    parameters = config.section("rope_parameters")
    if config.section("rope_scaling") or any(isinstance(value, dict) for value in parameters.values()):
        rope = {kind: config.rope_of(kind, "rope_theta", 500_000.0) for kind in sorted(set(kinds))}
    else:
        rope = dict.fromkeys(kinds, config.rope(500_000.0))
        if len(rope) > 1 and rope["full_attention"].kind != "default":
            raise ModelError(
                f"{config.path}: rope_parameters must contain an object for each kind of layer if it scales positions, "
                f"not {parameters!r}; take rope_scaling from the config.json of the published model instead",
                code="unsupported_rope",
            )
    norms = {"qk_norm": True, "joint_qk_norm": True, "input_norms": False, "output_norms": True}
    return _read_plain(config, common, kinds, rope, **norms)


def _read_gemma(config: ConfigFile, rope: Mapping[LayerKind, Rope], pattern: int, **features: Any) -> Architecture:
    config.allow("hidden_activation", "gelu_pytorch_tanh")
    config.allow("tie_word_embeddings", True)
    common = _common(config)
    kinds = config.layer_kinds(lambda layer: (layer + 1) % pattern != 0)
    return Architecture(
        **{**common, "query_scale": config.number("query_pre_attn_scalar") ** -0.5},
        tied_embeddings=True,
        activation="gelu_tanh",
        layer_kinds=kinds,
        rope=rope,
        window=_window(config, kinds),
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


def _read_gemma2(config: ConfigFile) -> Architecture:
    """Read Gemma 2 (https://arxiv.org/abs/2408.00118)."""
    config = config.with_defaults(_GEMMA2_DEFAULTS)
    rope = config.rope(10_000.0)
    return _read_gemma(config, {"full_attention": rope, "sliding_attention": rope}, pattern=2)


def _read_gemma3_text(config: ConfigFile) -> Architecture:
    """Read Gemma 3, text only (https://arxiv.org/abs/2503.19786)."""
    config = config.with_defaults(_GEMMA3_DEFAULTS)
    rope: dict[LayerKind, Rope] = {
        "full_attention": config.rope_of("full_attention", "rope_theta", 1_000_000.0),
        "sliding_attention": config.rope_of("sliding_attention", "rope_local_base_freq", 10_000.0),
    }
    return _read_gemma(config, rope, pattern=config.whole("sliding_window_pattern", 6), qk_norm=True)


def _read_gemma3(config: ConfigFile) -> Architecture:
    """Read the text model of a Gemma 3 with a vision tower."""
    config.allow("tie_word_embeddings", True)
    return _read_text_of(config, _read_gemma3_text)


def _read_text_of(config: ConfigFile, read: Callable[[ConfigFile], Architecture]) -> Architecture:
    """Read the text model of a model that has others beside it."""
    _refuse_variants(config, _NEUTRAL)
    text = config.section("text_config")
    if not text:
        raise ModelError(
            f"{config.path} lacks 'text_config'; check that it was saved with the weights", code="missing_key"
        )
    return replace(read(ConfigFile(config.path, text)), model_type=config.get("model_type"))


_QWEN3_5_DEFAULTS = {
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}


def _read_qwen3_5_text(config: ConfigFile) -> Architecture:
    """Read Qwen 3.5, dense (https://qwen.ai/blog?id=qwen3.5), text only."""
    config = config.with_defaults(_QWEN3_5_DEFAULTS)
    interval = config.whole("full_attention_interval", 4)
    kinds = config.layer_kinds(lambda layer: (layer + 1) % interval != 0, "linear_attention")
    names = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
    sizes = DeltaNetSizes(*(config.whole(f"linear_{name}") for name in names))
    if sizes.value_heads % sizes.key_heads:
        raise ModelError(
            f"{config.path}: linear_num_value_heads must be divisible by linear_num_key_heads, but "
            f"{sizes.value_heads} is not divisible by {sizes.key_heads}",
            code="invalid_value",
        )
    return _read_plain(
        config,
        _common(config, own_keys=("partial_rotary_factor",)),
        kinds,
        {"full_attention": config.rope(10_000.0, config.number("partial_rotary_factor", 0.25))},
        delta_net=sizes,
        attention_gate=True,
        qk_norm=True,
        norm_offset=1.0,
    )


def _read_qwen3_5(config: ConfigFile) -> Architecture:
    """Read the text model of a Qwen 3.5 with a vision tower, which all published ones have."""
    tied = config.flag("tie_word_embeddings", False)
    return replace(_read_text_of(config, _read_qwen3_5_text), tied_embeddings=tied)


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


def _read_gemma4_text(config: ConfigFile) -> Architecture:
    """Read Gemma 4, text only, without experts (https://huggingface.co/docs/transformers/model_doc/gemma4)."""
    config = config.with_defaults({**_GEMMA4_DEFAULTS, "rope_parameters": _GEMMA4_ROPE})
    for name, neutral in (("enable_moe_block", False), ("attention_k_eq_v", False), ("tie_word_embeddings", True)):
        config.allow(name, neutral)
    config.allow("hidden_activation", "gelu_pytorch_tanh")
    config.allow("vocab_size_per_layer_input", config.whole("vocab_size"))
    common = _common(config, own_keys=("use_bidirectional_attention",))
    config.allow("use_bidirectional_attention", "vision")  # which leaves text as it is
    kinds = config.layer_kinds(lambda layer: (layer + 1) % 6 != 0)
    kinds = (*kinds[:-1], "full_attention")
    num_borrowing = config.get("num_kv_shared_layers", 0) and config.whole("num_kv_shared_layers")
    own = set(kinds[: len(kinds) - num_borrowing])
    if own != set(kinds):
        raise ModelError(
            f"{config.path}: num_kv_shared_layers must leave layers of each kind with keys and values of their own,"
            f" but {num_borrowing} of {len(kinds)} layers use those of others",
            code="invalid_value",
        )
    return Architecture(
        **{**common, "query_scale": 1.0},
        tied_embeddings=True,
        activation="gelu_tanh",
        layer_kinds=kinds,
        rope={kind: config.rope_of(kind, "rope_theta", 10_000.0) for kind in sorted(set(kinds))},
        window=_window(config, kinds),
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
            code="unsupported_feature",
        )
    return values[0].whole("head_dim")


def _read_gemma4(config: ConfigFile) -> Architecture:
    """Read the text model of a Gemma 4 with towers for images and sounds."""
    config.allow("tie_word_embeddings", True)
    return _read_text_of(config, _read_gemma4_text)


FAMILIES: dict[str, Callable[[ConfigFile], Architecture]] = {
    "gemma2": _read_gemma2,
    "gemma3": _read_gemma3,
    "gemma3_text": _read_gemma3_text,
    "gemma4": _read_gemma4,
    "gemma4_text": _read_gemma4_text,
    "llama": _read_llama,
    "olmo3": _read_olmo3,
    "qwen2": _read_qwen2,
    "qwen3": _read_qwen3,
    "qwen3_5": _read_qwen3_5,
    "qwen3_5_text": _read_qwen3_5_text,
    "qwen3_moe": _read_qwen3_moe,
    "smollm3": _read_smollm3,
}
