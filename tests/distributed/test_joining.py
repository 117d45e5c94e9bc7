"""Settings that joining refuses before it waits for other processes."""

import importlib.util
from dataclasses import replace

import pytest

from agent_tunix.config.checks import check
from agent_tunix.config.schema import Config, DistributedConfig
from agent_tunix.distributed import here, join
from agent_tunix.errors import ConfigError
from tests.raising import raises


def test_one_process_joins_nobody() -> None:
    assert join(DistributedConfig()).count == 1
    assert here().count == 1


@pytest.mark.parametrize("missing", ["coordinator_address", "num_processes", "process_id"])
def test_manual_names_the_key_that_is_missing(missing: str) -> None:
    whole = DistributedConfig(mode="manual", coordinator_address="127.0.0.1:1", num_processes=2, process_id=0)

    with raises(ConfigError, "missing_distributed_key") as caught:
        join(replace(whole, **{missing: None}))  # type: ignore[arg-type]
    assert f"distributed.{missing}" in str(caught.value)


def test_slurm_names_the_variable_that_srun_did_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("SLURM_PROCID", raising=False)

    with raises(ConfigError, "missing_slurm_variable") as caught:
        join(DistributedConfig(mode="slurm"))
    assert "SLURM_PROCID" in str(caught.value)


def test_mpi_without_mpi4py_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMPI_MCA_orte_hnp_uri", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with raises(ConfigError, "missing_mpi4py"):
        join(DistributedConfig(mode="mpi"))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"num_processes": 2, "process_id": 2}, "distributed.process_id 2"),
        ({"coordinator_address": "host"}, "must be HOST:PORT"),
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
