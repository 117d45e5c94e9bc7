"""The mesh of devices, its axes, and the transfer of arrays between host and devices.

Weights are divided over `fsdp` and `tp` and copied over `data`. Rows of a batch are divided over `data` and `fsdp`
together. Only this module and the modules of the weights name these axes.
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
# The axes over which the rows of a batch are divided, and with them all arrays that have a row dimension.
FSDP = "fsdp"
ROWS = ("data", FSDP)
TENSOR = "tp"

# The mesh axes that divide one dimension of an array: none, one, or several together.
Axes = str | tuple[str, ...] | None


def make_mesh(shape: MeshShape | list[int]) -> jax.sharding.Mesh:
    """Return a mesh of the first devices over `AXES`.

    Args:
        shape: [data, fsdp, tp], or [fsdp, tp] with one copy of the weights.

    Raises:
        ConfigError: The shape needs more devices than there are, or leaves out devices although there are several
            processes.
    """
    sizes = read_mesh_shape(shape)
    assert sizes is not None
    devices = jax.devices()
    if sizes.size > len(devices):
        raise ConfigError(
            f"model.mesh_shape {list(shape)} needs {sizes.size} devices, but there are {len(devices)}; use "
            f"model.mesh_shape=auto, or distributed.num_cpu_devices={sizes.size} to try the mesh on a CPU",
            code="invalid_devices",
        )
    if jax.process_count() > 1 and sizes.size < len(devices):
        raise ConfigError(
            f"model.mesh_shape {list(shape)} must use all {len(devices)} devices of the {jax.process_count()} "
            f"processes, but uses {sizes.size}; use model.mesh_shape=auto",
            code="invalid_devices",
        )
    return jax.sharding.Mesh(np.array(devices[: sizes.size]).reshape(sizes), AXES)


def shape_of(mesh: jax.sharding.Mesh) -> MeshShape:
    """Return the number of devices along each axis."""
    return MeshShape(**mesh.shape)


def is_on_tpu(mesh: jax.sharding.Mesh | None) -> bool:
    """Return True if the devices of a mesh are TPUs, here or of a topology to compile for."""
    return mesh is not None and mesh.devices.flat[0].platform == "tpu"


def row_shards(mesh: jax.sharding.Mesh | None) -> int:
    """Return the number of parts that rows are divided into; 1 without a mesh."""
    return 1 if mesh is None else shape_of(mesh).row_shards


def row_axes(mesh: jax.sharding.Mesh, num_rows: int) -> tuple[str, ...]:
    """Return the axes that divide a number of rows: as many of `ROWS`, from the first on, as divide it evenly.

    Rows that belong together therefore stay together. If B prompts have n = B × G completions, each device that has a
    completion also has its prompt, whether all of `ROWS` divides both, only the completions, or neither.
    """
    for count in range(len(ROWS), 0, -1):
        if num_rows % _product(mesh, ROWS[:count]) == 0:
            return ROWS[:count]
    return ()


def row_parts(mesh: jax.sharding.Mesh | None, num_rows: int) -> int:
    """Return the number of parts that `num_rows` rows are divided into, each on its own devices; 1 without a mesh."""
    return 1 if mesh is None else _product(mesh, row_axes(mesh, num_rows))


def even_copies(mesh: jax.sharding.Mesh | None, num_texts: int, num_rows: int) -> int:
    """Return how many copies of each text make the texts divide like their rows, without more work for any device.

    Args:
        mesh: Mesh that divides texts and rows; None for one device.
        num_texts: B.
        num_rows: n, those of a text side by side.
    """
    parts = row_parts(mesh, num_rows)
    copies = parts // row_parts(mesh, num_texts)
    is_even = num_rows % (num_texts * copies) == 0 and row_parts(mesh, num_texts * copies) == parts
    return copies if is_even else 1


def sharding_over(mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh, *axes: Axes) -> jax.sharding.NamedSharding:
    """Return the sharding of an array whose first dimensions are divided over these axes, and whose others are not."""
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))  # type: ignore[no-untyped-call]


def row_sharding(mesh: jax.sharding.Mesh, num_rows: int) -> jax.sharding.NamedSharding:
    """Return the sharding of an array whose first dimension is rows."""
    return sharding_over(mesh, row_axes(mesh, num_rows) or None)


def even_count(mesh: jax.sharding.Mesh, count: int, rows_of_each: int = 1) -> int:
    """Return the smallest number of items, at least `count`, whose rows together can be divided evenly.

    Args:
        mesh: Mesh that divides the rows.
        count: Minimum number of items.
        rows_of_each: Rows of an item.
    """
    step = row_shards(mesh) // math.gcd(row_shards(mesh), rows_of_each)
    return -(-count // step) * step


def place_rows(mesh: jax.sharding.Mesh, arrays: Any) -> Any:
    """Bring arrays of the host to the devices, with their rows divided.

    With several processes, each process has the whole arrays and places its own rows.

    Args:
        mesh: Mesh of the devices.
        arrays: A tree of NumPy arrays whose first dimension is rows. Their numbers of rows may differ.

    Returns:
        The tree with JAX arrays.
    """

    def place(array: np.ndarray) -> jax.Array:
        sharding = row_sharding(mesh, array.shape[0])
        if sharding.is_fully_addressable:
            placed: jax.Array = jax.device_put(array, sharding)
            return placed
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree.map(place, arrays)


def place_numbers(mesh: jax.sharding.Mesh, numbers: Any) -> Any:
    """Bring a tree of Python numbers to all devices: whole numbers as int32, others as float32."""
    arrays = jax.tree.map(
        lambda number: np.asarray(number, np.int32 if isinstance(number, int) else np.float32), numbers
    )
    return jax.device_put(arrays, sharding_over(mesh))


def fetch(arrays: Any) -> Any:
    """Bring arrays from the devices to the host, and to the host of every process if there are several.

    Args:
        arrays: A tree of JAX arrays.

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
    """Constrain, in a compiled program, the mesh axes that divide the dimensions of an array of rows.

    Args:
        mesh: Mesh; None or one device for no constraint.
        x: Array whose first dimension is rows.
        axes: Axes of the dimensions after the first. An axis that does not divide its dimension evenly is left out. A
            dimension without an axis is not divided.
        rows: The axes among `ROWS` that may divide the rows.
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
