"""How many devices lie along each axis of the mesh, as `model.mesh_shape` says it."""

import math
from collections.abc import Sequence
from typing import NamedTuple


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

    def __str__(self) -> str:
        """As the setting is written."""
        return f"[{self.data},{self.fsdp},{self.tp}]"


def read_mesh_shape(given: Sequence[int]) -> MeshShape:
    """The shape that `[fsdp, tp]` or `[data, fsdp, tp]` stands for.

    Raises:
        ValueError: It is neither; with what it should be.
    """
    is_list = isinstance(given, Sequence) and not isinstance(given, str)
    numbers = [n for n in given if isinstance(n, int) and not isinstance(n, bool) and n >= 1] if is_list else []
    if not is_list or len(numbers) != len(given) or len(numbers) not in (2, 3):
        raise ValueError(
            f"model.mesh_shape must be positive numbers, [fsdp,tp] or [data,fsdp,tp], not {given!r};"
            " one device is [1,1]"
        )
    return MeshShape(*[1] * (3 - len(numbers)), *numbers)
