"""The weights of the decoder, read from the tensors of a Hugging Face directory.

Each device reads only its own part of a tensor, one tensor at a time.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from agent_tunix.errors import ConfigError
from agent_tunix.policy.files.model_files import open_tensors
from agent_tunix.policy.files.tensor_files import Stored
from agent_tunix.policy.files.tensors import Tensor
from agent_tunix.policy.mesh import sharding_over
from agent_tunix.policy.network.projection import Quantization, quantise

# Up to this many numbers, NumPy transposes and converts faster than a program for their shape compiles.
_ARRANGED_BY_HOST = 1 << 20


def read_weights(located: Mapping[Tensor, Stored], shapes: Any, mesh: jax.sharding.Mesh) -> Any:
    """Return the decoder's state, divided over the mesh.

    With quantisation, each weight is quantised as soon as it is read, so that no two exist in full at once.

    Args:
        located: Place of each tensor.
        shapes: The state as shapes, with the type of each weight and the mesh axes that divide it.
        mesh: Mesh for the weights.

    Raises:
        ConfigError: The mesh does not divide a weight evenly.
    """
    by_path: dict[tuple[Any, ...], tuple[Tensor, Stored]] = {
        tensor.path: (tensor, stored) for tensor, stored in located.items()
    }
    leaves: dict[tuple[Any, ...], Any] = dict(nnx.to_flat_state(shapes))
    weights = []
    for path, leaf in leaves.items():
        if path[-1] == "kernel_scale":
            continue  # computed with its kernel
        stack = [by_path[*path, n] for n in range(leaf.get_value().shape[0]) if (*path, n) in by_path]
        tensor, stored = stack[0] if stack else by_path[tuple(path)]
        sharding = _sharding(tensor, leaf, mesh)
        dtype, scale_path = leaf.get_value().dtype, (*path[:-1], "kernel_scale")
        if stack:
            weights.append((path, leaf.replace(_read_stack([stored for _, stored in stack], dtype, sharding))))
            continue
        if path[-1] != "kernel" or scale_path not in leaves:
            weights.append((path, leaf.replace(_read_tensor(tensor, stored, dtype, sharding))))
            continue
        scale = leaves[scale_path]
        whole = _read_tensor(tensor, stored, jnp.dtype("float32"), sharding)
        quantization: Quantization = "int8" if dtype == jnp.int8 else "nf4"
        codes, scales = _quantise_to(quantization, sharding, _sharding(tensor, scale, mesh))(whole)
        # The full weight is freed only when its quantisation has finished.
        scales.block_until_ready()
        weights += [(path, leaf.replace(codes)), (scale_path, scale.replace(scales))]
    return nnx.from_flat_state(weights)


@functools.lru_cache
def _quantise_to(
    quantization: Quantization, codes: jax.sharding.NamedSharding, scales: jax.sharding.NamedSharding
) -> Callable[..., tuple[jax.Array, jax.Array]]:
    return jax.jit(functools.partial(quantise, quantization=quantization), out_shardings=(codes, scales))


def _read_tensor(tensor: Tensor, stored: Stored, dtype: jnp.dtype, sharding: jax.sharding.NamedSharding) -> jax.Array:
    if math.prod(stored.shape) <= _ARRANGED_BY_HOST:
        return _read_small(tensor, stored, dtype, sharding)
    axes = sharding.spec[::-1] if tensor.transposed else sharding.spec
    as_stored = sharding_over(sharding.mesh, *axes)
    with open_tensors(stored.file) as tensors:
        source = tensors.get_slice(stored.name)

        def read(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None
            part: np.ndarray = source[index]
            return part.astype(np.float32) if part.dtype == np.float64 else part

        weight: jax.Array = jax.make_array_from_callback(stored.shape, as_stored, read)
    if tensor.transposed or weight.dtype != dtype:
        # The devices transpose and convert, because NumPy takes three times as long.
        weight = _arrange(tensor.transposed, dtype, sharding)(weight)
    # Without waiting, unfinished work of the devices would accumulate in memory.
    return weight.block_until_ready()


def _read_small(tensor: Tensor, stored: Stored, dtype: jnp.dtype, sharding: jax.sharding.NamedSharding) -> jax.Array:
    shape = stored.shape[::-1] if tensor.transposed else stored.shape
    with open_tensors(stored.file) as tensors:
        source = tensors.get_slice(stored.name)

        def read(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None
            part = source[index[::-1]].T if tensor.transposed else source[index]
            part = part.astype(np.float32) if part.dtype == np.float64 else part
            arranged: np.ndarray = np.ascontiguousarray(part.astype(dtype))
            return arranged

        weight: jax.Array = jax.make_array_from_callback(shape, sharding, read)
    return weight.block_until_ready()


def _read_stack(stored: list[Stored], dtype: jnp.dtype, sharding: jax.sharding.NamedSharding) -> jax.Array:
    """Return the transposes of the matrices of all experts, one after the other."""

    def read(index: tuple[slice, ...] | None) -> np.ndarray:
        assert index is not None
        own = stored[index[0]]
        with contextlib.ExitStack() as files:  # a file is read with its whole header, so it is opened once
            opened = {file: files.enter_context(open_tensors(file)) for file in {one.file for one in own}}
            return np.stack([opened[one.file].get_slice(one.name)[index[:0:-1]].T.astype(dtype) for one in own])

    weight: jax.Array = jax.make_array_from_callback((len(stored), *stored[0].shape[::-1]), sharding, read)
    return weight.block_until_ready()


@functools.lru_cache
def _arrange(transposed: bool, dtype: jnp.dtype, sharding: jax.sharding.NamedSharding) -> Callable[..., jax.Array]:
    return jax.jit(lambda weight: (weight.T if transposed else weight).astype(dtype), out_shardings=sharding)


def _sharding(tensor: Tensor, leaf: Any, mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
    axes = leaf.get_metadata().get("out_sharding") or ()
    for size, axis in zip(leaf.get_value().shape, axes, strict=False):
        if axis is not None and size % mesh.shape[axis]:
            raise ConfigError(
                f"model.mesh_shape {list(mesh.devices.shape)} divides {tensor.name} over {mesh.shape[axis]} devices "
                f"({axis}), but the size of its axis, {size}, is not divisible by that; use a divisor of {size}"
            )
    return sharding_over(mesh, *axes)
