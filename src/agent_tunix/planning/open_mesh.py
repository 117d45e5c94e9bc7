"""The mesh of a configuration, checked or chosen before a weight is loaded."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import jax

from agent_tunix.config.mesh_shape import MeshShape, read_mesh_shape
from agent_tunix.config.schema import Config, EngineConfig
from agent_tunix.errors import ConfigError
from agent_tunix.planning.memory import MemoryPlan, check_memory, host_memory, plan_memory
from agent_tunix.planning.mesh_choice import Devices, choose_mesh_shape, shape_problems
from agent_tunix.policy.architecture import Architecture
from agent_tunix.policy.mesh import make_mesh, shape_of
from agent_tunix.policy.model import compute_dtype

_LOGGER = logging.getLogger("agent_tunix.model")


def open_mesh(
    config: Config, architecture: Architecture, *, num_rows: int | None, judges: Sequence[Config] = ()
) -> jax.sharding.Mesh:
    """Return the mesh that `model.mesh_shape` asks for.

    An automatic choice is logged, and so is a warning if memory may be too small.

    Args:
        config: Configuration of the run.
        architecture: Architecture of the policy.
        num_rows: Rows of a micro-batch, which must be divided evenly. None if nothing trains: then any number of rows
            is allowed, and another mesh is chosen if the run's needs more devices than there are here.
        judges: The models of judges that are sampled on the mesh, for the plan.

    Raises:
        ConfigError: There are too few devices, the shape does not divide the model evenly, or the weights, alone or
            with keys and values, exceed the memory of the devices.
    """
    if num_rows is None:  # nothing trains, and the teacher may be on another machine; it samples here
        config = replace(config, grpo=replace(config.grpo, teacher=None), engine=EngineConfig())
    shape, quantization = read_mesh_shape(config.model.mesh_shape), config.model.quantization
    compute_bytes = compute_dtype(config.model.dtype).itemsize

    def plan(shape: MeshShape) -> MemoryPlan:
        whole = plan_memory(architecture, config, compute_bytes, shape, judges)
        return whole.for_sampling() if num_rows is None else whole

    if num_rows is None and shape is not None and shape.size > jax.device_count():
        _LOGGER.info("the mesh %s of the run needs more than the %d devices of this machine", shape, jax.device_count())
        shape = None
    if shape is None:
        choice = choose_mesh_shape(
            architecture,
            lambda shape: plan(shape).total,
            _devices(),
            num_rows=num_rows,
            quantization=quantization,
        )
        shape = choice.shape
        if jax.device_count() > 1:
            _LOGGER.info("model.mesh_shape=auto: [data,fsdp,tp] = %s: %s", shape, choice.reason)
    elif problems := shape_problems(architecture, shape, quantization):
        raise ConfigError("\n".join(problems))
    mesh = make_mesh(shape)
    if warning := check_memory(plan(shape), available_memory(mesh) // shape.size, trains=num_rows is not None):
        _LOGGER.warning("%s", warning)
    return mesh


def available_memory(mesh: jax.sharding.Mesh) -> int:
    """Return the bytes of memory of the devices of a mesh. On CPU all devices share the machine's memory."""
    own_memory = _device_memory()
    return host_memory() if own_memory is None else own_memory * shape_of(mesh).size


def _devices() -> Devices:
    memory = _device_memory()
    return Devices(
        count=jax.device_count(),
        per_process=jax.local_device_count(),
        memory=host_memory() // jax.local_device_count() if memory is None else memory,
    )


def _device_memory() -> int | None:
    """Return the bytes of the smallest device of this process, or None if they have no memory of their own."""
    limits = [(device.memory_stats() or {}).get("bytes_limit") for device in jax.local_devices()]
    sizes = [int(limit) for limit in limits if limit is not None]
    return min(sizes) if len(sizes) == len(limits) else None
