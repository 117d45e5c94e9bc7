"""Which mesh shapes a model can have, and which of them `model.mesh_shape=auto` takes; loads no JAX.

The rule of `auto`, in this order: what fits in memory; as many devices as possible; as few parts of a copy of the
weights as possible, since copies only meet in the gradients of an update; and of these parts as many over `tp` as there
are. Weights divided over `fsdp` are sent to every device for every token that is sampled, and a run of GRPO spends much
of its time there; over `tp` each device reads its own part, and what is sent are the activations of a token.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agent_tunix.config.mesh_shape import MeshShape
from agent_tunix.errors import ConfigError
from agent_tunix.planning.memory import USABLE_MEMORY, gigabytes
from agent_tunix.policy.architecture import Architecture

_WHOLE = MeshShape(1, 1, 1)


@dataclass(frozen=True)
class Devices:
    """What there is to make a mesh of.

    Attributes:
        count: Devices of all processes.
        per_process: Those of one process, among which the links are fast.
        memory: Bytes that each has.
    """

    count: int
    per_process: int
    memory: int


@dataclass(frozen=True)
class MeshChoice:
    """A shape and why it was taken, for a person."""

    shape: MeshShape
    reason: str


def shape_problems(architecture: Architecture, shape: MeshShape, quantization: str | None = None) -> list[str]:
    """What a shape would divide unevenly, each with the arithmetic and what to do.

    Args:
        architecture: Of the model.
        shape: Of the mesh.
        quantization: As `model.quantization`; nf4 keeps two weights a byte.
    """
    found = []
    for axis, sizes in _divided_sizes(architecture, quantization).items():
        parts = getattr(shape, axis)
        if uneven := {name: size for name, size in sizes.items() if size % parts}:
            listed = ", ".join(f"{name} {size}" for name, size in uneven.items())
            good = [n for n in range(1, parts) if not any(size % n for size in sizes.values())]
            found.append(
                f"model.mesh_shape {shape} divides the model over {axis}={parts}, and {listed} cannot be divided by"
                f" {parts}; try {axis}={good[-1]}, or model.mesh_shape=auto"
            )
    return found


def _divided_sizes(a: Architecture, quantization: str | None) -> dict[str, dict[str, int]]:
    """Axis → name → size, of all that is divided over it."""
    queries, keys = a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
    sizes = {
        "fsdp": {"hidden_size": a.hidden_size},
        "tp": {
            "num_heads × head_dim": queries,
            "num_key_value_heads × head_dim": keys,
            "intermediate_size": a.intermediate_size,
            "vocab_size": a.vocab_size,
        },
    }
    if quantization == "nf4":
        sizes["fsdp"]["hidden_size / 2 of nf4"] = a.hidden_size // 2
        sizes["tp"]["num_heads × head_dim / 2 of nf4"] = queries // 2
        sizes["tp"]["intermediate_size / 2 of nf4"] = a.intermediate_size // 2
    return sizes


def choose_mesh_shape(
    architecture: Architecture,
    needs: Callable[[MeshShape], int],
    devices: Devices,
    *,
    num_rows: int | None,
    quantization: str | None = None,
) -> MeshChoice:
    """The shape that `model.mesh_shape=auto` stands for.

    Args:
        architecture: Of the model.
        needs: Bytes that each device of a mesh of this shape will hold.
        devices: What there is.
        num_rows: Rows of a micro-batch, which are divided over data × fsdp; None: any number can be.
        quantization: As `model.quantization`.

    Raises:
        ConfigError: There are several processes, and no shape uses the devices of all of them.
    """
    several = devices.count > devices.per_process  # A process without a device in the mesh would have no part in it.
    shapes = [
        shape
        for shape in _shapes(devices.count)
        if (shape.size == devices.count or not several)
        and not shape_problems(architecture, shape, quantization)
        and _divides_heads(architecture, shape.tp)
        and devices.per_process % shape.tp == 0
        and (num_rows is None or num_rows % shape.row_shards == 0)
    ]
    if not shapes:
        raise ConfigError(
            f"model.mesh_shape=auto finds no division of the model and of {num_rows} rows of a micro-batch that uses"
            f" all {devices.count} devices of {devices.count // devices.per_process} processes; try a micro-batch"
            f" (training.micro_batch_size × grpo.num_generations) of a multiple of {devices.count} rows",
            code="idle_devices",
        )
    needed = {shape: needs(shape) for shape in [*shapes, _WHOLE]}
    room = int(devices.memory * USABLE_MEMORY)
    fitting = [shape for shape in shapes if needed[shape] <= room]
    if fitting:
        shape = max(fitting, key=lambda shape: (shape.size, shape.data, shape.tp))
    else:
        shape = max(shapes, key=lambda shape: (-needed[shape], shape.size, shape.tp))
    return MeshChoice(shape, _reason(shape, shapes, needed, devices, num_rows))


def _reason(
    shape: MeshShape, shapes: list[MeshShape], needed: dict[MeshShape, int], devices: Devices, num_rows: int | None
) -> str:
    room = f"{gigabytes(devices.memory)} each"
    each = f"about {gigabytes(needed[shape])} on each of {shape.size} devices with {room}"
    if devices.count == 1:
        return each.replace("each of 1 devices", "one device").replace(" each", "")
    parts = [each]
    if needed[shape] > devices.memory * USABLE_MEMORY:
        parts.append("nothing that the model and the batch allow needs less")
    elif shape.weight_shards > 1 and needed[_WHOLE] > devices.memory * USABLE_MEMORY:
        parts.append(f"whole on one device it would be {gigabytes(needed[_WHOLE])}")
    most_rows = max(other.row_shards for other in shapes)
    if num_rows is not None and most_rows < devices.count and shape.row_shards == most_rows:
        parts.append(f"the {num_rows} rows of a micro-batch can be divided by no more than {most_rows} of them")
    if idle := devices.count - shape.size:
        parts.append(
            f"{idle} of {devices.count} devices stay idle, which no division of the model and of the rows could use;"
            f" a micro-batch of a multiple of {devices.count} completions can"
        )
    return "; ".join(parts)


def _shapes(count: int) -> Iterator[MeshShape]:
    """All that so many devices can be used for."""
    for used in range(1, count + 1):
        for tp in _divisors(used):
            for fsdp in _divisors(used // tp):
                yield MeshShape(used // tp // fsdp, fsdp, tp)


def _divides_heads(a: Architecture, tp: int) -> bool:
    """Whether each device has whole query heads, and whole key-value heads or one that others have too."""
    return a.num_heads % tp == 0 and (a.num_kv_heads % tp == 0 or tp % a.num_kv_heads == 0)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if math.gcd(n, number) == n]
