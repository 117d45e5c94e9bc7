"""What joining refuses before it waits for anybody."""

import importlib.util
from dataclasses import replace

import pytest

from agent_tunix.config.checks import check
from agent_tunix.config.schema import Config, DistributedConfig
from agent_tunix.errors import ConfigError
from agent_tunix.training.processes import here, join


def test_one_process_joins_nobody() -> None:
    assert join(DistributedConfig()).count == 1
    assert here().count == 1


@pytest.mark.parametrize("missing", ["coordinator_address", "num_processes", "process_id"])
def test_manual_names_the_key_that_is_missing(missing: str) -> None:
    whole = DistributedConfig(mode="manual", coordinator_address="127.0.0.1:1", num_processes=2, process_id=0)

    with pytest.raises(ConfigError, match=f"requires distributed.{missing}; .*JAX_PROCESS_ID"):
        join(replace(whole, **{missing: None}))  # type: ignore[arg-type]


def test_slurm_names_the_variable_that_srun_did_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("SLURM_PROCID", raising=False)

    with pytest.raises(ConfigError, match=r"SLURM_PROCID.* is not set; start the program by srun"):
        join(DistributedConfig(mode="slurm"))


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is not None, reason="mpi4py is installed")
def test_mpi_without_mpi4py_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMPI_MCA_orte_hnp_uri", raising=False)

    with pytest.raises(ConfigError, match="requires mpi4py"):
        join(DistributedConfig(mode="mpi"))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"num_processes": 2, "process_id": 2}, "distributed.process_id 2 must be under distributed.num_processes 2"),
        ({"coordinator_address": "host"}, "distributed.coordinator_address must be HOST:PORT, not 'host'"),
        ({"coordinator_address": "host:port"}, "must be HOST:PORT"),
        ({"coordinator_address": ":1234"}, "must be HOST:PORT"),
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
