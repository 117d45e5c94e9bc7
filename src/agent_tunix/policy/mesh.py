"""The mesh of devices: its axes, who lies on which, and the one door through which arrays of the host get there.

Weights are divided over `fsdp` and `tp` and copied over `data`; rows of a batch are divided over `data` and `fsdp`
together. Nothing else names these axes, but for the weights' own modules.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from agent_tunix.config.mesh_shape import MeshShape, read_mesh_shape
from agent_tunix.errors import ConfigError

AXES = MeshShape._fields
# The axes over which rows are divided: those of a batch, and whatever has a place for each of them.
ROWS = ("data", "fsdp")
TENSOR = "tp"

# What one dimension of an array is divided over: nothing, an axis, or several as one.
Axes = str | tuple[str, ...] | None


def make_mesh(shape: MeshShape | list[int]) -> jax.sharding.Mesh:
    """A mesh of the first devices over `AXES`.

    Args:
        shape: [data, fsdp, tp], or [fsdp, tp] with one copy of the weights.

    Raises:
        ConfigError: The shape needs more devices than there are, or leaves out some of those of several processes.
    """
    sizes = read_mesh_shape(shape)
    assert sizes is not None
    devices = jax.devices()
    if sizes.size > len(devices):
        raise ConfigError(
            f"model.mesh_shape {list(shape)} needs {sizes.size} devices; there are {len(devices)};"
            f" model.mesh_shape=auto takes those there are, and"
            f" distributed.num_cpu_devices={sizes.size} tries the mesh on a CPU",
            code="too_few_devices",
        )
    if jax.process_count() > 1 and sizes.size < len(devices):
        raise ConfigError(
            f"model.mesh_shape {list(shape)} has {sizes.size} devices, but the {jax.process_count()} processes have"
            f" {len(devices)}, all of which must take part; model.mesh_shape=auto takes them all",
            code="idle_devices",
        )
    return jax.sharding.Mesh(np.array(devices[: sizes.size]).reshape(sizes), AXES)


def shape_of(mesh: jax.sharding.Mesh) -> MeshShape:
    """How many devices lie along each axis."""
    return MeshShape(**mesh.shape)


def row_shards(mesh: jax.sharding.Mesh | None) -> int:
    """Parts that rows are divided into; 1 where there is no mesh."""
    return 1 if mesh is None else shape_of(mesh).row_shards


def row_axes(mesh: jax.sharding.Mesh, num_rows: int) -> tuple[str, ...]:
    """The axes that so many rows are divided over: as many of `ROWS` as divide them evenly, from the first on.

    So rows that belong together stay together: where B prompts have n = B × G completions, each device that has a
    completion has its prompt, whether both, only the completions, or neither can be divided over all of `ROWS`.
    """
    for count in range(len(ROWS), 0, -1):
        if num_rows % _product(mesh, ROWS[:count]) == 0:
            return ROWS[:count]
    return ()


def row_parts(mesh: jax.sharding.Mesh | None, num_rows: int) -> int:
    """How many parts so many rows are divided into, each on devices of its own; 1 where there is no mesh."""
    return 1 if mesh is None else _product(mesh, row_axes(mesh, num_rows))


def sharding_over(mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh, *axes: Axes) -> jax.sharding.NamedSharding:
    """Where an array lies whose dimensions are divided over these axes; those not named are not divided."""
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))  # type: ignore[no-untyped-call]


def row_sharding(mesh: jax.sharding.Mesh, num_rows: int) -> jax.sharding.NamedSharding:
    """Where an array lies whose first axis is that of rows."""
    return sharding_over(mesh, row_axes(mesh, num_rows) or None)


def even_count(mesh: jax.sharding.Mesh, count: int, rows_of_each: int = 1) -> int:
    """The smallest number from `count` on of which each has so many rows that all rows together can be divided."""
    step = row_shards(mesh) // math.gcd(row_shards(mesh), rows_of_each)
    return -(-count // step) * step


def place_rows(mesh: jax.sharding.Mesh, arrays: Any) -> Any:
    """Bring arrays of the host to the devices, their rows divided.

    Where the devices are those of several processes, each of these has all of the arrays, and places its own rows.

    Args:
        mesh: Where to.
        arrays: A tree of NumPy arrays whose first axis is that of rows; they need not be equally many.

    Returns:
        The tree with arrays of JAX.
    """

    def place(array: np.ndarray) -> jax.Array:
        sharding = row_sharding(mesh, array.shape[0])
        if sharding.is_fully_addressable:
            placed: jax.Array = jax.device_put(array, sharding)
            return placed
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree.map(place, arrays)


def fetch(arrays: Any) -> Any:
    """Bring arrays from the devices to the host, to that of every process where they are on the devices of several.

    Args:
        arrays: A tree of arrays of JAX.

    Returns:
        The tree with NumPy arrays.
    """
    return jax.device_get(jax.tree.map(_whole, arrays))


def _whole(array: jax.Array) -> jax.Array:
    if array.is_fully_addressable or array.is_fully_replicated:
        return array
    assert isinstance(array.sharding, jax.sharding.NamedSharding)
    gathered: jax.Array = _copy_to_all(sharding_over(array.sharding.mesh))(array)
    return gathered


@functools.lru_cache
def _copy_to_all(everywhere: jax.sharding.NamedSharding) -> Callable[[jax.Array], jax.Array]:
    return jax.jit(lambda array: array, out_shardings=everywhere)


def divide(mesh: jax.sharding.Mesh | None, x: jax.Array, *axes: Axes, rows: tuple[str, ...] = ROWS) -> jax.Array:
    """Say, in a compiled program, over which axes of the mesh the dimensions of an array of rows are divided.

    Args:
        mesh: None, or of one device: nothing is said.
        x: Its first dimension is that of rows.
        axes: Of the dimensions after the first; one that does not divide its dimension evenly is left out, and so are
            those not named: each device has the whole of these dimensions.
        rows: What of `ROWS` its rows are divided over.
    """
    if mesh is None or mesh.size == 1:
        return x
    sizes = zip(axes, x.shape[1:], strict=False)
    even = [axis if axis and size % _product(mesh, axis) == 0 else None for axis, size in sizes]
    over = tuple(axis for axis in row_axes(mesh, x.shape[0]) if axis in rows)
    place = sharding_over(mesh, over or None, *even)
    divided: jax.Array = jax.lax.with_sharding_constraint(x, place)  # type: ignore[no-untyped-call]
    return divided


def _product(mesh: jax.sharding.Mesh, axes: Axes) -> int:
    names = (axes,) if isinstance(axes, str) else axes or ()
    return int(np.prod([mesh.shape[name] for name in names]))
