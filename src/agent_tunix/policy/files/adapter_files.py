"""Adapters in PEFT's format, read onto a model that is loaded already."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx
from safetensors.numpy import load_file

from agent_tunix.errors import ModelError
from agent_tunix.policy.files.export import place_in_transformers
from agent_tunix.policy.mesh import sharding_over
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.policy.network.projection import Projection

# Settings of PEFT that change what the matrices mean, with the values that this reader understands.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "fan_in_fan_out": (False, None),
    "use_dora": (False, None),
    "use_rslora": (False, None),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "modules_to_save": (None, []),
    "layer_replication": (None, []),
    "alora_invocation_tokens": (None, []),
    "use_qalora": (False, None),
}


def read_adapter(base: Decoder, directory: Path, mesh: jax.sharding.Mesh) -> Decoder:
    """Return a model with an adapter in the place of its own, if it has one. Both models share all other arrays.

    Args:
        base: The model.
        directory: Directory with `adapter_config.json` and `adapter_model.safetensors`.
        mesh: Mesh of the model.

    Raises:
        ModelError: The directory has no adapter for this model, or one with settings that are not supported.
    """
    try:
        config = json.loads((directory / "adapter_config.json").read_bytes())
        tensors = load_file(directory / "adapter_model.safetensors")
        scale = float(config["lora_alpha"]) / int(config["r"])
    except Exception as error:
        raise ModelError(
            f"an adapter requires adapter_config.json and adapter_model.safetensors in PEFT's format, but {directory} "
            f"cannot be read: {error}; write one with `agent-tunix export --adapter`"
        ) from error
    for name, values in _PLAIN.items():
        if config.get(name) not in values:
            raise ModelError(
                f"the adapter {directory} must have {name}={json.dumps(values[0])}, but has "
                f"{json.dumps(config.get(name))}, which is not supported; merge it into its base with PEFT"
            )
    model: Decoder = nnx.merge(*nnx.split(base))
    modules: Iterable[tuple[Any, Any]] = nnx.iter_modules(model)
    for path, module in modules:
        if isinstance(module, Projection):
            _replace_adapter(module, f"base_model.model.{place_in_transformers(path, model)}", tensors, scale, mesh)
    if tensors:
        raise ModelError(
            f"each matrix of the adapter {directory} must belong to a projection of the model, but "
            f"{next(iter(tensors))} does not; use an adapter of this model"
        )
    return model


def _replace_adapter(
    module: Projection, name: str, tensors: dict[str, np.ndarray], scale: float, mesh: jax.sharding.Mesh
) -> None:
    """Take a projection's matrices out of the tensors, or remove the adapter that it has."""
    a, b = (tensors.pop(f"{name}.lora_{part}.weight", None) for part in "AB")
    if module.has_adapter:
        del module.kernel_lora_a, module.kernel_lora_b
    if a is None and b is None:
        return
    if a is None or b is None or a.shape != (len(a), module.in_features) or b.shape != (module.out_features, len(a)):
        raise ModelError(
            f"the adapter must have A of [rank, {module.in_features}] and B of [{module.out_features}, rank] for "
            f"{name}, but has {[None if x is None else list(x.shape) for x in (a, b)]}; use an adapter of this model"
        )
    module.add_adapter(
        jax.device_put(np.ascontiguousarray(a.T, np.float32), sharding_over(mesh, module.axes[0], None)),
        jax.device_put(np.ascontiguousarray(b.T, np.float32), sharding_over(mesh, None, module.axes[1])),
        scale,
    )
