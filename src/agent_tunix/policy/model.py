"""A Hugging Face directory on disk → the policy on a mesh, and its reference."""

from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ModelError
from agent_tunix.policy.adapter import add_adapter
from agent_tunix.policy.architecture import Architecture
from agent_tunix.policy.families import family_of, read_architecture
from agent_tunix.policy.files.tensor_files import locate_tensors
from agent_tunix.policy.files.weights import read_weights
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.policy.network.layers import Attention
from agent_tunix.policy.network.projection import Projection, Quantization


def load_policy(directory: Path, config: ModelConfig, mesh: jax.sharding.Mesh, seed: int = 0) -> Decoder:
    """The model of a directory, sharded over the mesh, with an adapter where one is asked for.

    Args:
        directory: A Hugging Face directory.
        config: What is made of it.
        mesh: Where it goes.
        seed: Of the adapter's first weights.

    Raises:
        ModelError: The architecture or a feature of it is not supported, or a file is damaged.
        ConfigError: The mesh does not divide a weight, or the adapter's pattern matches nothing.
    """
    architecture = read_architecture(directory)
    family = family_of(architecture.model_type)
    if config.model_family is not None and family_of(config.model_family) != family:
        raise ModelError(
            f"model.model_family is {config.model_family}, but {directory} holds {architecture.model_type};"
            f" set model.model_family={family}, or null for whatever config.json says",
            code="wrong_model_family",
        )
    dtype = compute_dtype(config.dtype)
    # Small updates are lost on weights in bfloat16: what trains is stored in float32, whatever computes.
    param_dtype = dtype if config.lora_rank > 0 else jnp.dtype("float32")
    quantization = cast("Quantization | None", config.quantization)
    model = load_decoder(directory, architecture, mesh, dtype, param_dtype, quantization)
    if config.lora_rank > 0:
        add_adapter(model, config, mesh, seed)
    model.remat = config.remat
    return model


def load_decoder(
    directory: Path,
    architecture: Architecture,
    mesh: jax.sharding.Mesh,
    dtype: jnp.dtype,
    param_dtype: jnp.dtype,
    quantization: Quantization | None = None,
) -> Decoder:
    """The decoder with the weights of a directory.

    Args:
        directory: Holds *.safetensors of this architecture.
        architecture: What `config.json` describes.
        mesh: Where the weights go.
        dtype: What it computes in.
        param_dtype: What its weights are kept in.
        quantization: What the projections of its layers are kept in instead.
    """
    located = locate_tensors(directory, architecture)
    # As shapes first, so that no weight exists twice. Shardings are noted, not applied: there is nothing to divide yet.
    with nnx.use_eager_sharding(False):  # type: ignore[no-untyped-call]
        shapes = nnx.eval_shape(
            lambda: Decoder(
                architecture, dtype=dtype, param_dtype=param_dtype, rngs=nnx.Rngs(0), quantization=quantization
            )
        )
    graphdef, state = nnx.split(shapes)
    model: Decoder = nnx.merge(graphdef, read_weights(located, state, mesh))
    for _, module in nnx.iter_modules(model):
        if isinstance(module, Decoder | Attention):
            module.mesh = mesh
    return model


def copy_reference(policy: nnx.Module) -> nnx.Module:
    """The reference policy: what the policy is now.

    Frozen weights are shared with the policy and weights that train are copied, so with an adapter there is no second
    copy of the base.
    """
    graphdef, state = nnx.split(policy)
    wrt = nnx.LoRAParam if has_adapter(policy) else nnx.Param
    trained, frozen = nnx.split_state(state, wrt, ...)
    # A copy by the runtime, which needs no program compiled for each shape.
    shardings = jax.tree.map(lambda weight: weight.sharding, trained)
    return nnx.merge(graphdef, jax.device_put(trained, shardings, may_alias=False), frozen)


def has_adapter(model: nnx.Module) -> bool:
    """Whether the model carries LoRA weights."""
    return bool(jax.tree.leaves(nnx.state(model, nnx.LoRAParam)))


def count_parameters(model: nnx.Module) -> tuple[int, int]:
    """How many weights there are, and how many of them train."""
    adapter = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(nnx.state(model, nnx.LoRAParam)))
    total = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))
    for _, module in nnx.iter_modules(model):
        if isinstance(module, Projection) and module.quantization is not None:
            # Its codes may hold two weights a byte.
            total += module.in_features * module.out_features - int(np.prod(module.kernel.shape))
    return total, adapter or total


def compute_dtype(name: str) -> jnp.dtype:
    """The type that `model.dtype` names."""
    if name == "auto":
        name = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    return jnp.dtype(name)
