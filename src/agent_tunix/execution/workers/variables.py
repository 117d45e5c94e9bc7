"""Environment variables of a worker: the trainer's without its devices, or almost none."""

from collections.abc import Mapping

_DEVICES = ("CUDA_", "NVIDIA_", "JAX_", "XLA_", "TPU_", "LIBTPU", "ROCR_", "HIP_", "NEURON_")
_NO_DEVICE = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
# There is a worker per core, so libraries with a thread per core would make workers wait for each other.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a worker."""
    kept = {name: value for name, value in environment.items() if not name.startswith(_DEVICES)}
    return {**_ONE_THREAD, **kept, **_NO_DEVICE}


# Variables that affect libraries and computation and hold nothing private.
_HARMLESS = ("LD_LIBRARY_PATH", "PYTHONHASHSEED", "TZ")


def isolated_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a worker that runs other people's code, without the trainer's secrets."""
    kept = {name: environment[name] for name in _HARMLESS if name in environment}
    fixed = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    # Fewer arenas of malloc, because each takes address space, which is limited.
    return {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "2", **_ONE_THREAD, **kept, **fixed, **_NO_DEVICE}
