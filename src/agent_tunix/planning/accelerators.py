"""Speed and memory of common accelerators, from the manufacturers' data sheets; loads nothing."""

from dataclasses import dataclass

from agent_tunix.errors import ConfigError

# Measured on an H200 with Qwen 3 0.6B: 1.67 s for 512 tokens through 28 layers. A TPU runs a layer as one program.
_GPU_LAYER_S = 1.2e-4


@dataclass(frozen=True)
class Accelerator:
    """One device."""

    name: str  # name that a user writes
    memory_bytes: int
    # Floating-point operations per second of dense bfloat16 matrix products; None if not known.
    flops: float | None = None
    bandwidth: float | None = None  # bytes per second between memory and cores; None if not known
    link: float | None = None  # bytes per second that it can send to its neighbours, one way; None if not known
    layer_s: float = 0.0  # seconds in which the kernels of one layer are started for one token


def _device(name: str, gigabytes: float, teraflops: float, bandwidth: float, link: float) -> Accelerator:
    """Return a device.

    Args:
        name: Name that a user writes.
        gigabytes: Memory in GB.
        teraflops: TFLOP/s.
        bandwidth: GB/s between memory and cores.
        link: GB/s one way, over NVLink, PCIe or the interconnect of a TPU slice.
    """
    layer_s = 0.0 if name.startswith("v") else _GPU_LAYER_S
    return Accelerator(name, round(gigabytes * 1e9), teraflops * 1e12, bandwidth * 1e9, link * 1e9, layer_s)


ACCELERATORS = {
    device.name: device
    for device in (
        _device("a100-40", 40, 312, 1555, 300),
        _device("a100-80", 80, 312, 2039, 300),
        _device("h100", 80, 989, 3350, 450),
        _device("h200", 141, 989, 4800, 450),
        _device("l4", 24, 121, 300, 32),
        # The T4 has no bfloat16. This is its float32 rate, which it falls back to.
        _device("t4", 16, 8.1, 320, 16),
        _device("v4", 32, 275, 1228, 150),
        _device("v5e", 16, 197, 819, 100),
        _device("v5p", 95, 459, 2765, 300),
        _device("v6e", 32, 918, 1640, 224),
    )
}


def find_accelerator(name: str) -> Accelerator:
    """Return the device with this name; raise ConfigError if the table does not contain it."""
    if name.lower() not in ACCELERATORS:
        variants = " or ".join(variant for variant in ACCELERATORS if variant.startswith(f"{name.lower()}-"))
        raise ConfigError(
            f"the device must be one of {', '.join(ACCELERATORS)}, not {name!r}"
            f"{f'; did you mean {variants}?' if variants else ''}; for another device set "
            "--device-memory, --device-tflops and --device-bandwidth",
            code="invalid_devices",
        )
    return ACCELERATORS[name.lower()]
