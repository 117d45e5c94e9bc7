"""Connecting the processes of a run, as `distributed.mode` says, before JAX looks for devices.

`jax.distributed` detects addresses, numbers and ranks under Slurm, Open MPI, a TPU's metadata, GKE and Kubernetes.
"""

import hashlib
import importlib.util
import logging
import os
import socket
from typing import Any

from agent_tunix.config.schema import DistributedConfig
from agent_tunix.distributed.group import Processes, leave, settle
from agent_tunix.distributed.loss import AbortHandler
from agent_tunix.distributed.store import ValueStore
from agent_tunix.errors import ConfigError, LostProcessError

# The variable by which JAX detects Open MPI 4 and earlier. Later versions and other MPIs need mpi4py.
_OPEN_MPI = "OMPI_MCA_orte_hnp_uri"
# The variables by which JAX detects Slurm.
_SLURM = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")
_USER_STATUS = 2


def join(distributed: DistributedConfig, identity: str = "") -> Processes:
    """Connect the processes of the run. Every process waits until all are connected.

    Args:
        distributed: The configuration of the processes.
        identity: Text that must be the same in all processes.

    Raises:
        ConfigError: The processes cannot be found or reached, or do not belong to the same run.
    """
    if distributed.mode == "none":
        return Processes()
    method = _detection(distributed)
    _check_port(distributed)
    import jax

    logging.getLogger("jax").setLevel(logging.WARNING)  # JAX logs every step of connecting
    handler = AbortHandler()
    handler.status = _USER_STATUS
    handler.text = f"{ConfigError.__name__}: {_describe_timeout(distributed)}"
    handler.install()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # type: ignore[no-untyped-call]
    # The service would take SIGTERM, which the run handles itself, so that all processes stop after the same step.
    jax.config.update("jax_enable_preemption_service", False)  # type: ignore[no-untyped-call]
    try:
        jax.distributed.initialize(
            coordinator_address=distributed.coordinator_address,
            num_processes=distributed.num_processes,
            process_id=distributed.process_id,
            local_device_ids=distributed.local_device_ids,
            cluster_detection_method=method,
            initialization_timeout=distributed.initialization_timeout_s,
            heartbeat_timeout_seconds=distributed.heartbeat_timeout_s,
            shutdown_timeout_seconds=distributed.initialization_timeout_s,
        )
    except (RuntimeError, ValueError, TypeError, OSError, KeyError) as error:
        raise ConfigError(_describe_failure(distributed, error), code="joining_failed") from error
    from jax._src import distributed as state  # JAX has no public access to its client

    global_state: Any = state.global_state
    handler.status = 1
    processes = Processes(global_state.process_id, global_state.num_processes, ValueStore(global_state.client), handler)
    settle(processes)
    processes.remember("No step was completed, so there is nothing to resume.")
    try:
        _check_same(processes, identity)
        _connect_devices(processes)
    except ConfigError:  # all processes raise it, so they disconnect together
        leave(handler)
        raise
    return processes


def _check_port(distributed: DistributedConfig) -> None:
    """Check that process 0 can have the port that the user chose. JAX would crash, or share it with another run.

    Raises:
        ConfigError: Another program or another run has the port.
    """
    address = distributed.coordinator_address
    if distributed.mode != "manual" or address is None or distributed.process_id != 0:
        return
    port = int(address.rpartition(":")[2])
    is_dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual else socket.AF_INET
    try:
        socket.create_server(("", port), family=family, dualstack_ipv6=is_dual).close()
    except OSError as error:
        raise ConfigError(
            f"distributed.coordinator_address={address} requires a free port {port} on this machine, but it cannot be "
            f"used ({error.strerror}); another program or another run may have it; set another port in all processes",
            code="processes_unreachable",
        ) from error


