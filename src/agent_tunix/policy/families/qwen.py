"""Qwen: 2 and 2.5, 3, 3 with mixtures of experts, and 3.5."""

from dataclasses import replace

from agent_tunix.errors import ModelError
from agent_tunix.policy.architecture import Architecture, DeltaNetSizes
from agent_tunix.policy.families.common import read_common, read_plain, read_text_of
from agent_tunix.policy.files.config_file import ConfigFile


def read_qwen2(config: ConfigFile) -> Architecture:
    """Read Qwen 2 and 2.5 (https://arxiv.org/abs/2412.15115)."""
    return read_plain(config, read_common(config), qkv_bias=True)


def read_qwen3(config: ConfigFile) -> Architecture:
    """Read Qwen 3, dense (https://arxiv.org/abs/2505.09388)."""
    return read_plain(config, read_common(config, default_head_dim=128), qk_norm=True)


_MOE_KEYS = ("moe_intermediate_size", "num_experts", "num_local_experts")


def read_qwen3_moe(config: ConfigFile) -> Architecture:
    """Read Qwen 3 with mixtures of experts (https://arxiv.org/abs/2505.09388)."""
    # The second name is that of transformers 5.
    config = config.with_defaults({"num_experts": config.get("num_local_experts")})
    common = read_common(config, own_keys=_MOE_KEYS)
    count, step, dense = common["num_layers"], config.whole("decoder_sparse_step", 1), config.get("mlp_only_layers", [])
    if not isinstance(dense, list):
        raise ModelError(
            f"{config.path}: mlp_only_layers must be a list of layers, not {dense!r:.100}", code="invalid_model_config"
        )
    named = {layer for layer in dense if isinstance(layer, int)}
    num_experts, of_token = config.whole("num_experts"), config.whole("num_experts_per_tok")
    if of_token > num_experts:
        raise ModelError(
            f"{config.path}: num_experts_per_tok must be at most num_experts {num_experts}, not {of_token}",
            code="invalid_model_config",
        )
    return read_plain(
        config,
        common,
        qk_norm=True,
        num_experts=num_experts,
        num_experts_per_token=of_token,
        moe_intermediate_size=config.whole("moe_intermediate_size"),
        norm_topk_prob=config.flag("norm_topk_prob", False),
        dense_layers=tuple(layer for layer in range(count) if layer in named or (layer + 1) % step),
    )


_QWEN3_5_DEFAULTS = {
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}


def read_qwen3_5_text(config: ConfigFile) -> Architecture:
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
            code="invalid_model_config",
        )
    return read_plain(
        config,
        read_common(config, own_keys=("partial_rotary_factor",)),
        kinds,
        {"full_attention": config.rope(10_000.0, config.number("partial_rotary_factor", 0.25))},
        delta_net=sizes,
        attention_gate=True,
        qk_norm=True,
        norm_offset=1.0,
    )


def read_qwen3_5(config: ConfigFile) -> Architecture:
    """Read the text model of a Qwen 3.5 with a vision tower, which all published ones have."""
    tied = config.flag("tie_word_embeddings", False)
    return replace(read_text_of(config, read_qwen3_5_text), tied_embeddings=tied)
