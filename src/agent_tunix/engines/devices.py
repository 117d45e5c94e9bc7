"""The devices of this machine, divided between the trainer and the sampling processes that it starts.

A process sees the devices that its environment variables name when JAX starts in it. Importing this module does not
load JAX.
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path

from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError

# Environment variables of each sampling process; empty if they see what this process sees.
SAMPLING_DEVICES: ContextVar[Sequence[Mapping[str, str]]] = ContextVar("SAMPLING_DEVICES", default=())

_CUDA, _TPU = "CUDA_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS"
# Number of chips of a process → their arrangement on a host.
_TPU_BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}
_FIRST_TPU_PORT = 8476
# Value of a variable that a run has set for this process → all devices, for the next run in it.
_DIVIDED: dict[str, list[str]] = {}


def divide_devices(
    devices: Sequence[str], num_processes: int, per_process: int | None
) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Return the devices of the trainer, the first ones, and those of each sampling process.

    Args:
        devices: All devices.
        num_processes: Number of sampling processes.
        per_process: Devices of each; None for equal shares of half of the devices, at least one each.

    Raises:
        ConfigError: There are too few devices.
    """
    if per_process is None:
        per_process = max(1, len(devices) // 2 // num_processes)
    kept = len(devices) - num_processes * per_process
    if kept < 1:
        raise ConfigError(
            f"engine.num_processes={num_processes} with {per_process} devices each and the trainer require at least "
            f"{num_processes * per_process + 1} devices, but this machine has {len(devices)}; lower "
            "engine.num_processes or engine.devices_per_process, or set engine.devices_per_process=0, with which all "
            "processes see all devices",
            code="not_enough_devices",
        )
    starts = range(kept, len(devices), per_process)
    return devices[:kept], [devices[start : start + per_process] for start in starts]


def device_variables(kind: str, devices: Sequence[str], number: int) -> dict[str, str]:
    """Return the environment variables of a process that sees some devices.

    Args:
        kind: `CUDA_VISIBLE_DEVICES` or `TPU_VISIBLE_CHIPS`, the variable that lists devices.
        devices: Devices of the process.
        number: Number of the process on this machine, from 0.

    Raises:
        ConfigError: A process cannot have so many chips of a TPU.
    """
    variables = {kind: ",".join(devices)}
    if kind == _CUDA:
        return variables
    if len(devices) not in _TPU_BOUNDS:
        raise ConfigError(
            f"a process requires 1, 2, 4 or 8 chips of a TPU, not {len(devices)}; set engine.devices_per_process so "
            "that trainer and sampling processes have such numbers",
            code="not_enough_devices",
        )
    port = str(_FIRST_TPU_PORT + number)
    return variables | {
        "TPU_CHIPS_PER_PROCESS_BOUNDS": _TPU_BOUNDS[len(devices)],
        "TPU_PROCESS_BOUNDS": "1,1,1",
        "TPU_PROCESS_ADDRESSES": f"localhost:{port}",
        "TPU_PROCESS_PORT": port,
        "CLOUD_TPU_TASK_ID": "0",
    }


def reserve_devices(config: Config) -> list[dict[str, str]]:
    """Leave the trainer, which is this process, its own devices, before JAX looks for them.

    Returns:
        The environment variables of each sampling process; none without such processes, or if all see all devices.

    Raises:
        ConfigError: There are too few devices, or they cannot be divided so, or only otherwise than by an earlier run.
    """
    engine = config.engine
    if not engine.num_processes or engine.devices_per_process == 0 or config.distributed.platform == "cpu":
        return []
    kind, devices = find_devices()
    if not devices:
        return []
    held = os.environ.get(kind, "")
    devices = _DIVIDED.get(held, devices)
    own, others = divide_devices(devices, engine.num_processes, engine.devices_per_process)
    variables = [device_variables(kind, some, number) for number, some in enumerate([own, *others])]
    if held in _DIVIDED and variables[0][kind] != held:
        raise ConfigError(
            f"the trainer must keep the devices {held} that an earlier run left this Python process, but "
            f"engine.num_processes={engine.num_processes} would leave it {variables[0][kind]}; divide them as before, "
            "or restart Python",
            code="not_enough_devices",
        )
    os.environ.update(variables[0])
    _DIVIDED[variables[0][kind]] = devices
    return variables[1:]


def find_devices(root: Path = Path("/dev")) -> tuple[str, list[str]]:
    """Return the variable that lists the devices of this machine, and the devices; none if it has no accelerator.

    Args:
        root: Directory of device files.
    """
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return _CUDA, []
    for variable, pattern in ((_TPU, r"accel(\d+)|vfio/(\d+)"), (_CUDA, r"nvidia(\d+)")):
        if listed := os.environ.get(variable):
            return variable, listed.split(",")
        files = [str(file.relative_to(root)) for file in (*root.glob("*"), *root.glob("vfio/*"))]
        if count := sum(re.fullmatch(pattern, file) is not None for file in files):
            return variable, [str(number) for number in range(count)]
    return _CUDA, []
