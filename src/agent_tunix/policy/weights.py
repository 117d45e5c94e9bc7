"""The weights of the decoder from the tensors of a Hugging Face directory.

Each device reads only its own part of a tensor, one at a time.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from agent_tunix.errors import ConfigError
from agent_tunix.policy.tensor_files import Stored, open_tensors
from agent_tunix.policy.tensors import Tensor


def read_weights(located: Mapping[Tensor, Stored], shapes: Any, mesh: jax.sharding.Mesh) -> Any:
    """The decoder's state, divided over the mesh.

    Args:
        located: Where each tensor lies.
        shapes: The state as shapes, with the type that each weight is given and the mesh axes it is divided over.
        mesh: Where it goes.

    Raises:
        ConfigError: The mesh does not divide a weight evenly.
    """
    by_path: dict[tuple[Any, ...], tuple[Tensor, Stored]] = {
        tensor.path: (tensor, stored) for tensor, stored in located.items()
    }
    weights = []
    for path, leaf in nnx.to_flat_state(shapes):
        tensor, stored = by_path[tuple(path)]
        sharding = _sharding(tensor, leaf, mesh)
        weights.append((path, leaf.replace(_read_tensor(tensor, stored, leaf.get_value().dtype, sharding))))
    return nnx.from_flat_state(weights)


def _read_tensor(tensor: Tensor, stored: Stored, dtype: jnp.dtype, sharding: jax.sharding.NamedSharding) -> jax.Array:
    axes = sharding.spec[::-1] if tensor.transposed else sharding.spec
    as_stored = jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec(*axes))  # type: ignore[no-untyped-call]
    with open_tensors(stored.file) as tensors:
        source = tensors.get_slice(stored.name)

        def read(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None
            part: np.ndarray = source[index]
            return part.astype(np.float32) if part.dtype == np.float64 else part

        weight: jax.Array = jax.make_array_from_callback(stored.shape, as_stored, read)
    if tensor.transposed or weight.dtype != dtype:
        # By the devices, from what was read in the order of the file: NumPy takes three times as long.
        weight = _arrange(tensor.transposed, dtype, sharding)(weight)
    # What the devices have not done yet would pile up.
    return weight.block_until_ready()


@functools.lru_cache
def _arrange(transposed: bool, dtype: jnp.dtype, sharding: jax.sharding.NamedSharding) -> Callable[..., jax.Array]:
    return jax.jit(lambda weight: (weight.T if transposed else weight).astype(dtype), out_shardings=sharding)


def _sharding(tensor: Tensor, leaf: Any, mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
    axes = leaf.get_metadata().get("out_sharding") or ()
    for size, axis in zip(leaf.get_value().shape, axes, strict=False):
        if size % mesh.shape[axis]:
            raise ConfigError(
                f"model.mesh_shape {list(mesh.devices.shape)} divides {tensor.name} over {mesh.shape[axis]} devices"
                f" ({axis}), but its axis has {size} entries; choose a number that divides {size}"
            )
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))  # type: ignore[no-untyped-call]
