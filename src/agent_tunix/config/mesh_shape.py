"""Numbers of devices along the axes of the mesh: `model.mesh_shape`."""

import math
from typing import NamedTuple

AUTO = "auto"


class MeshShape(NamedTuple):
    """Devices along the axes of the mesh, in their order."""

    data: int  # copies of the weights, among which the rows of a batch are divided
    fsdp: int  # devices that share the weights of a copy and divide its rows again
    # Devices that share the weights of a copy and compute the same rows. Each holds a part of the heads, of the MLP's
    # width and of the vocabulary.
    tp: int

    @property
    def size(self) -> int:
        """Number of all devices."""
        return math.prod(self)

    @property
    def row_shards(self) -> int:
        """Number of parts that the rows of a batch are divided into."""
        return self.data * self.fsdp

    @property
    def weight_shards(self) -> int:
        """Number of parts that the weights of a copy are divided into."""
        return self.fsdp * self.tp

    def rows_per_device(self, rows: int) -> int:
        """Return the rows on a device: divided over data × fsdp if even, else over data if even, else all rows."""
        for shards in (self.row_shards, self.data):
            if rows % shards == 0:
                return rows // shards
        return rows

    def __str__(self) -> str:
        """Return the shape in the form of the setting."""
        return f"[{self.data},{self.fsdp},{self.tp}]"


def read_mesh_shape(given: object) -> MeshShape | None:
    """Return the shape for `[fsdp, tp]` or `[data, fsdp, tp]`; None for `auto`.

    Raises:
        ValueError: The value has another form; the message says which are valid.
    """
    if given == AUTO:
        return None
    numbers = list(given) if isinstance(given, list | tuple) else []
    if len(numbers) not in (2, 3) or any(not isinstance(n, int) or isinstance(n, bool) or n < 1 for n in numbers):
        raise ValueError(
            "model.mesh_shape must be auto or positive numbers, [fsdp,tp] or [data,fsdp,tp], not"
            f" {given!r}; use [1,1] for one device"
        )
    return MeshShape(*[1] * (3 - len(numbers)), *numbers)
