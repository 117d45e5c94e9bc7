"""Llama, and SmolLM 3, which adds layers without rotary embedding."""

from agent_tunix.errors import ModelError
from agent_tunix.policy.architecture import Architecture
from agent_tunix.policy.families.common import read_common, read_plain
from agent_tunix.policy.files.config_file import ConfigFile


def read_llama(config: ConfigFile) -> Architecture:
    """Read Llama 3, 3.1 and 3.2 (https://arxiv.org/abs/2407.21783), and 1 and 2, whose features are the same."""
    config.allow("sliding_window")
    return read_plain(config, read_common(config, default_kv_heads=config.whole("num_attention_heads")))


_SMOLLM3_KEYS = ("no_rope_layers", "no_rope_layer_interval", "use_sliding_window")


def read_smollm3(config: ConfigFile) -> Architecture:
    """Read SmolLM 3 (https://huggingface.co/blog/smollm3). Layers without rotary embedding may have a window."""
    config = config.with_defaults({"tie_word_embeddings": True})
    common = read_common(config, own_keys=_SMOLLM3_KEYS)
    count = common["num_layers"]
    rotated = config.get("no_rope_layers")
    if rotated is None:
        interval = config.whole("no_rope_layer_interval", 4)
        rotated = [(layer + 1) % interval != 0 for layer in range(count)]
    # The key's name says the opposite: 1 is a layer with rotary embedding.
    if not isinstance(rotated, list) or len(rotated) < count or not all(each in (0, 1) for each in rotated):
        raise ModelError(
            f"{config.path}: no_rope_layers must have 1 or 0 for each of {count} layers, not {rotated!r:.100}",
            code="invalid_model_config",
        )
    unrotated = tuple(layer for layer in range(count) if not rotated[layer])
    has_window = config.flag("use_sliding_window", False) and config.get("sliding_window") is not None
    kinds = config.layer_kinds(slides=unrotated.__contains__ if has_window else None)
    rope = dict.fromkeys(kinds, config.rope(2_000_000.0))
    return read_plain(config, common, kinds, rope, unrotated_layers=unrotated)
