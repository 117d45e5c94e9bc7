"""The mesh shapes that a model can have, and the choice among them for `model.mesh_shape=auto`; loads no JAX.

The rules of `auto`, in this order:

1. The run fits in memory.
2. As many devices as possible are used.
3. Each copy of the weights has as few parts as possible. Copies communicate only the gradients of an update.
4. As many of these parts as possible lie along `tp`. Weights divided over `fsdp` are sent to every device for every
   sampled token, and sampling takes much of a GRPO run's time. With `tp` each device reads its own part and sends only
   the activations of a token.
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
    """The devices that are available for a mesh."""

    count: int  # devices of all processes
    per_process: int  # devices of one process, which fast links connect
    memory: int  # bytes of each device


@dataclass(frozen=True)
class MeshChoice:
    """A mesh shape, and the reason for it as text."""

    shape: MeshShape
    reason: str


def shape_problems(architecture: Architecture, shape: MeshShape, quantization: str | None = None) -> list[str]:
    """Return the sizes that a shape would divide unevenly, each as a message with the arithmetic and the remedy.

    Args:
        architecture: Architecture of the model.
        shape: Shape of the mesh.
        quantization: The setting `model.quantization`. nf4 stores two weights per byte.
    """
    problems = []
    for axis, sizes in _divided_sizes(architecture, quantization).items():
        parts = getattr(shape, axis)
        if uneven := {name: size for name, size in sizes.items() if size % parts}:
            uneven_sizes = ", ".join(f"{name} {size}" for name, size in uneven.items())
            good = [n for n in range(1, parts) if not any(size % n for size in sizes.values())]
            problems.append(
                f"model.mesh_shape {shape} divides the model over {axis}={parts}, but {uneven_sizes} is not "
                f"divisible by {parts}; use {axis}={good[-1]}, or model.mesh_shape=auto"
            )
    return problems


def _divided_sizes(a: Architecture, quantization: str | None) -> dict[str, dict[str, int]]:
    """Return the sizes that each axis divides: axis → name → size."""
    queries, keys = a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
    sizes = {
        "fsdp": {"hidden_size": a.hidden_size},
        "tp": {"num_heads × head_dim": queries, "num_key_value_heads × head_dim": keys, "vocab_size": a.vocab_size},
    }
    if a.layer_embedding_size:
        for divided in sizes.values():
            divided["hidden_size_per_layer_input"] = a.layer_embedding_size
    if a.num_experts:
        sizes["tp"]["num_experts"] = a.num_experts
    if not all(map(a.has_experts, range(a.num_layers))):
        sizes["tp"]["intermediate_size"] = a.intermediate_size
    if a.delta_net is not None:
        values = a.delta_net.value_heads * a.delta_net.value_dim
        sizes["tp"] |= {
            "linear_num_value_heads": a.delta_net.value_heads,
            "linear_num_value_heads × linear_value_head_dim / 2": values // 2,  # as nf4 stores them
            "channels of linear attention": a.delta_net.conv_channels,
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
    """Return the shape for `model.mesh_shape=auto`.

    Args:
        architecture: Architecture of the model.
        needs: Function from a mesh shape to the bytes that each device will hold.
        devices: The devices that are available.
        num_rows: Rows of a micro-batch, which are divided over data × fsdp; None if any division of rows is allowed.
        quantization: The setting `model.quantization`.

    Raises:
        ConfigError: There are several processes, and no shape uses the devices of all of them.
    """
    several = devices.count > devices.per_process  # then every process needs a device in the mesh
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
            f"model.mesh_shape=auto must use all {devices.count} devices of {devices.count // devices.per_process} "
            f"processes, but the model and the {num_rows} completions of a micro-batch cannot be divided evenly among "
            f"them; make training.micro_batch_size × grpo.num_generations a multiple of {devices.count}",
            code="invalid_devices",
        )
    bytes_of_shape = {shape: needs(shape) for shape in [*shapes, _WHOLE]}
    room = int(devices.memory * USABLE_MEMORY)
    fitting = [shape for shape in shapes if bytes_of_shape[shape] <= room]
    if fitting:
        shape = max(fitting, key=lambda shape: (shape.size, shape.data, shape.tp))
    else:
        shape = max(shapes, key=lambda shape: (-bytes_of_shape[shape], shape.size, shape.tp))
    return MeshChoice(shape, _reason(shape, shapes, bytes_of_shape, devices, num_rows))


def _reason(
    shape: MeshShape,
    shapes: list[MeshShape],
    bytes_of_shape: dict[MeshShape, int],
    devices: Devices,
    num_rows: int | None,
) -> str:
    room = f"{gigabytes(devices.memory)} each"
    share = f"about {gigabytes(bytes_of_shape[shape])} on each of {shape.size} devices with {room}"
    if devices.count == 1:
        return share.replace("each of 1 devices", "one device").replace(" each", "")
    parts = [share]
    if bytes_of_shape[shape] > devices.memory * USABLE_MEMORY:
        parts.append("no mesh that fits the model and the batch needs less")
    elif shape.weight_shards > 1 and bytes_of_shape[_WHOLE] > devices.memory * USABLE_MEMORY:
        parts.append(f"on one device it would need {gigabytes(bytes_of_shape[_WHOLE])}")
    most_rows = max(other.row_shards for other in shapes)
    if num_rows is not None and most_rows < devices.count and shape.row_shards == most_rows:
        parts.append(f"the {num_rows} completions of a micro-batch can be divided over at most {most_rows} of them")
    if idle := devices.count - shape.size:
        parts.append(
            f"{idle} of {devices.count} devices stay idle, because the model and the rows cannot be divided over "
            f"them; a micro-batch of a multiple of {devices.count} completions can use all"
        )
    return "; ".join(parts)


def _shapes(count: int) -> Iterator[MeshShape]:
    """Yield all shapes that use at most `count` devices."""
    for size in range(1, count + 1):
        for tp in _divisors(size):
            for fsdp in _divisors(size // tp):
                yield MeshShape(size // tp // fsdp, fsdp, tp)


def _divides_heads(a: Architecture, tp: int) -> bool:
    """Return True if each device gets whole query heads, and whole key-value heads or one shared with others."""
    return a.num_heads % tp == 0 and (a.num_kv_heads % tp == 0 or tp % a.num_kv_heads == 0)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if math.gcd(n, number) == n]