def _detection(distributed: DistributedConfig) -> str | None:
    """Return the name of JAX's detection method; None lets JAX choose.

    Raises:
        ConfigError: A key, a variable or a package that the mode requires is missing.
    """
    mode = distributed.mode
    if mode == "manual":
        keys = ("coordinator_address", "num_processes", "process_id")
        if missing := [f"distributed.{name}" for name in keys if getattr(distributed, name) is None]:
            raise ConfigError(
                f"distributed.mode=manual requires {' and '.join(missing)}; set them, or choose distributed=manual,"
                " which reads JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID from the environment"
            )
        return "deactivate"
    if mode == "slurm":
        if missing := [name for name in _SLURM if name not in os.environ]:
            raise ConfigError(
                f"distributed.mode=slurm requires the variables that srun sets, but {', '.join(missing)} is not set;"
                " start the program with srun, or set distributed=manual"
            )
        return "slurm"
    if mode == "mpi":
        if _OPEN_MPI in os.environ:
            return "ompi"
        if importlib.util.find_spec("mpi4py") is None:
            raise ConfigError(
                "distributed.mode=mpi requires mpi4py (except with Open MPI 4 and earlier), which is not installed; "
                "pip install mpi4py, or set distributed=manual",
                code="missing_package",
            )
        return "mpi4py"
    return None


def _check_same(processes: Processes, identity: str) -> None:
    """Refuse processes with another count or configuration, which would compute something else or wait for ever.

    Raises:
        ConfigError: Two processes differ.
    """
    digest = hashlib.sha256(identity.encode()).hexdigest()
    answers = processes.gather((processes.count, digest))
    if others := [index for index, (count, _) in enumerate(answers) if count != processes.count]:
        raise ConfigError(
            f"all processes require the same distributed.num_processes, but process {processes.index} has "
            f"{processes.count} and process {others[0]} has {answers[others[0]][0]}; set the same value in all of them",
            code="processes_differ",
        )
    if others := [index for index, (_, digest_of_another) in enumerate(answers) if digest_of_another != answers[0][1]]:
        raise ConfigError(
            f"all processes require the same configuration, but that of process {others[0]} differs from that of "
            "process 0; start all of them with the same overrides, except distributed.process_id and "
            "distributed.local_device_ids",
            code="processes_differ",
        )


def _connect_devices(processes: Processes) -> None:
    """Connect the devices while all processes are present.

    The first collective waits for its partners for only half a minute.

    Raises:
        ConfigError: The devices cannot reach each other.
    """
    import jax
    from jax.experimental import multihost_utils

    try:
        processes.each(jax.local_device_count)
        multihost_utils.sync_global_devices("agent_tunix")
    except (RuntimeError, ValueError) as error:
        if isinstance(error, LostProcessError | ConfigError):
            raise
        raise ConfigError(
            f"the devices of the {processes.count} processes cannot reach each other: {error}; check that the "
            "network allows it, and that all have the same distributed.platform",
            code="processes_unreachable",
        ) from error


def _describe_timeout(distributed: DistributedConfig) -> str:
    address = distributed.coordinator_address or "the detected address"
    count = "" if distributed.num_processes is None else f" of {distributed.num_processes}"
    return (
        f"not all{count} processes connected at {address} within "
        f"distributed.initialization_timeout_s={distributed.initialization_timeout_s}. Check that process 0 runs "
        "there and can be reached, that each of the others has its own distributed.process_id, and that all have the "
        "same distributed.num_processes; or raise the limit"
    )


def _describe_failure(distributed: DistributedConfig, error: Exception) -> str:
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if "DEADLINE_EXCEEDED" in text or "UNAVAILABLE" in text:
        return _describe_timeout(distributed)
    advice = {
        "auto": "JAX detects no other processes; set distributed=slurm, mpi or manual, or distributed=none",
        "manual": "correct distributed.coordinator_address=HOST:PORT, num_processes and process_id",
    }.get(distributed.mode, "correct the launcher of the processes, or set distributed=manual")
    return f"distributed.mode={distributed.mode}: {text}; {advice}"
