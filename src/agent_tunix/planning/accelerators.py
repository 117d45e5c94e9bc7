"""What common accelerators can do, as their makers' data sheets have it; loads nothing."""

from dataclasses import dataclass

from agent_tunix.errors import ConfigError


@dataclass(frozen=True)
class Accelerator:
    """One device.

    Attributes:
        name: What a user calls it.
        memory_bytes: Its own memory.
        flops: Floating-point operations a second of dense matrix products in bfloat16; None: not known.
        bandwidth: Bytes a second between memory and cores; None: not known.
        link: Bytes a second that it can send to its neighbours, one way; None: not known.
    """

    name: str
    memory_bytes: int
    flops: float | None = None
    bandwidth: float | None = None
    link: float | None = None


def _device(name: str, gigabytes: float, teraflops: float, bandwidth: float, link: float) -> Accelerator:
    """Args: GB, TFLOP/s, GB/s of memory, GB/s one way, over NVLink, PCIe or the interconnect of a TPU slice."""
    return Accelerator(name, round(gigabytes * 1e9), teraflops * 1e12, bandwidth * 1e9, link * 1e9)


ACCELERATORS = {
    device.name: device
    for device in (
        _device("a100-40", 40, 312, 1555, 300),
        _device("a100-80", 80, 312, 2039, 300),
        _device("h100", 80, 989, 3350, 450),
        _device("h200", 141, 989, 4800, 450),
        _device("l4", 24, 121, 300, 32),
        # It has no bfloat16; this is the rate of float32, to which it comes down.
        _device("t4", 16, 8.1, 320, 16),
        _device("v4", 32, 275, 1228, 150),
        _device("v5e", 16, 197, 819, 100),
        _device("v5p", 95, 459, 2765, 300),
        _device("v6e", 32, 918, 1640, 224),
    )
}


def find_accelerator(name: str) -> Accelerator:
    """The device of this name.

    Raises:
        ConfigError: It is not in the table.
    """
    if name.lower() not in ACCELERATORS:
        raise ConfigError(
            f"no device {name!r} is known, only {', '.join(ACCELERATORS)}; give --device-memory, --device-tflops and"
            " --device-bandwidth of another",
            code="unknown_device",
        )
    return ACCELERATORS[name.lower()]
