"""Settings that joining refuses before it waits, and errors of a partner that is gone."""

import importlib.util
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import pytest

from agent_tunix.config.checks import check
from agent_tunix.config.schema import Config, DistributedConfig
from agent_tunix.distributed import here, join
from agent_tunix.distributed.loss import is_of_a_partner
from agent_tunix.errors import ConfigError
from tests.raising import raises


def test_one_process_joins_nobody() -> None:
    assert join(DistributedConfig()).count == 1
    assert here().count == 1


@pytest.mark.parametrize("missing", ["coordinator_address", "num_processes", "process_id"])
def test_manual_names_the_key_that_is_missing(missing: str) -> None:
    whole = DistributedConfig(mode="manual", coordinator_address="127.0.0.1:1", num_processes=2, process_id=0)
    with raises(ConfigError, "invalid_config", f"distributed.{missing}"):
        join(replace(whole, **{missing: None}))  # type: ignore[arg-type]


def test_slurm_names_the_variable_that_srun_did_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    with raises(ConfigError, "invalid_config", "SLURM_PROCID"):
        join(DistributedConfig(mode="slurm"))


def test_mpi_without_mpi4py_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMPI_MCA_orte_hnp_uri", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with raises(ConfigError, "missing_package"):
        join(DistributedConfig(mode="mpi"))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_process_0_names_a_port_that_is_taken(host: str) -> None:
    with closing(socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)) as other:
        port = other.getsockname()[1]
        taken = DistributedConfig("manual", f"127.0.0.1:{port}", num_processes=2, process_id=0)
        with raises(ConfigError, "processes_unreachable", str(port)):
            join(taken)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"num_processes": 2, "process_id": 2}, "2 is not below 2"),
        ({"coordinator_address": "host"}, "must be HOST:PORT"),
        ({"coordinator_address": "host:port"}, "must be HOST:PORT"),
        ({"coordinator_address": ":1234"}, "must be HOST:PORT"),
        ({"coordinator_address": "host:65536"}, "must be HOST:PORT"),
        ({"mode": "slrum"}, "did you mean slurm"),
        ({"num_processes": 0}, "distributed.num_processes"),
        ({"heartbeat_timeout_s": 0}, "distributed.heartbeat_timeout_s"),
        ({"local_device_ids": [0, -1]}, "distributed.local_device_ids"),
    ],
)
def test_keys_that_cannot_be_are_refused(keys: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check(replace(Config(), distributed=DistributedConfig(**keys)))  # type: ignore[arg-type]


def test_an_address_of_version_6_is_an_address() -> None:
    check(replace(Config(), distributed=DistributedConfig(coordinator_address="[::1]:1234")))


ABORTED = """
import ctypes, threading
from agent_tunix.distributed.loss import AbortHandler
handler = AbortHandler()
handler.text, handler.status = "LostProcessError: it is gone", 7
handler.tell = lambda text: print("told:", text)
handler.install()
thread = threading.Thread(target=ctypes.CDLL(None).abort)
thread.start()
thread.join(30)
"""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer [127.0.0.1]:53919"), True),
        (RuntimeError("INTERNAL: NCCL operation failed"), True),
        (RuntimeError("UNAVAILABLE: from remote target coordination_service while calling /xla.Coordination"), True),
        (RuntimeError("DEADLINE_EXCEEDED [type.googleapis.com/tensorflow.CoordinationServiceError='']"), True),
        (ConnectionResetError("Gloo"), False),
        (RuntimeError("a tracker said: connection refused"), False),
        (RuntimeError("RESOURCE_EXHAUSTED: out of memory"), False),
    ],
)
def test_a_partner_is_told_from_other_things_that_fail(error: Exception, expected: bool) -> None:
    assert is_of_a_partner(error) is expected


@pytest.mark.slow
def test_an_abort_in_a_thread_ends_with_our_words_and_our_status() -> None:
    done = subprocess.run([sys.executable, "-c", ABORTED], capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert done.stderr.endswith("LostProcessError: it is gone\n")
    assert done.stdout == "told: LostProcessError: it is gone\n"
