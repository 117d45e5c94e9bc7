"""The environment of a worker: that of the trainer without its devices, or next to nothing of it."""

from collections.abc import Mapping

_DEVICES = ("CUDA_", "NVIDIA_", "JAX_", "XLA_", "TPU_", "LIBTPU", "ROCR_", "HIP_", "NEURON_")
_NO_DEVICE = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
# There is a worker for each core; libraries with a thread for each core would make them wait for each other.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a worker finds in its environment."""
    kept = {name: value for name, value in environment.items() if not name.startswith(_DEVICES)}
    return {**_ONE_THREAD, **kept, **_NO_DEVICE}


# What changes how Python finds libraries and how it computes, and says nothing about anybody.
_HARMLESS = ("LD_LIBRARY_PATH", "PYTHONHASHSEED", "TZ")


def isolated_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a worker finds in its environment that runs code of others: none of the trainer's secrets."""
    kept = {name: environment[name] for name in _HARMLESS if name in environment}
    fixed = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    # Each thread's own store of memory would take address space, of which there is a limit.
    return {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "2", **_ONE_THREAD, **kept, **fixed, **_NO_DEVICE}
