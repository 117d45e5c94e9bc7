"""How many devices lie along each axis of the mesh, as `model.mesh_shape` says it."""

import math
from typing import NamedTuple

AUTO = "auto"


class MeshShape(NamedTuple):
    """Devices along the axes of the mesh, in their order.

    Attributes:
        data: Copies of the weights; rows of a batch are divided among them.
        fsdp: Devices that share the weights of a copy, and divide its rows once more.
        tp: Devices that share the weights of a copy and all compute the same rows, each its part of the heads, of the
            MLP's width and of the words.
    """

    data: int
    fsdp: int
    tp: int

    @property
    def size(self) -> int:
        """All devices."""
        return math.prod(self)

    @property
    def row_shards(self) -> int:
        """Parts that the rows of a batch are divided into."""
        return self.data * self.fsdp

    @property
    def weight_shards(self) -> int:
        """Parts that the weights of a copy are divided into."""
        return self.fsdp * self.tp

    def rows_per_device(self, rows: int) -> int:
        """Return the rows on a device: divided over data × fsdp if even, else over data if even, else all rows."""
        for shards in (self.row_shards, self.data):
            if rows % shards == 0:
                return rows // shards
        return rows

    def __str__(self) -> str:
        """As the setting is written."""
        return f"[{self.data},{self.fsdp},{self.tp}]"


def read_mesh_shape(given: object) -> MeshShape | None:
    """The shape that `[fsdp, tp]` or `[data, fsdp, tp]` stands for; None for `auto`.

    Raises:
        ValueError: It is none of these; with what it should be.
    """
    if given == AUTO:
        return None
    numbers = list(given) if isinstance(given, list | tuple) else []
    if len(numbers) not in (2, 3) or any(not isinstance(n, int) or isinstance(n, bool) or n < 1 for n in numbers):
        raise ValueError(
            "model.mesh_shape must be auto or positive numbers, [fsdp,tp] or [data,fsdp,tp], not"
            f" {given!r}; one device is [1,1]"
        )
    return MeshShape(*[1] * (3 - len(numbers)), *numbers)
