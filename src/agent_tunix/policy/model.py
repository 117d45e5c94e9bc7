"""The policy, loaded from a Hugging Face directory onto a mesh, and its reference policy."""

import itertools
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ConfigError, ModelError
from agent_tunix.policy.adapter import add_adapter
from agent_tunix.policy.architecture import Architecture
from agent_tunix.policy.families import family_of, read_architecture
from agent_tunix.policy.files.tensor_files import locate_tensors
from agent_tunix.policy.files.weights import read_weights
from agent_tunix.policy.module_names import check_experts
from agent_tunix.policy.network.attention import gpu_capability
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.policy.network.deltanet import GatedDeltaNet
from agent_tunix.policy.network.experts import Experts
from agent_tunix.policy.network.layers import Attention
from agent_tunix.policy.network.projection import Projection, Quantization

# Of GPUs since Ampere. Older ones, such as a T4, compute bfloat16 in float32, slowly.
_BFLOAT16_CAPABILITY = 8.0


def load_policy(directory: Path, config: ModelConfig, mesh: jax.sharding.Mesh, seed: int = 0) -> Decoder:
    """Return the model of a directory, sharded over the mesh, with an adapter if `model.lora_rank` is above 0.

    Args:
        directory: A Hugging Face directory.
        config: Types, quantisation, adapter and rematerialisation.
        mesh: Mesh for the weights.
        seed: Seed of the adapter's initial weights.

    Raises:
        ModelError: The architecture or a feature of it is not supported, or a file is damaged.
        ConfigError: The mesh does not divide a weight, the adapter's pattern matches nothing, or experts would get an
            adapter or be quantised.
    """
    architecture = read_architecture(directory)
    family = family_of(architecture.model_type)
    if config.model_family is not None and family_of(config.model_family) != family:
        raise ModelError(
            f"model.model_family must be the family of the model, but it is {config.model_family} and {directory} "
            f"contains {architecture.model_type}; set model.model_family={family} or null"
        )
    check_experts(config, architecture)
    dtype = compute_dtype(config.dtype)
    # Small updates would be lost on weights in bfloat16, so trained weights are float32 with any compute type.
    param_dtype = dtype if config.lora_rank > 0 else jnp.dtype("float32")
    quantization = cast("Quantization | None", config.quantization)
    model = load_decoder(directory, architecture, mesh, dtype, param_dtype, quantization)
    if config.lora_rank > 0:
        add_adapter(model, config, mesh, seed)
    model.remat = config.remat
    return model


def load_frozen(directory: Path, config: ModelConfig, mesh: jax.sharding.Mesh) -> Decoder:
    """Return the model of a directory, sharded over the mesh, to be read only: in the compute type or quantised.

    Args:
        directory: A Hugging Face directory.
        config: Type and quantisation.
        mesh: Mesh for the weights.

    Raises:
        ModelError, ConfigError: See `load_policy`.
    """
    architecture = read_architecture(directory)
    check_experts(config, architecture)
    dtype = compute_dtype(config.dtype)
    return load_decoder(directory, architecture, mesh, dtype, dtype, cast("Quantization | None", config.quantization))


def load_decoder(
    directory: Path,
    architecture: Architecture,
    mesh: jax.sharding.Mesh,
    dtype: jnp.dtype,
    param_dtype: jnp.dtype,
    quantization: Quantization | None = None,
) -> Decoder:
    """Return the decoder with the weights of a directory.

    Args:
        directory: Directory with *.safetensors of this architecture.
        architecture: The architecture from `config.json`.
        mesh: Mesh for the weights.
        dtype: Type of the computation.
        param_dtype: Type of the weights.
        quantization: Quantisation of the layers' projections; None to store them in `param_dtype` too.
    """
    located = locate_tensors(directory, architecture)
    # Shapes come first, so that no weight exists twice. They only record the shardings: there is no array to shard yet.
    with nnx.use_eager_sharding(False):  # type: ignore[no-untyped-call]
        shapes = nnx.eval_shape(
            lambda: Decoder(
                architecture, dtype=dtype, param_dtype=param_dtype, rngs=nnx.Rngs(0), quantization=quantization
            )
        )
    graphdef, state = nnx.split(shapes)
    model: Decoder = nnx.merge(graphdef, read_weights(located, state, mesh))
    for _, module in nnx.iter_modules(model):
        if isinstance(module, Decoder | Attention | GatedDeltaNet | Experts):
            module.mesh = mesh
    return model


def replace_weights(model: Decoder, directory: Path, mesh: jax.sharding.Mesh) -> None:
    """Replace the weights of a model by those of a directory, module by module, so that few exist twice.

    Args:
        model: Model without an adapter. Its types, quantisation and shardings stay.
        directory: Hugging Face directory of a model of the same architecture.
        mesh: Mesh of the model.

    Raises:
        ModelError: The model has an adapter, the directory has another architecture, or a file is damaged.
    """
    if has_adapter(model):
        raise ModelError("weights can replace those of a model without an adapter only; load an adapter instead")
    architecture = read_architecture(directory)
    if architecture != model.config:
        raise ModelError(
            f"the weights of {directory} must be of the architecture of the model that they replace, but are not; "
            "load weights of the same model"
        )
    located = locate_tensors(directory, architecture)
    leaves = nnx.to_flat_state(nnx.state(model))
    for _, of_module in itertools.groupby(leaves, key=lambda leaf: leaf[0][:-1]):
        nnx.update(model, read_weights(located, nnx.from_flat_state(list(of_module)), mesh))


def copy_reference(policy: nnx.Module) -> nnx.Module:
    """Return a copy of the policy, to serve as the reference policy.

    Frozen weights are shared with the policy, and weights that train are copied. With an adapter there is therefore no
    second copy of the base.
    """
    graphdef, state = nnx.split(policy)
    wrt = nnx.LoRAParam if has_adapter(policy) else nnx.Param
    trained, frozen = nnx.split_state(state, wrt, ...)
    # The runtime copies arrays without compiling a program for each shape.
    shardings = jax.tree.map(lambda weight: weight.sharding, trained)
    return nnx.merge(graphdef, jax.device_put(trained, shardings, may_alias=False), frozen)


def has_adapter(model: nnx.Module) -> bool:
    """Return True if the model has LoRA weights."""
    return bool(jax.tree.leaves(nnx.state(model, nnx.LoRAParam)))


def count_parameters(model: nnx.Module) -> tuple[int, int]:
    """Return the number of weights and the number of those that train."""
    adapter = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(nnx.state(model, nnx.LoRAParam)))
    total = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))
    for _, module in nnx.iter_modules(model):
        if isinstance(module, Projection) and module.quantization is not None:
            # One byte may hold the codes of two weights.
            total += module.in_features * module.out_features - int(np.prod(module.kernel.shape))
    return total, adapter or total


def compute_dtype(name: str) -> jnp.dtype:
    """Return the type that `model.dtype` names.

    Raises:
        ConfigError: It is bfloat16, which the GPU does not have.
    """
    capability = gpu_capability()
    lacks_bfloat16 = capability is not None and capability < _BFLOAT16_CAPABILITY
    if name == "bfloat16" and lacks_bfloat16:
        raise ConfigError(
            f"model.dtype=bfloat16 requires a GPU of compute capability {_BFLOAT16_CAPABILITY} or more, but this one "
            f"has {capability}; set model.dtype=float32 (with model.quantization=int8 for less memory)",
            code="invalid_devices",
        )
    if name == "auto":
        name = "float32" if lacks_bfloat16 or jax.default_backend() == "cpu" else "bfloat16"
    return jnp.dtype(name)
