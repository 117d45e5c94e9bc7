"""OLMo 3."""

from agent_tunix.errors import ModelError
from agent_tunix.policy.architecture import Architecture
from agent_tunix.policy.families.common import read_common, read_plain
from agent_tunix.policy.files.config_file import ConfigFile


def read_olmo3(config: ConfigFile) -> Architecture:
    """Read OLMo 3 (https://arxiv.org/abs/2512.13961).

    Only layers that see all positions have their rotary embedding scaled. Some versions of transformers 5 scale it in
    all layers and store one `rope_parameters` for all. Such a file is refused, because it does not say how the model
    was trained.
    """
    common = read_common(config, default_kv_heads=config.whole("num_attention_heads"))
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
                code="unsupported_model",
            )
    norms = {"qk_norm": True, "joint_qk_norm": True, "input_norms": False, "output_norms": True}
    return read_plain(config, common, kinds, rope, **norms)
